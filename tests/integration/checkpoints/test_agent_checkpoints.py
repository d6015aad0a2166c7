"""Publishing and restoring on a real folder store: order, fences, damage, repetition."""

from __future__ import annotations

import json
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainer.agent.checkpoints.checkpoint_restore import (
    CheckpointCorrupt,
    RestoreFailed,
    Restorer,
    ResumePoint,
)
from trainer.agent.checkpoints.checkpoint_sync import (
    Abandoned,
    CommitForbidden,
    CutOff,
    PublishOrder,
    publish,
)
from trainer.agent.checkpoints.outbox import Outbox, read_folder_facts
from trainer.agent.checkpoints.publisher import Publisher
from trainer.agent.checkpoints.storage_root import (
    KeyExists,
    NoSuchKey,
    StorageRoot,
    StoreUnavailable,
)
from trainer.agent.rules.actions import PublishCheckpoint
from trainer.agent.rules.observations import CheckpointPublished, Observation
from trainer.protocol.checkpoint_manifest import (
    CheckpointManifest,
    CheckpointRef,
    FenceRecord,
    dump_manifest,
    fence_key,
)
from trainer.protocol.wire import encode

BIG = bytes(range(256)) * (90_000)  # three chunks


class Place:
    """A store and this machine's folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.remote = root / "a store"
        self.store = StorageRoot(self.remote.as_uri())
        self.said: list[str] = []

    def save(self, step: int, content: bytes = b"weights", **extra: bytes) -> Path:
        folder = self.root / f"local/step-{step:012d}"
        (folder / "sub dir").mkdir(parents=True, exist_ok=True)
        (folder / "weights.pt").write_bytes(content)
        (folder / "sub dir" / "empty.bin").write_bytes(b"")
        for name, more in extra.items():
            (folder / name).write_bytes(more)
        return folder

    def publish(
        self,
        fence: int,
        step: int,
        content: bytes = b"weights",
        parent: CheckpointRef | None = None,
        final: bool = False,
        may_commit: Callable[[], bool] = lambda: True,
    ) -> CheckpointManifest:
        order = PublishOrder(fence, step, self.save(step, content), parent, final, 1, {"loss": 0.5})
        return publish(self.store, order, may_commit, lambda: False)

    def record(self, fence: int, parent: CheckpointRef | None) -> None:
        document = encode(FenceRecord(fence, parent, "instance"))
        self.store.put_new(fence_key(fence), json.dumps(document).encode())

    def restore(self, fence: int, rank: int = 0, wait: float = 1.0) -> ResumePoint:
        target = self.root / f"resume-{fence}-{rank}"
        restorer = Restorer(
            self.store, fence, "instance", target, lambda: False, self.said.append, wait
        )
        return restorer.restore(rank)

    def damage(self, pattern: str) -> None:
        (path,) = self.remote.glob(pattern)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_store_creates_once_and_says_what_is_missing(place: Place) -> None:
    place.store.put_new("a/b", b"1")
    with pytest.raises(KeyExists):
        place.store.put_new("a/b", b"2")
    assert place.store.get("a/b") == b"1"
    with pytest.raises(NoSuchKey):
        place.store.get("a/c")
    with pytest.raises(NoSuchKey):
        list(place.store.stream("a/c"))
    assert place.store.list_keys("nothing") == []
    place.remote.joinpath("blocked").write_text("a file where a folder should be")
    with pytest.raises(StoreUnavailable, match="blocked/x"):
        place.store.put_new("blocked/x", b"1")


def test_what_was_published_comes_back_byte_for_byte(place: Place) -> None:
    first = place.restore(1)
    assert first == ResumePoint()
    manifest = place.publish(1, 10, BIG)
    assert manifest.size_bytes == len(BIG)
    assert manifest.metrics == {"loss": 0.5}
    restored = place.restore(2)
    assert (restored.parent, restored.size_bytes) == (manifest.ref, len(BIG))
    assert restored.folder is not None
    assert (restored.folder / "weights.pt").read_bytes() == BIG
    assert (restored.folder / "sub dir" / "empty.bin").read_bytes() == b""


def test_the_same_order_again_is_the_same_checkpoint(place: Place) -> None:
    assert place.publish(1, 10) == place.publish(1, 10)
    # A second save of the same step: committed once, the first one counts.
    assert place.publish(1, 10, b"other bytes") == place.publish(1, 10)


def test_a_final_checkpoint_is_not_lost_to_an_earlier_save_of_its_step(place: Place) -> None:
    place.publish(1, 10)
    final = place.publish(1, 10, b"final", final=True)
    assert (final.step, final.final) == (11, True)
    assert place.publish(1, 10, b"final", final=True) == final


def test_a_step_whose_manifest_cannot_be_read_is_left_and_the_next_one_taken(place: Place) -> None:
    place.store.put_new("manifests/0000000001/000000000010.json", b"torn")
    final = place.publish(1, 10, final=True)
    assert (final.step, final.final) == (11, True)


def test_data_left_by_a_crash_is_taken_over_only_if_equal(place: Place) -> None:
    place.store.put_new("data/0000000001/000000000010/weights.pt", b"weights")
    assert place.publish(1, 10).step == 10
    place.store.put_new("data/0000000001/000000000020/weights.pt", b"torn")
    assert place.publish(1, 20).step == 21


def test_a_cut_off_machine_commits_nothing(place: Place) -> None:
    place.publish(1, 10)
    place.record(2, None)
    with pytest.raises(CutOff) as caught:
        place.publish(1, 20)
    assert caught.value.by_fence == 2
    assert place.store.list_keys("manifests") == ["manifests/0000000001/000000000010.json"]


def test_without_a_lease_nothing_is_committed(place: Place) -> None:
    with pytest.raises(CommitForbidden):
        place.publish(1, 10, may_commit=lambda: False)
    assert place.store.list_keys("manifests") == []


def test_an_abandoned_upload_leaves_no_manifest(place: Place) -> None:
    with pytest.raises(Abandoned):
        publish(place.store, PublishOrder(1, 10, place.save(10, BIG)), lambda: True, lambda: True)
    assert place.store.list_keys("manifests") == []


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(place: Place) -> None:
    good = place.publish(1, 10)
    place.publish(1, 20, BIG)
    place.damage("data/0000000001/000000000020/weights.pt")
    assert place.restore(2).parent == good.ref
    assert any("damaged in chunk 1" in sentence for sentence in place.said)


def test_damage_and_loss_of_every_kind_is_seen(place: Place) -> None:
    good = place.publish(1, 10)
    place.publish(1, 20)
    place.publish(1, 30)
    place.publish(1, 40)
    place.damage("manifests/0000000001/000000000040.json")
    (place.remote / "data/0000000001/000000000030/weights.pt").unlink()
    path = place.remote / "data/0000000001/000000000020/weights.pt"
    path.write_bytes(path.read_bytes() + b"x")
    assert place.restore(2).parent == good.ref
    assert len(place.said) == 3


def test_a_name_that_leads_out_of_the_folder_is_refused(place: Place) -> None:
    manifest = place.publish(1, 10)
    path = place.remote / "manifests/0000000001/000000000010.json"
    evil = [replace(entry, name="../evil") for entry in manifest.files]
    path.write_bytes(dump_manifest(replace(manifest, files=tuple(evil))))
    assert place.restore(2).parent is None
    assert "not a name inside the checkpoint" in place.said[0]
    assert not list(place.root.rglob("evil"))


def test_the_parent_is_recorded_and_a_second_look_takes_the_recorded_one(place: Place) -> None:
    first = place.publish(1, 10)
    assert place.restore(2).parent == first.ref
    late = place.root / "late"
    # A straggler of attempt 1 that had passed its check before attempt 2 was recorded.
    straggler = Place(late)
    straggler.publish(1, 50)
    for source in (late / "a store").rglob("*"):
        if source.is_file():
            target = place.remote / source.relative_to(late / "a store")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    assert place.restore(2).parent == first.ref
    place.publish(2, 12, parent=first.ref)
    again = place.restore(3)
    assert again.parent is not None
    assert again.parent.fence == 2


def test_a_later_attempt_ends_the_restore_of_an_earlier_one(place: Place) -> None:
    place.record(3, None)
    with pytest.raises(CutOff):
        place.restore(2)


class Meanwhile(StorageRoot):
    """The store, in which something else happens right before one of our calls, once."""

    def __init__(self, uri: str, call: str, key_start: str, happens: Callable[[], object]) -> None:
        super().__init__(uri)
        self._before = (call, key_start)
        self._happens: Callable[[], object] | None = happens

    def put_new(self, key: str, content: bytes | Iterator[bytes]) -> None:
        self._meanwhile("put_new", key)
        super().put_new(key, content)

    def stream(self, key: str) -> Iterator[bytes]:
        self._meanwhile("stream", key)
        return super().stream(key)

    def _meanwhile(self, call: str, key: str) -> None:
        happens = self._happens
        if happens is not None and call == self._before[0] and key.startswith(self._before[1]):
            self._happens = None
            happens()


def test_what_is_committed_during_the_download_is_what_the_attempt_begins_with(
    place: Place,
) -> None:
    """The last attempt's rank 0 may still be uploading when the next one begins to restore."""
    place.publish(1, 10)
    uri = place.remote.as_uri()
    place.store = Meanwhile(uri, "stream", "data/0000000001/", lambda: place.publish(1, 20))
    restored = place.restore(2)
    assert restored.parent is not None
    assert (restored.parent.fence, restored.parent.step) == (1, 20)
    assert restored.folder is not None
    assert restored.folder.name == "step-000000000020"


