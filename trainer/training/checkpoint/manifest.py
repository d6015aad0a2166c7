"""``manifest.json``, the last file of a checkpoint: what belongs to it and every chunk's hash.

One JSON object::

    format         2, or 3 where several machines saved together, each its share
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
    share          {machine, machines, save}: of a gang that saves together, whose share this is,
                   and which save of the attempt; absent where one machine saved alone
    digest         SHA-256 of this object without ``digest``, as JSON with sorted keys and without
                   spaces

Of shares, the first machine's file is called so and says all of this. Machine 2 of 3 writes
``manifest-00002-of-00003.json``, with what its own share needs. Together they are one checkpoint
when fence, step, save and the hash's key are the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from trainer.training.training_errors import CheckpointCorruptError

FORMAT = 2
SHARED_FORMAT = 3
MANIFEST = "manifest.json"
TREE = "tree.json"
MAX_MANIFEST_BYTES = 64 << 20
MACHINES_MAX = 100_000
_OF_EACH_SHARE = ("step", "final", "world_size", "fence", "torch")


@dataclass(frozen=True)
class Share:
    """``machine`` from 0; ``save`` counts the saves of an attempt, alike on all machines."""

    machine: int
    machines: int
    save: int

    @property
    def manifest_name(self) -> str:
        """What the file is called that says what belongs to this share."""
        if self.machine == 0:
            return MANIFEST
        return f"manifest-{self.machine + 1:05d}-of-{self.machines:05d}.json"


def header_of(share: Share, header: Mapping[str, Any]) -> dict[str, Any]:
    """The header of one machine's share: the first one's says everything of the whole."""
    whole = (
        header
        if share.machine == 0
        else {key: header[key] for key in _OF_EACH_SHARE if key in header}
    )
    return {**whole, "format": SHARED_FORMAT, "share": asdict(share)}


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
    """The manifest, checked against its own digest; of shares one for all that belongs together.

    Raises ``CheckpointCorruptError``, also where a share is missing or is that of another save.
    """
    manifest = _read_one(folder / MANIFEST)
    if "share" not in manifest:
        return manifest
    first = _share_of(manifest)
    if first is None or first.machine != 0:
        raise CheckpointCorruptError(f"{folder / MANIFEST} does not say whose share it is")
    digests = [manifest["digest"]]
    for machine in range(1, first.machines):
        share = Share(machine, first.machines, first.save)
        path = folder / share.manifest_name
        if not path.exists():
            raise CheckpointCorruptError(
                f"{folder}: the share of machine {machine + 1} of {first.machines} is missing"
            )
        other = _read_one(path)
        same = (other.get(key) == manifest.get(key) for key in ("fence", "step", "hash"))
        if _share_of(other) != share or not all(same):
            raise CheckpointCorruptError(f"{path} is a share of another checkpoint")
        manifest["files"] += other["files"]
        if "optional" in other:
            manifest["optional"] = [*manifest.get("optional", []), *other["optional"]]
        digests.append(other["digest"])
    manifest["digest"] = hashlib.sha256("".join(digests).encode()).hexdigest()
    return manifest


def _share_of(manifest: Mapping[str, Any]) -> Share | None:
    told = manifest.get("share")
    keys = ("machine", "machines", "save")
    if not isinstance(told, dict) or any(not isinstance(told.get(key), int) for key in keys):
        return None
    return Share(*(told[key] for key in keys)) if 1 < told["machines"] <= MACHINES_MAX else None


def _read_one(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            manifest = json.loads(file.read(MAX_MANIFEST_BYTES))
    except OSError as error:
        raise CheckpointCorruptError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointCorruptError(f"{path} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("digest") != manifest_digest(manifest):
        raise CheckpointCorruptError(f"{path} does not match its own digest")
    if manifest.get("format") not in (FORMAT, SHARED_FORMAT):
        raise CheckpointCorruptError(
            f"{path} has format {manifest.get('format')}, this trainer reads {FORMAT} and"
            f" {SHARED_FORMAT}: resume with the version of Lowtide that wrote it"
        )
    for entry in manifest["files"]:
        if PurePosixPath(entry["path"]).name != entry["path"]:
            raise CheckpointCorruptError(f"{path} names a file outside its folder")
    return manifest
