"""Reading a checkpoint: every byte is verified before torch sees it, and mapped, not copied."""

from __future__ import annotations

import contextlib
import json
import mmap
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.training.checkpoint.content_hash import NAME, ContentHash
from trainer.training.checkpoint.manifest import TREE, read_manifest
from trainer.training.checkpoint.tree import DTYPES, put_together
from trainer.training.training_errors import CheckpointCorruptError

_PIECE = re.compile(r"^(.*)\[(\d+):(\d+)\]$", re.DOTALL)
_GROUP = re.compile(r"^([a-z_]+)(-\d+-of-\d+)?\.safetensors$")

Rows = list[tuple[int, Tensor]]


class CheckpointReader:
    """One folder, opened. Raises ``CheckpointCorruptError`` for whatever is not as written."""

    def __init__(self, folder: Path) -> None:
        """Reads the manifest and maps the files; nothing of their content is used yet."""
        self.folder = folder
        self.manifest = read_manifest(folder)
        self._hashing = self.manifest["hash"]
        if self._hashing["name"] != NAME:
            raise CheckpointCorruptError(f"{folder}: the hash {self._hashing['name']!r} is unknown")
        optional = self.manifest.get("optional", [])
        self._left_out = any(not (folder / path).exists() for path in optional)
        self._entries = [
            entry
            for entry in self.manifest["files"]
            if not (self._left_out and entry["path"] in optional)
        ]
        self._files = {
            entry["path"]: self._map(folder / entry["path"], entry["size"])
            for entry in self._entries
        }

    def verify(self, part: int = 0, parts: int = 1) -> None:
        """Hashes every chunk, or every ``parts``-th of them beginning with number ``part``."""
        hashing = ContentHash(bytes.fromhex(self._hashing["key"]))
        size, number = self._hashing["chunk_bytes"], 0
        for entry in self._entries:
            content = self._files[entry["path"]]
            if len(entry["chunks"]) != -(-entry["size"] // size):
                raise CheckpointCorruptError(
                    f"{self.folder / entry['path']} has not all its hashes"
                )
            for index, expected in enumerate(entry["chunks"]):
                if number % parts == part:
                    chunk = content[index * size : (index + 1) * size]
                    if hashing.chunk(chunk) != expected:
                        raise CheckpointCorruptError(
                            f"{self.folder / entry['path']} is damaged in chunk {index}"
                        )
                number += 1

    def read(self) -> dict[str, Any]:
        """The trees that were saved, by name; call ``verify`` before.

        Tensors are views of the mapped files, private to this process, where they lie whole. A tree
        whose files are optional and were left out is not among them.
        """
        document = json.loads(bytes(self._files[TREE]))
        names = (path for path in self.manifest.get("optional", []) if self._left_out)
        missing = {found[1] for found in map(_GROUP.match, names) if found is not None}
        return {
            group: put_together(part, self.tensors(group))
            for group, part in document.items()
            if group not in missing
        }

    def tensors(self, group: str) -> dict[str, Tensor]:
        """All tensors of one group's files by key, those of single ranks too; whole again."""
        rows: defaultdict[str, Rows] = defaultdict(list)
        for name, content in self._files.items():
            found = _GROUP.match(name)
            if found is not None and found[1] == group:
                for key, tensor in _tensors_of(self.folder / name, content):
                    piece = _PIECE.match(key)
                    if piece is None:
                        rows[key].append((0, tensor))
                    else:
                        rows[piece[1]].append((int(piece[2]), tensor))
        return {key: _joined(self.folder, key, pieces) for key, pieces in rows.items()}

    def _map(self, path: Path, size: int) -> memoryview:
        try:
            with path.open("rb") as file:
                found = file.seek(0, 2)
                if found != size:
                    raise CheckpointCorruptError(f"{path} has {found} bytes, not {size}")
                if size == 0:
                    return memoryview(b"")
                # Private and writable: torch refuses to view memory that it may not write to.
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError as error:
            raise CheckpointCorruptError(f"{path}: {error.strerror}") from error
        # The disk reads ahead while the first chunks are hashed.
        if hasattr(mmap, "MADV_WILLNEED"):
            with contextlib.suppress(OSError):
                mapped.madvise(mmap.MADV_WILLNEED)
        return memoryview(mapped)


def load_checkpoint(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads and verifies the checkpoint in ``folder``: (manifest, name -> tree).

    Raises ``CheckpointCorruptError``.
    """
    reader = CheckpointReader(folder)
    reader.verify()
    return reader.manifest, reader.read()


def own_tensors(value: object, place: Callable[[Tensor], Tensor] = torch.clone) -> Any:
    """A tree with every tensor replaced by ``place`` of it: by default copied out of the files."""
    if isinstance(value, Tensor):
        return place(value)
    if isinstance(value, dict):
        return {key: own_tensors(item, place) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(own_tensors(item, place) for item in value)
    return value


def _tensors_of(path: Path, content: memoryview) -> Iterator[tuple[str, Tensor]]:
    length = int.from_bytes(content[:8], "little")
    start = 8 + length
    for key, entry in json.loads(bytes(content[8:start])).items():
        if key == "__metadata__":
            continue
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            raise CheckpointCorruptError(f"{path}: {key} has the unknown type {entry['dtype']}")
        first, end = entry["data_offsets"]
        count = (end - first) // dtype.itemsize
        if count == 0:
            yield key, torch.empty(entry["shape"], dtype=dtype)
            continue
        flat = torch.frombuffer(content, dtype=dtype, count=count, offset=start + first)
        yield key, flat.view(entry["shape"])


def _joined(folder: Path, key: str, found: Rows) -> Tensor:
    if len(found) == 1 and found[0][0] == 0:
        return found[0][1]
    found.sort(key=lambda piece: piece[0])
    at = 0
    for first, rows in found:
        if first != at:
            raise CheckpointCorruptError(f"{folder}: rows {at} to {first} of {key} are missing")
        at += len(rows)
    return torch.cat([rows for _, rows in found])