@pytest.mark.parametrize("begins_here", [False, True])
def test_a_commit_that_a_later_attempt_has_left_aside_is_not_told_as_one(
    place: Place, begins_here: bool
) -> None:
    """The fence was written between our look at the fences and our manifest."""
    old = place.publish(1, 10)
    ref = CheckpointRef(1, 20, "whatever") if begins_here else old.ref
    uri = place.remote.as_uri()
    place.store = Meanwhile(uri, "put_new", "manifests/", lambda: place.record(2, ref))
    if begins_here:
        assert place.publish(1, 20).step == 20
        return
    with pytest.raises(CutOff) as caught:
        place.publish(1, 20)
    assert caught.value.by_fence == 2


def test_a_recorded_parent_that_is_damaged_is_an_error_not_another_choice(place: Place) -> None:
    place.publish(1, 10)
    second = place.publish(1, 20)
    place.record(2, second.ref)
    place.damage("data/0000000001/000000000020/weights.pt")
    with pytest.raises(CheckpointCorrupt):
        place.restore(2)


def test_other_ranks_wait_for_the_record_and_take_what_it_says(place: Place) -> None:
    old = place.publish(1, 10)
    place.publish(1, 20)
    threading.Timer(0.3, place.record, (2, old.ref)).start()
    restored = place.restore(2, rank=1, wait=10.0)
    assert restored.parent == old.ref
    assert restored.folder is not None
    assert restored.folder.name == "step-000000000010"
    with pytest.raises(RestoreFailed, match="rank 0"):
        place.restore(4, rank=1, wait=0.2)


