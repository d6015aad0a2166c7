"""The object store port on a real folder, S3 and Google Cloud Storage: one behaviour."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.adapters.object_stores.obstore_store import (
    ObstoreStore,
    kept_stores,
    open_object_store,
)
from app.adapters.object_stores.store_address import parse_address
from app.ports.object_store import (
    ObjectExists,
    ObjectMissing,
    ObjectStoreDenied,
    ObjectStoreError,
    StoreMissing,
)
from tests.support.agent.fake_metadata import FakeMetadata
from tests.support.object_stores.object_store_fakes import GcsFake, S3Fake

Fake = S3Fake | GcsFake

CREDENTIALS = {
    "Code": "Success",
    "AccessKeyId": "test",
    "SecretAccessKey": "test",
    "Token": "test",
    "LastUpdated": "2031-01-01T00:00:00Z",
    "Expiration": "2099-01-01T00:00:00Z",
}
"""What a machine's metadata tell of its role."""


@pytest.fixture(params=["s3", "gs"])
def fake(request: pytest.FixtureRequest) -> Iterator[Fake]:
    made: Fake = S3Fake() if request.param == "s3" else GcsFake()
    yield made
    made.close()


@pytest.fixture(params=["file", "s3", "gs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObstoreStore]:
    """A store that is not there yet; a folder with a name that needs quoting in a URI."""
    if request.param == "file":
        yield open_object_store((tmp_path / "a store" / "é").as_uri())
        return
    made: Fake = S3Fake() if request.param == "s3" else GcsFake()
    yield open_object_store(made.uri, made.options)
    made.close()


def test_what_was_put_is_read_back(store: ObstoreStore):
    store.put_new("jobs/1/log", b"0123456789")
    assert store.get("jobs/1/log") == b"0123456789"


def test_a_key_is_created_once(store: ObstoreStore):
    store.put_new("fences/1.json", b"first")
    with pytest.raises(ObjectExists, match=r"fences/1\.json.*already"):
        store.put_new("fences/1.json", b"second")
    assert store.get("fences/1.json") == b"first"
    with pytest.raises(ObjectExists):
        store.put_new("fences/1.json", b"first")


def test_of_many_writers_one_wins(store: ObstoreStore):
    won, lost = [], []

    def write(number: int) -> None:
        try:
            store.put_new("fence", str(number).encode())
            won.append(number)
        except ObjectExists:
            lost.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(lost) == 7
    assert store.get("fence") == str(won[0]).encode()


def test_large_objects_are_read_back_whole_and_in_part(store: ObstoreStore):
    content = bytes(range(256)) * 4_096 * 20
    store.put_new("large", content)
    assert store.get("large") == content
    assert store.get_range("large", 10_000_000, 300) == content[10_000_000:10_000_300]


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 4, b"0123"), (8, 4, b"89"), (10, 4, b""), (2**63 - 1, 4, b""), (3, 0, b"")],
)
def test_a_range_ends_with_the_object(
    store: ObstoreStore, start: int, length: int, expected: bytes
):
    store.put_new("log", b"0123456789")
    assert store.get_range("log", start, length) == expected
    store.put_new("empty", b"")
    assert store.get_range("empty", start, length) == b""


def test_a_piece_is_one_request(fake: Fake):
    store = open_object_store(fake.uri, fake.options)
    store.put_new("key", b"0123456789")
    fake.steering.requests.clear()
    assert [store.get_range("key", start, 4) for start in (0, 4, 8)] == [b"0123", b"4567", b"89"]
    assert fake.steering.requests == ["GET"] * 3


def test_a_range_of_nothing_is_missing_and_of_nonsense_an_error(store: ObstoreStore):
    for length in (0, 1):
        with pytest.raises(ObjectMissing, match="no such object"):
            store.get_range("absent", 0, length)
    with pytest.raises(ValueError, match="from -1"):
        store.get_range("absent", -1, 1)


def test_lists_are_sorted_and_stay_in_their_folder(store: ObstoreStore):
    for key in ("b/2", "b/10", "b/1", "bb/1", "a"):
        store.put_new(key, b"x")
    assert list(store.list_keys("b")) == list(store.list_keys("b/")) == ["b/1", "b/10", "b/2"]
    assert list(store.list_keys("")) == ["a", "b/1", "b/10", "b/2", "bb/1"]
    assert list(store.list_keys("nowhere")) == []


def test_deleting_twice_is_deleting(store: ObstoreStore):
    store.put_new("key", b"x")
    store.delete("key")
    store.delete("key")
    with pytest.raises(ObjectMissing, match="no such object"):
        store.get("key")
    store.put_new("key", b"again")


