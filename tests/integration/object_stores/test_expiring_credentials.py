"""Credentials that end or do not count yet while an agent uses them; on both clouds.

Not here: what a credential allows (`test_storage_rights`), or how it comes to a machine
(`test_storage_grants`).
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.object_stores.deciding_store import PLACES, DecidingStore, access_of, opened
from tests.support.object_stores.scoped_gcs import ScopedGcs
from tests.support.object_stores.scoped_s3 import ScopedS3
from trainer.agent.checkpoints.checkpoint_sync import chunk_hashes, upload_file
from trainer.agent.checkpoints.part_upload import put_shard
from trainer.agent.checkpoints.storage_credentials import StorageAccess
from trainer.agent.checkpoints.storage_root import (
    AccessDenied,
    StoreDenied,
    StoreUnavailable,
)
from trainer.protocol.storage_access import StorageGrant

MIB = 1 << 20


def renewed_when_refused(cloud: DecidingStore, access: StorageAccess) -> None:
    """As a control plane does: a credential that the store refused is replaced."""

    def renew() -> None:
        if any(one.refused for one in access.held() or ()):
            next_one = StorageGrant(cloud.scheme, "s.next", 3_600.0, cloud.given("A"))
            access.take([next_one], access._now())

    access.notify_by(renew)


def valid_from(cloud: DecidingStore, instant: float) -> None:
    """Limited credentials count from then on, of time.monotonic."""
    if isinstance(cloud.fake, ScopedGcs):
        cloud.fake.since = instant
        return
    for session in cloud.fake.sessions.values():
        if session.narrowed is not None:
            session.since = instant


def test_an_upload_goes_on_with_the_next_credential(cloud: DecidingStore) -> None:
    """Its token ends between two parts: the next part is sent with the next one."""
    access = access_of(cloud)
    lineage = opened(cloud, PLACES["A's checkpoints"], access)
    renewed: list[dict[str, str]] = []

    def renew() -> None:
        if not renewed:
            renewed.append(cloud.given("A"))
            access.take([StorageGrant(cloud.scheme, "s.next", 3_600.0, renewed[0])], access._now())

    access.notify_by(renew)

    def pieces() -> Iterator[bytes]:
        for number in range(96):
            if number == 60:
                # Its time is over by our own clock, too: 5 s are less than a request needs.
                held, _ = access._held[cloud.scheme]
                access._held[cloud.scheme] = (held, access._now() + 5.0)
            yield b"x" * (1 << 20)

    put_shard(lineage, "data/1/shard", pieces(), 96 << 20)
    assert renewed
    assert sum(map(len, lineage.stream("data/1/shard"))) == 96 << 20


def test_an_upload_whose_token_the_store_ends_is_made_anew(cloud: DecidingStore) -> None:
    """By the store's clock alone it is over: the parts that were read are gone, the file is not."""
    access = access_of(cloud)
    lineage = opened(cloud, PLACES["A's checkpoints"], access)

    renewed_when_refused(cloud, access)

    def pieces(ends_at: int | None = None) -> Iterator[bytes]:
        for number in range(96):
            if number == ends_at:
                cloud.fake.expire()
            yield b"x" * (1 << 20)

    with pytest.raises(AccessDenied):
        put_shard(lineage, "data/1/shard", pieces(ends_at=60), 96 << 20)
    assert lineage.list_keys("data") == []  # no half of it is there
    put_shard(lineage, "data/1/shard", pieces(), 96 << 20)
    assert sum(map(len, lineage.stream("data/1/shard"))) == 96 << 20


@pytest.mark.parametrize("cloud", ["s3"], indirect=True)
def test_a_wrong_clock_is_named_and_no_credential_is_blamed(cloud: DecidingStore) -> None:
    """Requests to Google are not signed with a time, so that only S3 can say so."""
    assert isinstance(cloud.fake, ScopedS3)
    rings: list[None] = []
    access = access_of(cloud)
    access.notify_by(lambda: rings.append(None))
    cloud.fake.ahead_seconds = 1_000.0
    with pytest.raises(StoreUnavailable, match="the clock of this machine is wrong") as error:
        opened(cloud, PLACES["A's checkpoints"], access).put_new("fences/1.json", b"{}")
    assert not isinstance(error.value, StoreDenied | AccessDenied)
    assert rings == []