def test_the_outbox_keeps_what_the_trainer_prunes(tmp_path: Path) -> None:
    source, kept = tmp_path / "checkpoints", tmp_path / "outbox"
    source.mkdir()
    kept.mkdir()
    outbox = Outbox(source, kept)
    half = source / "step-000000000005.tmp-7"
    half.mkdir()
    (half / "weights.pt").write_bytes(b"half")
    (source / "step-3").mkdir()
    assert outbox.scan() == []
    (half / "manifest.json").write_text(json.dumps({"final": True, "metrics": {"a": 1}}))
    half.rename(source / "step-000000000005")
    (found,) = outbox.scan()
    assert (found.step, found.final) == (5, True)
    assert outbox.scan() == []
    (source / "step-000000000005" / "weights.pt").unlink()
    taken = outbox.take(found.key)
    assert taken is not None
    assert (taken / "weights.pt").read_bytes() == b"half"
    again = source / "again"
    again.mkdir()
    (again / "weights.pt").write_bytes(b"new")
    (source / "step-000000000005").rename(source / "old")
    again.rename(source / "step-000000000005")
    (replaced,) = outbox.scan()
    assert replaced.step == 5
    assert replaced.key != found.key
    assert taken.is_dir()
    outbox.give_back(found.key, done=True)
    assert not taken.exists()
    assert outbox.take(found.key) is None


