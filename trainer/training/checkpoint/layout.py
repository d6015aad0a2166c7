"""The plan of one rank's files, made once and used for every save while the tensors stay alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from trainer.training.checkpoint.tensor_slices import (
    FileImage,
    TensorSlice,
    file_image,
    is_divided,
    pieces_of,
    size_of,
)
from trainer.training.checkpoint.tree import take_apart

SHARED_LEAST_BYTES = 16 << 20

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class State:
    """A state taken apart: each group's tensors by key, and the document that holds the rest.

    ``own`` are this rank's own tensors; they go into the last group's file. ``uncut``: keys of
    tensors that the first rank writes whole, because the other ranks may have others.
    """

    groups: Mapping[str, Tensors]
    own: Tensors
    document: Mapping[str, Any]
    uncut: Collection[str] = ()


def state_of(trees: Mapping[str, Any], own: Tensors, uncut: Collection[str] = ()) -> State:
    """Takes the trees apart. Raises ``TypeError`` for what a checkpoint cannot hold."""
    groups: dict[str, Tensors] = {}
    document = {}
    for group, tree in trees.items():
        tensors: dict[str, Tensor] = {}
        document[group] = take_apart(tree, tensors)
        groups[group] = tensors
    return State(groups, own, document, uncut)


@dataclass(frozen=True)
class Layout:
    """``names`` and ``images`` of the files of writer ``part`` of ``parts``; what ``fits`` is put
    into the same places.
    """

    names: tuple[str, ...]
    images: tuple[FileImage, ...]
    _groups: tuple[str, ...]
    _forms: Mapping[str, list[tuple[Any, ...]]] = field(repr=False)

    def fits(self, state: State) -> bool:
        """Whether the same tensors, by key, shape, type and device, were laid out here."""
        return _forms(state) == self._forms

    def sources(self, state: State) -> list[Tensor]:
        """The tensors, or their rows, in the order of the images' pieces."""
        found = []
        for image, group in zip(self.images, self._groups, strict=True):
            tensors = state.groups[group]
            for piece in image.pieces:
                tensor = tensors.get(piece.key)
                if tensor is None:
                    tensor = state.own[piece.key]
                found.append(tensor if piece.is_plain else piece.rows_of(tensor))
        return found


def lay_out(state: State, part: int, parts: int) -> Layout:
    """Which files this rank writes. Small groups are not shared: what lies whole is easier to use;
    the first rank writes them.
    """
    files: dict[str, list[TensorSlice]] = {}
    groups, last = [], list(state.groups)[-1]
    for group, tensors in state.groups.items():
        large = size_of(tensors) >= SHARED_LEAST_BYTES
        shared = parts if large or any(map(is_divided, tensors.values())) else 1
        pieces = pieces_of(tensors, part, shared, state.uncut) if part < shared else []
        if group == last:
            pieces += [TensorSlice(key, tensor.detach()) for key, tensor in state.own.items()]
            shared = parts
        if part < shared:
            which = "" if shared == 1 else f"-{part + 1:05d}-of-{shared:05d}"
            files[f"{group}{which}.safetensors"] = pieces
            groups.append(group)
    images = tuple(file_image(pieces) for pieces in files.values())
    return Layout(tuple(files), images, tuple(groups), _forms(state))


def _forms(state: State) -> dict[str, list[tuple[Any, ...]]]:
    named = {**state.groups, "": state.own}
    return {
        group: [(key, one.shape, one.dtype, one.device) for key, one in tensors.items()]
        for group, tensors in named.items()
    }
