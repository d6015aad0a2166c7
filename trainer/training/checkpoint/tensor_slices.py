"""Which rank writes which rows of which tensor, and where they lie in its files.

A file is a safetensors file: 8 bytes length of the header, the header (JSON, padded with spaces so
that the data begins at a multiple of 4 KiB), the tensors' bytes one after the other, wide types
first so that each is aligned. A tensor that was cut between ranks appears in each rank's file as
``key[first:end]``, rows of its first dimension. Source of the format: the README of
huggingface/safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainer.training.checkpoint.tree import DTYPE_NAMES

PAGE_BYTES = 4096
# Smaller tensors are not cut: a piece has its price too.
CUT_LEAST_BYTES = 1 << 20


@dataclass(frozen=True)
class TensorSlice:
    """Rows of one tensor, as one rank writes them. ``source`` is an example of them.

    ``whole``: all of them, under the plain key. ``divided``: each rank has only its own.
    """

    key: str
    source: Tensor
    first: int = 0
    whole: bool = True
    divided: bool = False

    @property
    def name(self) -> str:
        """Its key in the file's header."""
        return self.key if self.whole else f"{self.key}[{self.first}:{self._end}]"

    @property
    def bytes(self) -> int:
        """Size in the file."""
        return self.source.numel() * self.source.element_size()

    @property
    def is_plain(self) -> bool:
        """Whether it is a tensor just as the state holds it."""
        return self.whole and not self.divided

    def rows_of(self, tensor: Any) -> Tensor:
        """The same rows of the tensor as it is now."""
        local: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        return local if self.divided or self.whole else local[self.first : self._end]

    @property
    def _end(self) -> int:
        return self.first + len(self.source)


def pieces_of(
    tensors: Mapping[str, Tensor], part: int, parts: int, uncut: Collection[str] = ()
) -> list[TensorSlice]:
    """What writer ``part`` of ``parts`` writes, of tensors that each writer's rank has.

    Of those that all hold alike, near-equal shares of the bytes, cut between rows, small ones
    and those named in ``uncut`` as the first rank has them: running statistics differ between the
    ranks until the next pass, which begins with the first one's. Of those that are divided
    (FSDP2's, by rows), each its own.
    """
    pieces = []
    for key, tensor in tensors.items():
        if is_divided(tensor):
            own = _own_rows(key, tensor)
            pieces += [own] if own is not None else []
    alike = {key: tensor for key, tensor in tensors.items() if not is_divided(tensor)}
    return pieces + _share_of(alike, part, parts, uncut)


def is_divided(tensor: Any) -> bool:
    """Whether this rank holds only some of the tensor's rows (a DTensor, sharded)."""
    return hasattr(tensor, "to_local") and any(each.is_shard() for each in tensor.placements)


def _own_rows(key: str, tensor: Any) -> TensorSlice | None:
    """This rank's rows of a sharded tensor, as torch.chunk deals them out; None if it has none."""
    local: Tensor = tensor.to_local().detach()
    if len(tensor.placements) != 1 or tensor.placements[0].dim != 0:
        raise TypeError(f"{key}: only tensors that are sharded by their rows can be saved")
    rows, ranks = len(tensor), tensor.device_mesh.size()
    if len(local) == 0:
        return None
    first = tensor.device_mesh.get_local_rank() * -(-rows // ranks)
    return TensorSlice(key, local, first, whole=len(local) == rows, divided=True)


def _share_of(
    tensors: Mapping[str, Tensor], part: int, parts: int, uncut: Collection[str]
) -> list[TensorSlice]:
    total = size_of(tensors)
    low, high = total * part // parts, total * (part + 1) // parts
    plain = {
        key: tensor.to_local() if hasattr(tensor, "to_local") else tensor
        for key, tensor in tensors.items()
    }
    whole = {
        key: one for key, one in plain.items() if parts == 1 or key in uncut or not _can_be_cut(one)
    }
    pieces = [TensorSlice(key, one.detach()) for key, one in whole.items()] if part == 0 else []
    at = size_of(whole)
    for key, tensor in plain.items():
        if key in whole:
            continue
        size = tensor.numel() * tensor.element_size()
        rows, row_bytes = len(tensor), size // len(tensor)
        first = min(rows, max(0, -(-(low - at) // row_bytes)))
        end = min(rows, max(0, -(-(high - at) // row_bytes)))
        if first < end:
            cut = tensor.detach()[first:end]
            pieces.append(TensorSlice(key, cut, first, whole=end - first == rows))
        at += size
    return pieces


def _can_be_cut(tensor: Tensor) -> bool:
    size = tensor.numel() * tensor.element_size()
    return tensor.dim() > 0 and len(tensor) > 1 and size >= CUT_LEAST_BYTES


@dataclass(frozen=True)
class FileImage:
    """One file as it will be: header first, then each piece at its place. Sizes in bytes."""

    header: bytes
    pieces: tuple[TensorSlice, ...]
    places: tuple[int, ...]
    size: int

    @property
    def padded_size(self) -> int:
        """The size in whole pages."""
        return -(-self.size // PAGE_BYTES) * PAGE_BYTES


def file_image(pieces: Iterable[TensorSlice]) -> FileImage:
    """Lays the pieces out: wide types first, a GPU's before the CPU's, then by name."""
    ordered = sorted(
        pieces,
        key=lambda piece: (
            -piece.source.element_size(),
            piece.source.device.type == "cpu",
            piece.name,
        ),
    )
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at, offsets = 0, []
    for piece in ordered:
        offsets.append(at)
        entries[piece.name] = {
            "dtype": DTYPE_NAMES[piece.source.dtype],
            "shape": list(piece.source.shape),
            "data_offsets": [at, at + piece.bytes],
        }
        at += piece.bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % PAGE_BYTES)
    header = len(text).to_bytes(8, "little") + text
    places = tuple(len(header) + offset for offset in offsets)
    return FileImage(header, tuple(ordered), places, len(header) + at)


def size_of(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of all of them."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
