"""The ranks of a script's gang: what they agree on, and how, without a GPU in the way."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

PEERS_TIMEOUT = timedelta(hours=1)
"""How long a rank waits for the others in a save: ``write`` may take long on one of them. A rank
that died is noticed at once, and one that hangs by the job's ``stall_timeout``."""
PROMPT_GAP_SECONDS = 1.0
"""Votes further apart than this are waited for at once."""


class Ranks:
    """The ranks of the default process group, joined by a second one between the processors.

    Not by the default one: NCCL's would wait for the GPU, and knows nothing but GPUs' tensors.
    """

    def __init__(self, dist: Any) -> None:
        self.world = dist.group.WORLD
        self._dist = dist
        self._group = dist.new_group(backend="gloo", timeout=PEERS_TIMEOUT)
        self._vote: tuple[Any, Any] | None = None
        self._flag, self._gap, self._voted_at = False, float("inf"), float("-inf")

    def vote(self, flag: bool) -> bool:
        """True on every rank soon after it is true on one, in the same call on all of them.

        What the call before began is answered here, which costs no waiting. Calls that are far
        apart (on the rank where they are furthest) wait for the answer to their own.
        """
        import torch

        decided = self._counted()
        now = time.monotonic()
        told = [float(flag), now - self._voted_at]
        ballot = torch.tensor(told, dtype=torch.float64, device="cpu")  # whatever the default is
        self._voted_at = now
        most = self._dist.ReduceOp.MAX
        work = self._dist.all_reduce(ballot, op=most, group=self._group, async_op=True)
        self._vote = (work, ballot)
        return decided or (self._gap >= PROMPT_GAP_SECONDS and self._counted())

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank (pickled)."""
        self._counted()
        values: list[Any] = [None] * self._dist.get_world_size()
        self._dist.all_gather_object(values, value, group=self._group)
        return values

    def _counted(self) -> bool:
        """The result of the newest vote."""
        if self._vote is not None:
            work, ballot = self._vote
            work.wait()
            self._flag, self._gap = bool(ballot[0] > 0), float(ballot[1])
            self._vote = None
        return self._flag


def initialized() -> Any:
    """``torch.distributed`` where its default group is there; else None."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return None
    return torch.distributed if torch.distributed.is_initialized() else None
