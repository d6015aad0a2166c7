"""Shards of a checkpoint in parts, on S3 and Google Cloud Storage as obstore talks to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from app.adapters.object_stores.store_address import open_client, parse_address
from tests.support.object_stores.object_store_fakes import GcsFake, S3Fake
from trainer.agent.checkpoints import part_upload
from trainer.agent.checkpoints.checkpoint_sync import (
    CHUNK_BYTES,
    PublishOrder,
    chunk_hashes,
    publish,
)
from trainer.agent.checkpoints.part_upload import (
    PART_BYTES_MIN,
    PARTS_MAX,
    part_bytes,
    put_in_parts,
)
from trainer.agent.checkpoints.storage_root import KeyExists, StorageRoot
from trainer.protocol.checkpoint_manifest import data_key, manifest_key

CHUNK = bytes(range(256)) * 4_096  # 1 MiB
CHUNKS = 40
SIZE = len(CHUNK) * CHUNKS


class Torn(Exception):
    """The file being uploaded could not be read on."""


@pytest.fixture(params=["s3", "gs"])
def fake(request: pytest.FixtureRequest) -> Iterator[S3Fake | GcsFake]:
    made: S3Fake | GcsFake = S3Fake() if request.param == "s3" else GcsFake()
    yield made
    made.close()


def _pieces(broken_after: int = CHUNKS + 1) -> Iterator[bytes]:
    for number in range(CHUNKS):
        if number == broken_after:
            raise Torn
        yield CHUNK


def test_a_large_object_goes_up_in_parts_and_comes_back_whole(fake: S3Fake | GcsFake):
    store = open_client(parse_address(fake.uri), fake.options)
    put_in_parts(obstore, store, "shard", _pieces(), SIZE)
    assert fake.steering.parts == -(-SIZE // PART_BYTES_MIN)
    hashed = hashlib.sha256()
    for piece in obstore.get(store, "shard").stream():
        hashed.update(bytes(piece))
    assert hashed.digest() == hashlib.sha256(CHUNK * CHUNKS).digest()
    with pytest.raises(KeyExists):
        put_in_parts(obstore, store, "shard", _pieces(), SIZE)


def test_a_stream_that_breaks_leaves_no_object(fake: S3Fake | GcsFake):
    store = open_client(parse_address(fake.uri), fake.options)
    with pytest.raises(Torn):
        put_in_parts(obstore, store, "shard", _pieces(broken_after=30), SIZE)
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "shard")
    put_in_parts(obstore, store, "shard", _pieces(), SIZE)
    assert obstore.head(store, "shard")["size"] == SIZE


def test_a_connection_that_breaks_leaves_no_object(fake: S3Fake | GcsFake):
    store = open_client(parse_address(fake.uri), fake.options, retries=0)
    fake.steering.tear_after = 1
    with pytest.raises(obstore.exceptions.BaseError):
        put_in_parts(obstore, store, "shard", _pieces(), SIZE)
    fake.steering.tear_after = None
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "shard")


def test_a_part_that_fails_once_is_sent_again(fake: S3Fake | GcsFake):
    store = open_client(parse_address(fake.uri), fake.options)
    fake.steering.lost_answers = 2
    put_in_parts(obstore, store, "shard", _pieces(), SIZE)
    assert obstore.head(store, "shard")["size"] == SIZE


def test_a_large_shard_of_a_checkpoint_goes_up_in_parts(
    fake: S3Fake | GcsFake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for name, value in fake.environment().items():
        if not name.endswith("_ALLOW_HTTP"):  # the server's address says so
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(part_upload, "LARGE_BYTES", PART_BYTES_MIN)
    (tmp_path / "weights.pt").write_bytes(CHUNK * CHUNKS)
    store, order = StorageRoot(fake.uri), PublishOrder(fence=1, step=10, folder=tmp_path)
    manifest = publish(store, order, lambda: True, lambda: False)
    (entry,) = manifest.files
    assert fake.steering.parts == -(-SIZE // PART_BYTES_MIN) + 1  # and the manifest
    stored = chunk_hashes(store.stream(data_key(1, 10, entry.name)), CHUNK_BYTES)
    assert stored == (SIZE, entry.chunk_sha256)
    # The manifest alone is create-only: the same order again adds nothing.
    assert publish(store, order, lambda: True, lambda: False).digest == manifest.digest
    with pytest.raises(KeyExists):
        store.put_new(manifest_key(1, 10), b"another")


@pytest.mark.parametrize("size", [0, 1, PART_BYTES_MIN, 10**9, 5 * 10**12])
def test_parts_are_never_too_many(size: int):
    assert part_bytes(size) >= PART_BYTES_MIN
    assert size / part_bytes(size) <= PARTS_MAX
