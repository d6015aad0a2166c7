"""The checkpoint lineage as it lies in an object store: keys, manifest, and which one counts.

Lives here: key names, the manifest's shape and digest, and the pure order in which manifests are
tried. Not here: reading or writing a store (`trainer.agent.checkpoints.checkpoint_sync`).

Every key is created once and never overwritten:
`fences/<fence>.json`, `manifests/<fence>/<step>.json`, shards under `data/<fence>/<step>/`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from trainer.protocol.wire import WireError, decode, encode

_MANIFEST_KEY = re.compile(r"^manifests/(\d{10})/(\d{12})\.json$")


@dataclass(frozen=True)
class CheckpointRef:
    """One checkpoint of the lineage: attempt number, training step, digest of its manifest."""

    fence: int
    step: int
    digest: str


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint. `chunk_sha256` covers consecutive chunks of `chunk_bytes`."""

    name: str
    size_bytes: int
    chunk_bytes: int
    chunk_sha256: tuple[str, ...]


@dataclass(frozen=True)
class FenceRecord:
    """`fences/<fence>.json`: the parent an attempt starts from, chosen once."""

    fence: int
    parent: CheckpointRef | None
    instance_id: str


@dataclass(frozen=True)
class CheckpointManifest:
    """`manifests/<fence>/<step>.json`. `parent` is where its attempt started."""

    fence: int
    step: int
    parent: CheckpointRef | None
    world_size: int
    final: bool
    files: tuple[FileEntry, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    digest: str = ""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.size_bytes for entry in self.files)

    @property
    def ref(self) -> CheckpointRef:
        """This checkpoint as others refer to it."""
        return CheckpointRef(self.fence, self.step, self.digest)


def fence_key(fence: int) -> str:
    """Key of the fence record of an attempt."""
    return f"fences/{fence:010d}.json"


def parse_fence_key(key: str) -> int | None:
    """The fence of a record's key, or None when the key is something else."""
    name = key.removeprefix("fences/").removesuffix(".json")
    return int(name) if key.startswith("fences/") and name.isascii() and name.isdigit() else None


def manifest_key(fence: int, step: int) -> str:
    """Key of a manifest."""
    return f"manifests/{fence:010d}/{step:012d}.json"


def data_key(fence: int, step: int, name: str) -> str:
    """Key of one file of a checkpoint."""
    return f"{data_prefix(fence, step)}{name}"


def data_prefix(fence: int, step: int) -> str:
    """What the keys of all files of a checkpoint begin with."""
    return f"data/{fence:010d}/{step:012d}/"


def stays_inside(name: str) -> bool:
    """Whether a file's name leads to a place below the folder of its checkpoint.

    Not so: a path from the root, one that goes up anywhere, or one that names the folder itself. A
    backslash is a letter like any other: names are of POSIX.
    """
    pure = PurePosixPath(name)
    return bool(pure.parts) and not pure.is_absolute() and ".." not in pure.parts


def parse_manifest_key(key: str) -> tuple[int, int] | None:
    """(fence, step) of a manifest's key, or None when the key is something else."""
    match = _MANIFEST_KEY.match(key)
    return (int(match[1]), int(match[2])) if match else None


def seal(manifest: CheckpointManifest) -> CheckpointManifest:
    """The manifest with its own digest: SHA-256 of its canonical JSON without the digest."""
    body = encode(replace(manifest, digest=""))
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return replace(manifest, digest=hashlib.sha256(canonical).hexdigest())


def dump_manifest(manifest: CheckpointManifest) -> bytes:
    """Bytes to store; seals the manifest first."""
    return json.dumps(encode(seal(manifest)), sort_keys=True).encode()


def load_manifest(content: bytes) -> CheckpointManifest:
    """Parse and verify a stored manifest; WireError when torn, altered or of another shape."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise WireError(f"manifest is not JSON: {error}") from None
    manifest = decode(CheckpointManifest, document)
    if seal(manifest).digest != manifest.digest:
        told = f"manifest of step {manifest.step:,}"
        raise WireError(f"{told}: its digest does not match its content")
    return manifest


def lineage_order(
    manifests: Iterable[tuple[int, int]],
    parents: Mapping[int, CheckpointRef | None],
    below_fence: int,
) -> Iterator[tuple[int, int]]:
    """Yield (fence, step) in the order to try them for a new attempt `below_fence`.

    Fence first, then step: the highest fence that has a manifest, its newest step first; when the
    reader rejects them all, that fence's recorded parent and the parent's earlier steps, and so
    on. Steps of an older fence beyond the recorded parent are never yielded, even if higher.
    `parents` maps a fence to its recorded parent; a fence without a record starts fresh.
    """
    steps_of: dict[int, list[int]] = {}
    for fence, step in manifests:
        if fence < below_fence:
            steps_of.setdefault(fence, []).append(step)
    if not steps_of:
        return
    fence = max(steps_of)
    limit: int | None = None
    seen: set[int] = set()
    while fence not in seen:
        seen.add(fence)
        for step in sorted(steps_of.get(fence, ()), reverse=True):
            if limit is None or step <= limit:
                yield fence, step
        parent = parents.get(fence)
        if parent is None:
            return
        fence, limit = parent.fence, parent.step
