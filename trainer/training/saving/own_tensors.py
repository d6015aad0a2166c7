"""What a checkpoint holds of a single rank, as tensors beside those that the ranks save together.

Keys: ``random.<rank>.<name>`` for the random state. The rank's other state is a JSON document,
``own.<rank>``, and the tensors it names, ``own.<rank>.<path>``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainer.training.checkpoint.tree import put_together, take_apart

# A document that grows by a digit must not move everything else.
_PADDED_BYTES = 4096


def own_tensors_of(
    rank: int, random: Mapping[str, Tensor], state: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The tensors of one rank, by their keys in a checkpoint."""
    tensors = {f"random.{rank}.{name}": tensor for name, tensor in random.items()}
    if state:
        name = f"own.{rank}"
        text = json.dumps(take_apart(state, tensors, name)).encode()
        text += b" " * (-len(text) % _PADDED_BYTES)
        tensors[name] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return tensors


def own_state_of(rank: int, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The ``state`` that ``own_tensors_of`` was given; {} if there is none."""
    document = tensors.get(f"own.{rank}")
    if document is None:
        return {}
    state: dict[str, Any] = put_together(json.loads(document.numpy().tobytes()), tensors)
    return state
