"""Manifests survive storing and reading, and no altered one is taken for whole.

The same for the bytes they describe: whatever sizes the pieces come in, the hashes agree.
"""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from trainer.agent.checkpoints.checkpoint_sync import chunk_hashes
from trainer.protocol.checkpoint_manifest import (
    CheckpointManifest,
    CheckpointRef,
    FileEntry,
    dump_manifest,
    lineage_order,
    load_manifest,
    manifest_key,
    parse_manifest_key,
    seal,
)
from trainer.protocol.wire import WireError

fences = some.integers(1, 9_999_999_999)
steps = some.integers(0, 999_999_999_999)
finite = some.floats(allow_nan=False, allow_infinity=False)
hexes = some.text("0123456789abcdef", min_size=64, max_size=64)
texts = some.text(some.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=9)
refs = some.builds(CheckpointRef, fences, steps, hexes)
files = some.builds(
    FileEntry,
    name=texts,
    size_bytes=some.integers(0, 10**15),
    chunk_bytes=some.integers(1, 10**9),
    chunk_sha256=some.lists(hexes, max_size=3).map(tuple),
)
manifests = some.builds(
    CheckpointManifest,
    fence=fences,
    step=steps,
    parent=some.none() | refs,
    world_size=some.integers(1, 4_096),
    final=some.booleans(),
    files=some.lists(files, max_size=3).map(tuple),
    metrics=some.dictionaries(texts, finite, max_size=3),
)


@given(manifests)
def test_what_is_stored_is_what_is_read(manifest: CheckpointManifest) -> None:
    read = load_manifest(dump_manifest(manifest))
    assert read == seal(manifest)
    assert dump_manifest(read) == dump_manifest(manifest)


@given(manifests, steps)
def test_an_altered_manifest_is_refused(manifest: CheckpointManifest, step: int) -> None:
    document = json.loads(dump_manifest(manifest))
    if step == document["step"]:
        step += 1
    document["step"] = step
    with pytest.raises(WireError):
        load_manifest(json.dumps(document).encode())


@given(manifests, some.data())
def test_a_torn_manifest_is_refused(manifest: CheckpointManifest, data: some.DataObject) -> None:
    content = dump_manifest(manifest)
    with pytest.raises(WireError):
        load_manifest(content[: data.draw(some.integers(0, len(content) - 1))])


@given(fences, steps)
def test_keys_sort_as_fences_and_steps_do(fence: int, step: int) -> None:
    assert parse_manifest_key(manifest_key(fence, step)) == (fence, step)
    assert manifest_key(fence, step) < manifest_key(fence, step + 1) or step == 999_999_999_999


@given(some.lists(some.binary(max_size=40), max_size=8), some.integers(1, 16))
def test_hashes_do_not_depend_on_the_pieces(pieces: list[bytes], chunk_bytes: int) -> None:
    whole = b"".join(pieces)
    assert chunk_hashes(iter(pieces), chunk_bytes) == chunk_hashes(iter([whole]), chunk_bytes)
    assert chunk_hashes(iter(pieces), chunk_bytes)[0] == len(whole)


@given(
    some.lists(some.tuples(some.integers(1, 8), some.integers(0, 9)), max_size=20),
    some.dictionaries(
        some.integers(1, 8),
        some.none() | some.builds(CheckpointRef, some.integers(1, 8), some.integers(0, 9), hexes),
    ),
    some.integers(1, 9),
)
def test_the_lineage_only_ever_offers_what_counts(
    found: list[tuple[int, int]], parents: dict[int, CheckpointRef | None], below: int
) -> None:
    offered = list(lineage_order(found, parents, below))
    assert set(offered) <= {(fence, step) for fence, step in found}
    if offered:
        highest = max(fence for fence, _ in found if fence < below)
        assert offered[0] == (highest, max(step for fence, step in found if fence == highest))
    for (fence, _), (next_fence, next_step) in itertools.pairwise(offered):
        parent = parents.get(fence)
        if next_fence != fence and parent is not None and next_fence == parent.fence:
            assert next_step <= parent.step
