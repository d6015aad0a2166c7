"""A checkpoint folder: how it is written, checked and read. What is in it, ``train.py`` decides.

Layout::

    step-000000000412/        appears by rename, complete or not at all
        weights.pt            model.state_dict(), for anybody who only wants the model
        training_state.pt     the rest: optimizer, scaler, each rank's random state, place
        manifest.json         written last
    step-000000000412.tmp-77/ being written by process 77; left behind only by a killed one

``manifest.json`` is one JSON object::

    format         1
    step           optimizer steps finished; total_steps is the whole run's number
    final          true for the finished run's last checkpoint
    world_size     ranks that were training
    fence          the attempt's number (LOWTIDE_FENCE)
    identity       the configuration keys that a resumed run must share
    metrics        name -> number: the newest known
    chunk_size     bytes covered by each hash (the last chunk of a file is shorter)
    files          [{path, size, chunks: [SHA-256 in hex, ...]}]
    digest         SHA-256 of this object without ``digest``, as JSON with sorted keys and without
                   spaces

Both ``.pt`` files hold only plain values and tensors and are read with ``weights_only``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from trainer.training.errors import CheckpointCorruptError

FORMAT = 1
CHUNK_BYTES = 8 << 20
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 64 << 20
KEEP_LOCAL = 2


class CheckpointFolder:
    """The local folder that one rank 0 writes its checkpoints to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: list[Path] = []

    def sweep(self) -> None:
        """Creates the folder and removes what killed processes left half-written in it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("step-*.tmp-*"):
            shutil.rmtree(path)

    def save(self, header: dict[str, Any], contents: dict[str, Any]) -> Path:
        """Writes one checkpoint durably and returns its folder.

        ``header`` is the manifest without the parts that describe files; ``contents`` maps file
        names to what torch saves in them. Of the checkpoints written by this process all but the
        newest two are removed; those of earlier attempts are not ours to remove.
        """
        target = self.folder / f"step-{header['step']:012d}"
        temporary = self.folder / f"{target.name}.tmp-{os.getpid()}"
        temporary.mkdir()
        files = [_write_torch(temporary / name, value) for name, value in contents.items()]
        manifest = {"format": FORMAT, **header, "chunk_size": CHUNK_BYTES, "files": files}
        manifest["digest"] = manifest_digest(manifest)
        text = json.dumps(manifest, indent=1).encode()
        _write_durably(temporary / MANIFEST, lambda file: file.write(text))
        _sync_folder(temporary)
        if target.exists():
            # The same step once more, after an earlier attempt or as the final checkpoint.
            replaced = self.folder / f"{target.name}.tmp-{os.getpid()}-replaced"
            os.rename(target, replaced)
            os.rename(temporary, target)
            shutil.rmtree(replaced)
        else:
            os.rename(temporary, target)
        _sync_folder(self.folder)
        self._written = [path for path in self._written if path != target] + [target]
        while len(self._written) > KEEP_LOCAL:
            shutil.rmtree(self._written.pop(0), ignore_errors=True)
        return target


def load_checkpoint(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads and verifies the checkpoint in ``folder``: (manifest, file name -> content).

    Every byte is hashed before torch sees it. Raises ``CheckpointCorruptError``.
    """
    manifest = read_manifest(folder)
    contents = {}
    for entry in manifest["files"]:
        data = _read_verified(folder, entry, manifest["chunk_size"])
        try:
            contents[entry["path"]] = torch.load(
                io.BytesIO(data), map_location="cpu", weights_only=True
            )
        except Exception as error:  # torch names no exceptions for a file it cannot read
            raise CheckpointCorruptError(f"{folder / entry['path']}: {error}") from error
    return manifest, contents


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest and checks its own digest. Raises ``CheckpointCorruptError``."""
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            manifest = json.loads(file.read(MAX_MANIFEST_BYTES))
    except OSError as error:
        raise CheckpointCorruptError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointCorruptError(f"{path} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("digest") != manifest_digest(manifest):
        raise CheckpointCorruptError(f"{path} does not match its own digest")
    if manifest["format"] != FORMAT:
        raise CheckpointCorruptError(f"{path} has format {manifest['format']}, not {FORMAT}")
    return manifest


def manifest_digest(manifest: dict[str, Any]) -> str:
    """SHA-256 in hex over the manifest without its ``digest``."""
    body = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(
        json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


class _HashingWriter:
    """A file for torch.save that hashes what passes through, chunk by chunk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._chunk = hashlib.sha256()
        self._in_chunk = 0
        self._chunks: list[str] = []
        self.size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        first = 0
        while first < len(view):
            piece = view[first : first + CHUNK_BYTES - self._in_chunk]
            self._chunk.update(piece)
            self._in_chunk += len(piece)
            first += len(piece)
            if self._in_chunk == CHUNK_BYTES:
                self._close_chunk()
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        self._file.flush()

    def chunks(self) -> list[str]:
        if self._in_chunk:
            self._close_chunk()
        return self._chunks

    def _close_chunk(self) -> None:
        self._chunks.append(self._chunk.hexdigest())
        self._chunk, self._in_chunk = hashlib.sha256(), 0


def _write_torch(path: Path, value: Any) -> dict[str, Any]:
    written: list[_HashingWriter] = []

    def fill(file: BinaryIO) -> None:
        written.append(_HashingWriter(file))
        torch.save(value, written[0])  # type: ignore[arg-type]  # it only writes and flushes

    _write_durably(path, fill)
    return {"path": path.name, "size": written[0].size, "chunks": written[0].chunks()}


def _write_durably(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    with path.open("xb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_verified(folder: Path, entry: dict[str, Any], chunk_size: int) -> bytes:
    path: Path = folder / entry["path"]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointCorruptError(f"{path}: {error.strerror}") from error
    if len(data) != entry["size"]:
        raise CheckpointCorruptError(f"{path} has {len(data)} bytes, not {entry['size']}")
    view = memoryview(data)
    for number, expected in enumerate(entry["chunks"]):
        chunk = view[number * chunk_size : (number + 1) * chunk_size]
        if hashlib.sha256(chunk).hexdigest() != expected:
            raise CheckpointCorruptError(f"{path} is damaged in chunk {number}")
    return data
