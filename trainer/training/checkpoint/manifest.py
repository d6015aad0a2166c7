"""``manifest.json``, the last file of a checkpoint: what belongs to it and every chunk's hash.

One JSON object::

    format         2
    step           optimizer steps finished; total_steps is the whole run's number
    final          true for the finished run's last checkpoint
    world_size     ranks that were training
    fence          the attempt's number (LOWTIDE_FENCE)
    identity       the configuration keys that a resumed run must share
    metrics        name -> number: the newest known
    torch          the version of PyTorch that was training
    hash           {name, key, chunk_bytes}: how the chunks are hashed (``content_hash.py``)
    files          [{path, size, chunks: [hash in hex, ...]}]
    optional       paths of those that may be missing, all together; absent if there are none
    digest         SHA-256 of this object without ``digest``, as JSON with sorted keys and without
                   spaces
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from trainer.training.errors import CheckpointCorruptError

FORMAT = 2
MANIFEST = "manifest.json"
TREE = "tree.json"
MAX_MANIFEST_BYTES = 64 << 20


def seal(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with its digest."""
    return {**manifest, "digest": manifest_digest(manifest)}


def manifest_digest(manifest: dict[str, Any]) -> str:
    """SHA-256 in hex over the manifest without its ``digest``."""
    body = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(
        json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def optional_files(
    header: Mapping[str, Any], files: Sequence[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """``optional`` by its paths, from the header's, which names groups of files; {} without one."""
    if "optional" not in header:
        return {}
    groups = tuple(header["optional"])
    return {"optional": [each["path"] for each in files if each["path"].startswith(groups)]}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest and checks its own digest. Raises ``CheckpointCorruptError``."""
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            manifest = json.loads(file.read(MAX_MANIFEST_BYTES))
    except OSError as error:
        raise CheckpointCorruptError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointCorruptError(f"{path} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("digest") != manifest_digest(manifest):
        raise CheckpointCorruptError(f"{path} does not match its own digest")
    if manifest.get("format") != FORMAT:
        raise CheckpointCorruptError(
            f"{path} has format {manifest.get('format')}, this trainer reads {FORMAT}:"
            " resume with the version of Lowtide that wrote it"
        )
    for entry in manifest["files"]:
        if PurePosixPath(entry["path"]).name != entry["path"]:
            raise CheckpointCorruptError(f"{path} names a file outside its folder")
    return manifest
