"""The object store port on a real folder: create-only, ranges, lists, and clear errors."""

import threading
from pathlib import Path

import pytest

from app.adapters.object_stores.obstore_store import ObstoreStore, open_object_store
from app.ports.object_store import ObjectExists, ObjectMissing, ObjectStoreError


@pytest.fixture
def store(tmp_path: Path) -> ObstoreStore:
    """A store whose folder does not exist yet, with a name that needs quoting in a URI."""
    return open_object_store((tmp_path / "a store" / "é").as_uri())


def test_what_was_put_is_read_back(store: ObstoreStore, tmp_path: Path):
    store.put_new("jobs/1/log", b"0123456789")
    assert store.get("jobs/1/log") == b"0123456789"
    assert (tmp_path / "a store" / "é" / "jobs" / "1" / "log").read_bytes() == b"0123456789"


def test_a_key_is_created_once(store: ObstoreStore):
    store.put_new("fences/1.json", b"first")
    with pytest.raises(ObjectExists, match=r"fences/1\.json.*already"):
        store.put_new("fences/1.json", b"second")
    assert store.get("fences/1.json") == b"first"


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


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 4, b"0123"), (8, 4, b"89"), (10, 4, b""), (40, 4, b""), (3, 0, b"")],
)
def test_a_range_ends_with_the_object(
    store: ObstoreStore, start: int, length: int, expected: bytes
):
    store.put_new("log", b"0123456789")
    assert store.get_range("log", start, length) == expected


def test_a_range_of_nothing_is_missing_and_of_nonsense_an_error(store: ObstoreStore):
    with pytest.raises(ObjectMissing):
        store.get_range("absent", 0, 1)
    with pytest.raises(ValueError, match="from -1"):
        store.get_range("absent", -1, 1)


def test_lists_are_sorted_and_stay_in_their_folder(store: ObstoreStore):
    for key in ("b/2", "b/10", "b/1", "bb/1", "a"):
        store.put_new(key, b"")
    assert list(store.list_keys("b")) == list(store.list_keys("b/")) == ["b/1", "b/10", "b/2"]
    assert list(store.list_keys("")) == ["a", "b/1", "b/10", "b/2", "bb/1"]
    assert list(store.list_keys("nowhere")) == []


def test_deleting_twice_is_deleting(store: ObstoreStore):
    store.put_new("key", b"x")
    store.delete("key")
    store.delete("key")
    with pytest.raises(ObjectMissing, match="no such object"):
        store.get("key")


@pytest.mark.parametrize("key", ["../outside", "a//b", ""])
def test_a_key_that_is_no_key_is_refused(store: ObstoreStore, key: str, tmp_path: Path):
    with pytest.raises(ObjectStoreError) as refused:
        store.put_new(key, b"x")
    assert "\n" not in str(refused.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_root_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    store = open_object_store((tmp_path / "file" / "store").as_uri())
    with pytest.raises(ObjectStoreError, match=r"/file/store cannot be opened"):
        store.get("key")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://bucket/prefix", "stores in S3 are not available yet; use a file:// folder"),
        ("gs://bucket", "stores in Google Cloud Storage are not available yet"),
        ("file://elsewhere/folder", "not the address of a store"),
        ("file:relative", "not the address of a store"),
        ("ftp://host/folder", "not the address of a store"),
    ],
)
def test_an_address_that_cannot_be_used_says_so(uri: str, said: str):
    with pytest.raises(ObjectStoreError) as refused:
        open_object_store(uri)
    assert said in str(refused.value)
    assert str(refused.value).startswith(uri)
