"""Models of a user's own for training tests, as ``tests.training.models.own_models:NAME``."""

from __future__ import annotations

import functools
import time

import torch
from torch import Tensor, nn

from trainer.training.models.small import cnn


class Stack(nn.Module):
    """``depth`` blocks with a norm and dropout, as memory-saving techniques meet them; ``plain``
    ones have neither, so that any number of ranks computes the same.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        plain: bool = False,
        depth: int = 3,
    ) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.first = nn.Linear(channels * height * width, 32)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(32, 32),
                nn.LayerNorm(32) if plain else nn.BatchNorm1d(32),
                nn.ReLU(),
                nn.Dropout(0.0 if plain else 0.2),
            )
            for _ in range(depth)
        )
        self.last = nn.Linear(32, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images.flatten(1))
        for block in self.blocks:
            hidden = hidden + block(hidden)
        scores: Tensor = self.last(hidden)
        return scores


def convolutions(input_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """The trainer's small network under another name, so that its figures are counted."""
    return cnn(input_shape, num_classes)


class Slow(nn.Module):
    """A pass takes every rank, or ``on_rank``, so many ``seconds``; its gradients ``megabytes``."""

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        megabytes: int = 1,
        seconds: float = 0.0,
        on_rank: int | None = None,
    ) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.last = nn.Linear(channels * height * width, num_classes)
        self.most = nn.Parameter(torch.zeros(megabytes << 18))
        here = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self._seconds = seconds if on_rank in (None, here) else 0.0

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(self._seconds)
        scores: Tensor = self.last(images.flatten(1)) + self.most[:1]
        return scores


class Late(Stack):
    """Takes rank 1 two minutes to make; says when that begins."""

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(input_shape, num_classes, plain=True)
        print("the model is being made", flush=True)
        time.sleep(120 * torch.distributed.get_rank())


class Spare(Stack):
    """Has a layer that no pass uses."""

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(input_shape, num_classes, plain=True)
        self.spare = nn.Linear(8, 8)


class Failing(Stack):
    """Raises an error of its own on rank 1, after so many passes."""

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, after: int) -> None:
        super().__init__(input_shape, num_classes, plain=True)
        self._left = after
        here = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self._fails = here == 1

    def forward(self, images: Tensor) -> Tensor:
        self._left -= 1
        if self._fails and self._left < 0:
            raise RuntimeError("a bug of the model, closed by peer, out of memory")
        return super().forward(images)


class Hungry(Stack):
    """Runs out of memory with more than ``most`` samples at once, ``recomputed_most`` when its
    blocks are recomputed: at the end of the forward pass, in the ``middle`` of it or on the way
    ``back``. Of several ranks only ``on_rank`` is short.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        most: int,
        recomputed_most: int = 0,
        on_rank: int = 0,
        where: str = "end",
        plain: bool = False,
    ) -> None:
        super().__init__(input_shape, num_classes, plain)
        self._where = where
        self._most = most
        self._recomputed_most = recomputed_most
        here = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self._is_short = here == on_rank

    def forward(self, images: Tensor) -> Tensor:
        recomputed = isinstance(self.blocks[0].forward, functools.partial)
        most = self._recomputed_most if recomputed else self._most
        if not (self.training and torch.is_grad_enabled() and self._is_short):
            most = len(images)
        if len(images) <= most:
            return super().forward(images)
        hidden = self.first(images.flatten(1))
        hidden = hidden + self.blocks[0](hidden)
        if self._where == "middle":
            self._fail(images)
        if self._where == "back":
            hidden.register_hook(lambda _gradient: self._fail(images))
        for block in list(self.blocks)[1:]:
            hidden = hidden + block(hidden)
        scores: Tensor = self.last(hidden)
        if self._where == "end":
            self._fail(images)
        return scores

    def _fail(self, images: Tensor) -> None:
        raise torch.OutOfMemoryError(f"CUDA out of memory with {len(images)} samples")


class Moving(Stack):
    """Keeps more than its state dict says: a buffer that is not persistent and follows the data,
    and an extra state, ``dict`` or ``tensor``, that grows. Both change what is computed.
    """

    moving: Tensor
    kept: Tensor

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        extra: str = "none",
        plain: bool = False,
        wide: int = 32,
    ) -> None:
        super().__init__(input_shape, num_classes, plain)
        self.register_buffer("moving", torch.zeros(wide), persistent=False)
        self.register_buffer("kept", torch.zeros(wide))
        self.tracked = Tracked(extra) if extra != "none" else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images.flatten(1))
        if self.training:
            with torch.no_grad():
                self.moving.mul_(0.9).add_(hidden.mean())
                self.kept.mul_(0.9).add_(hidden.std())
        hidden = self.tracked(hidden + self.moving[:32] + self.kept[-32:])
        for block in self.blocks:
            hidden = hidden + block(hidden)
        scores: Tensor = self.last(hidden)
        return scores


class Tracked(nn.Module):
    """Remembers numbers of its last passes in an extra state, and computes with them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self.means = torch.zeros(1)
        self.passes = 0

    def get_extra_state(self) -> object:
        if self._kind == "tensor":
            return torch.cat([self.means, torch.tensor([float(self.passes)])])
        return {
            "means": self.means,
            "passes": self.passes,
            "recipe": {"margin": 0.5, "names": ("a", None), "raw": b"\x00\xff", 3: {"x", "y"}},
        }

    def set_extra_state(self, state: object) -> None:
        if isinstance(state, Tensor):
            self.means, self.passes = state[:-1], int(state[-1])
        else:
            assert isinstance(state, dict)
            assert state["recipe"] == {
                "margin": 0.5,
                "names": ("a", None),
                "raw": b"\x00\xff",
                3: {"x", "y"},
            }
            self.means, self.passes = state["means"], state["passes"]

    def forward(self, hidden: Tensor) -> Tensor:
        if self.training:
            self.passes += 1
            mean = hidden.detach().mean().reshape(1)
            # Another size than at the start, and after most saves another than before.
            self.means = torch.cat([self.means, mean])[-(2 + self.passes % 5) :]
        return hidden * (1.0 + 0.1 * self.means.mean()) + 0.001 * self.passes