@pytest.mark.parametrize("key", ["../outside", "a//b", ""])
def test_a_key_that_is_no_key_is_refused(key: str, tmp_path: Path):
    store = open_object_store((tmp_path / "store").as_uri())
    with pytest.raises(ObjectStoreError) as refused:
        store.put_new(key, b"x")
    assert "\n" not in str(refused.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_holds_files_of_their_keys_names(tmp_path: Path):
    open_object_store((tmp_path / "a b").as_uri()).put_new("jobs/1/log", b"x")
    assert (tmp_path / "a b" / "jobs" / "1" / "log").read_bytes() == b"x"


def test_a_root_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    store = open_object_store((tmp_path / "file" / "store").as_uri())
    with pytest.raises(ObjectStoreError, match=r"/file/store cannot be opened"):
        store.get("key")


@pytest.mark.parametrize(
    "uri",
    [
        "file://elsewhere/folder", "file:relative", "ftp://host/folder", "s3://", "s3:///key",
        "s3://UPPER/x", "gs://bucket?x=1", "s3://user@bucket/x", "",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_used_says_so(uri: str):
    with pytest.raises(ObjectStoreError) as refused:
        open_object_store(uri)
    assert "not the address of a store; use s3://bucket/path" in str(refused.value)
    assert str(refused.value).startswith(uri)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_an_address_names_bucket_and_prefix(scheme: str):
    address = parse_address(f"{scheme}://acme-eu.data/some/prefix/")
    assert (address.bucket, address.path) == ("acme-eu.data", "some/prefix")
    assert parse_address(f"{scheme}://acme").path == ""


def test_denied_is_told_apart_for_every_operation(fake: Fake):
    store = open_object_store(fake.uri, fake.options)
    store.put_new("key", b"x")
    fake.steering.denied = True
    attempts: list[Any] = [
        lambda: store.get("key"),
        lambda: store.put_new("other", b"x"),
        lambda: list(store.list_keys("k")),
        lambda: store.delete("key"),
        lambda: store.get_range("key", 0, 1),
    ]
    for attempt in attempts:
        with pytest.raises(ObjectStoreDenied) as refused:
            attempt()
        assert f"bucket {fake.bucket} is denied; allow" in str(refused.value)
        assert "\n" not in str(refused.value)
    fake.steering.denied = False
    assert store.get("key") == b"x"


def test_a_bucket_that_does_not_exist_is_not_a_missing_object(fake: Fake):
    store = open_object_store(fake.uri.replace(fake.bucket, "no-such-bucket"), fake.options)
    attempts: list[Any] = [
        lambda: store.get("key"),
        lambda: store.put_new("key", b"x"),
        lambda: list(store.list_keys("")),
    ]
    for attempt in attempts:
        with pytest.raises(StoreMissing, match="bucket no-such-bucket does not exist; make it"):
            attempt()


def test_a_torn_write_leaves_nothing_and_is_an_error(fake: Fake):
    store = open_object_store(fake.uri, fake.options)
    fake.steering.tear_after = 0
    with pytest.raises(ObjectStoreError, match="error sending request"):
        store.put_new("key", b"x" * 100_000)
    assert fake.steering.parts == 3
    fake.steering.tear_after = None
    with pytest.raises(ObjectMissing):
        store.get("key")
    store.put_new("key", b"whole")
    assert store.get("key") == b"whole"


def test_a_lost_answer_is_no_foreign_object(fake: Fake):
    """The write was done, its answer lost: what is there is ours."""
    store = open_object_store(fake.uri, fake.options)
    fake.steering.lost_answers = 1
    store.put_new("key", b"ours")
    assert store.get("key") == b"ours"
    with pytest.raises(ObjectExists):
        store.put_new("key", b"ours")


def test_a_torn_write_is_repeated(fake: Fake):
    store = open_object_store(fake.uri, fake.options)
    fake.steering.tears = 1
    store.put_new("key", b"second try")
    assert store.get("key") == b"second try"


def test_s3_is_given_a_checksum_of_what_is_written():
    fake = S3Fake()
    try:
        open_object_store(fake.uri, fake.options).put_new("key", b"x")
        assert any("x-amz-checksum-sha256" in headers for headers in fake.headers_seen)
        assert any(headers.get("if-none-match") == "*" for headers in fake.headers_seen)
    finally:
        fake.close()


def test_the_environment_is_enough(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    """As programs have it: no options, only variables."""
    for name, value in fake.environment().items():
        monkeypatch.setenv(name, value)
    store = open_object_store(fake.uri)
    store.put_new("key", b"x")
    assert list(store.list_keys("")) == ["key"]


def test_a_store_asked_for_again_does_not_ask_for_credentials_again(
    monkeypatch: pytest.MonkeyPatch,
):
    fake, metadata = S3Fake(), FakeMetadata()
    try:
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", metadata.url)
        metadata.arm("iam/security-credentials/", "of-the-machine")
        metadata.arm("iam/security-credentials/of-the-machine", CREDENTIALS)
        open_object_store(fake.uri, fake.options).put_new("key", b"0123456789")
        stores = kept_stores(most=2)
        read = [stores(fake.uri).get_range("key", 0, 1)]
        asked = len(metadata.calls)
        assert asked > 0
        read += [stores(fake.uri).get_range("key", start, 1) for start in range(1, 10)]
        assert b"".join(read) == b"0123456789"
        assert len(metadata.calls) == asked
        # Only so many are kept.
        for other in ("a", "b"):
            stores(f"{fake.uri}/{other}")
        assert stores(fake.uri).get("key") == b"0123456789"
        assert len(metadata.calls) > asked
    finally:
        fake.close()
        metadata.stop()
