"""What a model holds beside its parameters: buffers, and the extra state of its modules.

A state dict has the buffers that are persistent, and whatever ``get_extra_state`` returns. Going on
exactly needs the other buffers too, and on each rank its own extra states, which nothing keeps
alike between the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainer.training.checkpoint.tree import put_together, require_storable, take_apart
from trainer.training.training_errors import ConfigError

EXTRA_KEY = "_extra_state"  # what a state dict calls it, after the module's name
BUFFERS = "buffers"
EXTRA_STATES = "extra_states"


def extra_state_keys(model: nn.Module) -> list[str]:
    """The keys of a state dict under which modules keep an extra state."""
    return [_joined(name, EXTRA_KEY) for name, _ in _modules_with_extra_state(model)]


def extra_states(model: nn.Module) -> dict[str, Any]:
    """A copy of every extra state, by its key in a state dict."""
    return {
        _joined(name, EXTRA_KEY): _copied(module.get_extra_state())
        for name, module in _modules_with_extra_state(model)
    }


def require_storable_state(model: nn.Module) -> None:
    """Raises ``ConfigError`` naming the module whose extra state a checkpoint cannot hold."""
    for name, module in _modules_with_extra_state(model):
        try:
            require_storable(module.get_extra_state())
        except TypeError as error:
            raise ConfigError(
                f"model: get_extra_state of {name or 'the model'} cannot be saved: {error}"
            ) from None


def capture(model: nn.Module) -> dict[str, Any]:
    """A copy of all buffers and extra states, for ``put_back``."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    return {BUFFERS: buffers, EXTRA_STATES: extra_states(model)}


def put_back(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Puts back what ``capture`` or ``own_state`` gave; both parts may be absent."""
    _put_buffers(model, state.get(BUFFERS, {}))
    saved = state.get(EXTRA_STATES, {})
    for name, module in _modules_with_extra_state(model):
        key = _joined(name, EXTRA_KEY)
        if key in saved:
            module.set_extra_state(_copied(saved[key]))


def own_state(
    model: nn.Module, weights: Mapping[str, Any], rank: int, apart: bool
) -> dict[str, Any]:
    """What this rank adds to the weights that the ranks save together; {} for nothing.

    weights: the keys of the state dict, in which the first rank's extra states are. apart: the
    ranks' buffers differ and stay different, as FSDP leaves them; else each step begins with the
    first rank's.
    """
    state: dict[str, Any] = {}
    if rank == 0 or apart:
        buffers = {
            name: buffer
            for name, buffer in model.named_buffers()
            if rank > 0 or name not in weights
        }
        if buffers:
            state[BUFFERS] = buffers
    if rank > 0 and extra_state_keys(model):
        state[EXTRA_STATES] = extra_states(model)
    return state


def placed_extra_state(saved: object, example: object, device: torch.device) -> Any:
    """A copy of a saved extra state, its tensors where ``example`` has them, else on ``device``.

    example: the extra state of the model as it was built, which may hold less.
    """
    if isinstance(saved, Tensor):
        there = example.device if isinstance(example, Tensor) else device
        return saved.to(there, copy=True)
    if isinstance(saved, dict):
        known = example if isinstance(example, Mapping) else {}
        return {
            key: placed_extra_state(value, known.get(key), device) for key, value in saved.items()
        }
    if isinstance(saved, (list, tuple)):
        others = list(example) if isinstance(example, (list, tuple)) else []
        others += [None] * (len(saved) - len(others))
        pairs = zip(saved, others, strict=False)
        return type(saved)(placed_extra_state(value, other, device) for value, other in pairs)
    return saved


@torch.no_grad()
def _put_buffers(model: nn.Module, buffers: Mapping[str, Tensor]) -> None:
    """One that has another shape than here has grown since the model was built: it replaces it."""
    modules = dict(model.named_modules())
    here = dict(model.named_buffers())
    device = next((each.device for each in [*here.values(), *model.parameters()]), None)
    for name, saved in buffers.items():
        buffer = here.get(name)
        if buffer is not None and buffer.shape == saved.shape and buffer.dtype == saved.dtype:
            buffer.copy_(saved)
            continue
        path, _, last = name.rpartition(".")
        module = modules.get(path)
        if module is None or (last not in module._buffers and hasattr(module, last)):
            raise ConfigError(f"model: the checkpoint is of another one: it has the buffer {name}")
        place = buffer.device if buffer is not None else device
        persistent = last in module._buffers and last not in module._non_persistent_buffers_set
        module.register_buffer(last, saved.to(place, copy=True), persistent=persistent)


def _modules_with_extra_state(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """As ``Module.state_dict`` finds them."""
    return [
        (name, module)
        for name, module in model.named_modules(remove_duplicate=False)
        if type(module).get_extra_state is not nn.Module.get_extra_state
    ]


def _joined(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _copied(state: object) -> Any:
    tensors: dict[str, Tensor] = {}
    document = take_apart(state, tensors)
    return put_together(document, {key: each.detach().clone() for key, each in tensors.items()})