@pytest.mark.parametrize("when", ["expired before its time", "not valid yet"])
def test_a_credential_that_the_store_refuses_is_waited_out(cloud: DecidingStore, when: str) -> None:
    """Clocks differ: the request is repeated with the next credential."""
    early = when == "not valid yet"
    access = access_of(cloud, "A" if early else "expired")
    if early:
        valid_from(cloud, math.inf)
    asked = []

    def renew() -> None:
        [held] = access.held() or ()
        if held.refused:
            asked.append(held.grant)
            valid_from(cloud, 0.0)
            next_one = StorageGrant(cloud.scheme, f"s.{len(asked)}", 3_600.0, cloud.given("A"))
            access.take([next_one], access._now())

    access.notify_by(renew)
    lineage = opened(cloud, PLACES["A's checkpoints"], access)
    lineage.put_new("fences/0000000001.json", b"{}")
    assert lineage.get("fences/0000000001.json") == b"{}"
    assert asked


def test_a_credential_that_is_never_accepted_ends_with_a_word(
    cloud: DecidingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.agent.checkpoints.storage_credentials.WAIT_SECONDS", 0.2)
    lineage = opened(cloud, PLACES["A's checkpoints"], access_of(cloud, "expired"))
    with pytest.raises(StoreUnavailable) as error:
        lineage.put_new("fences/0000000001.json", b"{}")
    assert not isinstance(error.value, StoreDenied)
    assert "no credentials" in str(error.value) or isinstance(error.value, AccessDenied)


@pytest.mark.parametrize("mebibytes", [20, 96], ids=["in one request", "in parts"])
def test_a_file_whose_token_ends_within_its_upload_is_sent_whole_again(
    cloud: DecidingStore, tmp_path: Path, mebibytes: int
) -> None:
    """What the manifest will say of it is of the second try alone."""
    access = access_of(cloud)
    renewed_when_refused(cloud, access)
    lineage = opened(cloud, PLACES["A's checkpoints"], access)
    path = tmp_path / "weights.pt"
    path.write_bytes(b"".join(bytes([number]) * MIB for number in range(mebibytes)))
    read = 0

    def expires_once() -> bool:
        nonlocal read
        read += 1
        if read == 3:
            cloud.fake.expire()
        return False

    entry = upload_file(lineage, "data/1/weights.pt", path, "weights.pt", expires_once)
    assert read > 3, "it was read again"
    stored = chunk_hashes(lineage.stream("data/1/weights.pt"), entry.chunk_bytes)
    assert (entry.size_bytes, entry.chunk_sha256) == stored
    assert entry.size_bytes == mebibytes * MIB


def test_an_output_whose_token_ends_within_its_upload_is_worth_another_try(
    cloud: DecidingStore,
) -> None:
    """A refusal for good ends the outputs; this one is repeated with the next credential."""
    access = access_of(cloud)
    renewed_when_refused(cloud, access)
    outputs = opened(cloud, PLACES["A's outputs"], access)

    class Expiring(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() == 10 * MIB:
                cloud.fake.expire()
            return super().read(size)

    content = bytes(24 * MIB)
    with pytest.raises(StoreUnavailable) as error:
        outputs.put_file("model", Expiring(content), 5 * MIB)
    assert not isinstance(error.value, StoreDenied)
    outputs.put_file("model", io.BytesIO(content), 5 * MIB)
    control = opened(cloud, PLACES["A's outputs"], access_of(cloud, "control plane"))
    found = b"".join(control.stream("model"))
    assert hashlib.sha256(found).digest() == hashlib.sha256(content).digest()