def test_of_files_that_are_not_the_trainers_no_checkpoint_is_made(tmp_path: Path) -> None:
    source, kept, owner = tmp_path / "checkpoints", tmp_path / "outbox", 60_578
    kept.mkdir()
    for number, uid in ((1, owner), (2, 0)):
        folder = source / f"step-{number}"
        folder.mkdir(parents=True)
        (folder / "weights.pt").write_bytes(b"x")
        os.chown(folder / "weights.pt", uid, uid)
    # As if the trainer had put a link to somebody else's folder in the place of its own.
    outbox = Outbox(source, kept, owner=owner)
    assert [found.step for found in outbox.scan()] == [1]
    assert [path.name[-6:] for path in kept.iterdir()] == ["step-1"]


def test_a_trainer_that_removes_its_folders_meanwhile_does_not_end_the_scan(
    tmp_path: Path,
) -> None:
    source, kept = tmp_path / "checkpoints", tmp_path / "outbox"
    source.mkdir()
    kept.mkdir()
    outbox, done = Outbox(source, kept), threading.Event()

    def save_and_prune() -> None:
        for number in range(400):
            folder = source / f"step-{number % 7}"
            folder.mkdir()
            (folder / "weights.pt").write_bytes(b"x")
            shutil.rmtree(folder)
        done.set()

    trainer = threading.Thread(target=save_and_prune)
    trainer.start()
    while not done.is_set():
        outbox.scan()
    trainer.join()
    last = source / "step-9"
    last.mkdir()
    zeros = "0" * 400
    (last / "manifest.json").write_text(f'{{"final": true, "metrics": {{"a": 1{zeros}, "b": 2}}}}')
    (found,) = outbox.scan()
    assert (found.step, found.final) == (9, True)
    assert read_folder_facts(kept / found.key).metrics == {"b": 2.0}


def test_what_is_left_out_at_a_notice_is_neither_uploaded_nor_restored(place: Place) -> None:
    """Only plain names of its own folder count as what a checkpoint may do without."""
    says = {"optional": ["averages.bin", "../weights.pt", 7]}
    extra = {"averages.bin": bytes(1_000), "manifest.json": json.dumps(says).encode()}
    place.save(10, **extra)
    (place.root / "outbox").mkdir()
    outbox = Outbox(place.root / "local", place.root / "outbox")
    (checkpoint,) = outbox.scan()
    assert checkpoint.optional_bytes == 1_000
    assert checkpoint.size_bytes == sum(map(len, extra.values())) + len(b"weights")
    seen: queue.Queue[Observation] = queue.Queue()
    publisher = Publisher(lambda: place.store, outbox, 1, lambda: True, seen.put, place.said.append)
    publisher.submit(PublishCheckpoint(1, None, checkpoint, leave_out=True))
    assert isinstance(seen.get(timeout=60), CheckpointPublished)
    publisher.close()
    folder = place.restore(2).folder
    assert folder is not None
    names = sorted(path.name for path in folder.rglob("*") if path.is_file())
    assert names == ["empty.bin", "manifest.json", "weights.pt"]
