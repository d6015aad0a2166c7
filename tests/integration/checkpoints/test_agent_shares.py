"""A checkpoint that a gang saves together counts when every machine's share is in the store.

The real outboxes, publishers and store of several machines in one process. Not here: whole agents
with trainers (test_agent_gang_saves.py), or when something is published (tests/unit).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent.fake_control_plane import wait_until
from tests.support.agent.saving_gang import SavingGang, gang_in
from trainer.agent.checkpoints.gather_shares import (
    SILENT_SECONDS,
    ShareGatherer,
    ShareLost,
    ShareMissing,
)
from trainer.agent.checkpoints.outbox import Outbox
from trainer.agent.checkpoints.send_share import record_loss
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.agent.rules.agent_state import LocalCheckpoint, TrainerEnd
from trainer.agent.rules.observations import (
    CheckpointPublished,
    CheckpointReady,
    FencedOff,
    PublicationFailed,
    ShareSent,
    TrainerExited,
)
from trainer.protocol.agent_report import TrainerOutcome
from trainer.protocol.checkpoint_manifest import CheckpointRef, FenceRecord, fence_key
from trainer.protocol.checkpoint_shares import ShareOrder, life_key
from trainer.protocol.wire import encode


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[SavingGang]:
    with gang_in(tmp_path) as made:
        yield made


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[SavingGang]:
    """Machine 0 does not wait for long."""
    with gang_in(tmp_path, silent_seconds=1.5) as made:
        yield made


def files_of(folder: Path | None) -> dict[str, str]:
    assert folder is not None
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_three_machines_shares_become_one_checkpoint(tmp_path: Path) -> None:
    with gang_in(tmp_path, machines=3) as gang:
        gang.publish(gang.save_all(10, 1))
        told = gang.told()
        assert isinstance(told, CheckpointPublished)
        assert told.sent_bytes is not None
        assert 0 < told.sent_bytes < told.size_bytes / 2
        assert isinstance(gang.told(1), ShareSent)
        assert isinstance(gang.told(2), ShareSent)
        found = files_of(gang.restore().folder)
        assert set(found) == {
            *("weights-0", "weights-1", "weights-2", "manifest.json"),
            *("manifest-00002-of-00003.json", "manifest-00003-of-00003.json"),
        }


def test_the_manifest_waits_for_a_slow_share(gang: SavingGang) -> None:
    gang.publish(gang.save(0, 10, 1))
    gang.wait_for("shares/*/000001.json")
    gang.wait_for("data/*/*/weights-0")
    assert gang.seen[0].empty()
    assert gang.manifests() == []
    gang.save(1, 10, 1)
    assert isinstance(gang.told(), CheckpointPublished)
    assert gang.manifests() == ["10"]


def test_a_share_that_never_comes_fails_by_the_name_of_its_machine(hasty: SavingGang) -> None:
    assert isinstance(hasty.publish_till_heard(hasty.save_all(10, 1)), CheckpointPublished)
    late = hasty.save(0, 20, 2)
    hasty.publish(late)
    failed = hasty.told()
    assert isinstance(failed, PublicationFailed)
    assert (failed.unheard, failed.hopeless) == (True, False)
    assert failed.message.startswith("node 1 did not upload its share of step 20: nothing was")
    assert hasty.manifests() == ["10"]
    parent = hasty.restore().parent
    assert parent is not None
    assert parent.step == 10


def test_another_try_finds_what_has_come_meanwhile(hasty: SavingGang) -> None:
    mine = hasty.save(0, 10, 1)
    hasty.publish(mine)
    assert isinstance(hasty.told(), PublicationFailed)
    hasty.save(1, 10, 1)
    hasty.wait_for("data/*/*/share-00001-of-save-000001.json")
    hasty.publish(mine)
    assert isinstance(hasty.told(), CheckpointPublished)
    assert len(hasty.stored("shares/*/*.json")) == 1


def test_a_machine_that_has_not_got_a_share_says_so_at_once(gang: SavingGang) -> None:
    """Its disk was full for that save; the next one is well."""
    mine = gang.save(0, 10, 1)
    gang.save(1, 20, 2)
    gang.publish(mine)
    failed = gang.told()
    assert isinstance(failed, PublicationFailed)
    assert failed.hopeless
    assert failed.message.startswith("node 1 has no share of step 10: ")
    gang.publish(gang.save(0, 20, 2))
    assert isinstance(gang.told(), CheckpointPublished)
    assert gang.manifests() == ["20"]


def test_a_machine_whose_trainer_died_in_the_middle_of_a_save_says_so(gang: SavingGang) -> None:
    gang.end_trainer(1)
    gang.publish(gang.save(0, 10, 1))
    failed = gang.told()
    assert isinstance(failed, PublicationFailed)
    assert failed.hopeless


def test_a_newer_save_takes_the_place_of_one_that_waits(gang: SavingGang) -> None:
    gang.publish(gang.save(0, 10, 1))
    gang.wait_for("data/*/*/weights-0")
    gang.publish(gang.save_all(20, 2))
    told = gang.told()
    if isinstance(told, PublicationFailed):  # the other one was quicker to say that it has none
        assert (told.checkpoint.step, told.hopeless) == (10, True)
        told = gang.told()
    assert isinstance(told, CheckpointPublished)
    assert told.ref.step == 20
    assert gang.manifests() == ["20"]


def test_a_share_that_was_sent_unasked_is_found(gang: SavingGang) -> None:
    """As in a drain: the machine that is being taken does not wait for orders."""
    theirs = gang.save(1, 10, 1)
    gang.send_unasked(1, theirs)
    assert gang.told(1) == ShareSent(1, theirs)
    gang.close()
    again = SavingGang(gang.root / "again")
    again.remote = gang.remote
    again.publish(again.save(0, 10, 1))  # nobody answers any more
    assert isinstance(again.told(), CheckpointPublished)
    again.close()


def test_a_final_save_at_the_step_of_an_earlier_one_is_whole(gang: SavingGang) -> None:
    gang.publish(gang.save_all(10, 1))
    assert isinstance(gang.told(), CheckpointPublished)
    assert isinstance(gang.told(1), ShareSent)
    final = [gang.save(machine, 10, 2, final=True) for machine in (0, 1)]
    gang.send_unasked(1, final[1])
    gang.publish(final[0])
    told = gang.told()
    assert isinstance(told, CheckpointPublished)
    assert (told.ref.step, told.final) == (11, True)
    found = files_of(gang.restore().folder)
    assert (found["weights-0"], found["weights-1"]) == ("of save 2", "of save 2")


def test_shares_of_two_saves_of_one_step_are_never_mixed(hasty: SavingGang) -> None:
    """The first one fails on machine 1, which is slow; both save the step again."""
    hasty.publish(hasty.save(0, 10, 1))
    assert isinstance(hasty.told(), PublicationFailed)
    again = hasty.save(0, 10, 2)
    hasty.save(1, 10, 1)
    hasty.wait_for("data/*/*/share-00001-of-save-000001.json")
    hasty.save(1, 10, 2)
    assert isinstance(hasty.publish_till_heard(again), CheckpointPublished)
    found = files_of(hasty.restore().folder)
    assert (found["weights-0"], found["weights-1"]) == ("of save 2", "of save 2")


def test_a_share_of_an_earlier_save_of_the_step_is_not_taken_for_this_ones(
    gang: SavingGang,
) -> None:
    """Only the other machine had uploaded its share of the earlier one."""
    gang.send_unasked(1, gang.save(1, 10, 1))
    assert isinstance(gang.told(1), ShareSent)
    gang.publish(gang.save_all(10, 2))
    assert isinstance(gang.told(), CheckpointPublished)
    found = files_of(gang.restore().folder)
    assert (found["weights-0"], found["weights-1"]) == ("of save 2", "of save 2")


def test_the_others_follow_to_another_step_when_the_first_one_s_place_is_taken(
    gang: SavingGang,
) -> None:
    """By a write of machine 0 that was torn; the other one had sent its share already."""
    gang.store().put_new("data/0000000001/000000000010/weights-0", b"torn")
    mine, theirs = (gang.save(machine, 10, 1) for machine in (0, 1))
    gang.send_unasked(1, theirs)
    assert isinstance(gang.told(1), ShareSent)
    gang.publish(mine)
    told = gang.told()
    assert isinstance(told, CheckpointPublished)
    assert told.ref.step == 11
    assert files_of(gang.restore().folder)["weights-1"] == "of save 1"


@pytest.mark.parametrize("whole_first", [True, False])
def test_what_is_left_out_is_left_out_of_every_share(gang: SavingGang, whole_first: bool) -> None:
    mine, theirs = (gang.save(machine, 10, 1, optional=b"averages") for machine in (0, 1))
    if whole_first:
        gang.send_unasked(1, theirs)
        assert isinstance(gang.told(1), ShareSent)
    gang.publish(mine, leave_out=True)
    assert isinstance(gang.told(), CheckpointPublished)
    found = set(files_of(gang.restore().folder))
    assert not [name for name in found if name.startswith("averages")]
    assert {"weights-0", "weights-1", "manifest-00002-of-00002.json"} <= found


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_damaged_or_lost_share_is_passed_over_with_its_checkpoint(
    gang: SavingGang, is_gone: bool
) -> None:
    for step, save in ((10, 1), (20, 2)):
        gang.publish(gang.save_all(step, save))
        assert isinstance(gang.told(), CheckpointPublished)
    (share,) = gang.stored("data/*/*20/weights-1")
    if is_gone:
        share.unlink()
    else:
        share.write_text("OF save 2")
    restored = gang.restore()
    assert restored.parent is not None
    assert restored.parent.step == 10
    assert "weights-1 is" in gang.said[-1]


def test_a_fence_or_the_end_of_the_lease_while_waiting_forbids_the_manifest(
    gang: SavingGang,
) -> None:
    mine = gang.save(0, 10, 1)
    gang.publish(mine)
    gang.wait_for("data/*/*/weights-0")
    gang.may_commit = False
    gang.save(1, 10, 1)
    failed = gang.told()
    assert isinstance(failed, PublicationFailed)
    assert "the lease is over" in failed.message
    gang.may_commit = True
    mine = gang.save(0, 20, 2)
    gang.publish(mine)
    gang.wait_for("data/*/*20/weights-0")
    record = encode(FenceRecord(2, CheckpointRef(1, 5, "d"), "another"))
    gang.store().put_new(fence_key(2), json.dumps(record).encode())
    gang.save(1, 20, 2)
    assert gang.told() == FencedOff(1, 2)
    assert gang.manifests() == []


def test_saves_that_come_fast_still_meet(gang: SavingGang) -> None:
    """Machine 1 hears of an order when it has saved more already."""
    first = gang.save(0, 1, 1)
    for save in range(1, 9):
        gang.save(1, save, save)
    gang.publish(first)
    assert isinstance(gang.told(), CheckpointPublished)
    assert gang.manifests() == ["1"]


def test_a_machine_says_that_it_is_alive_until_it_has_answered(tmp_path: Path) -> None:
    with gang_in(tmp_path, life_seconds=0.1) as gang:
        gang.save(1, 5, 1)
        gang.publish(gang.save(0, 10, 2))  # its disk is slow
        gang.wait_for("data/*/*/share-00001-of-save-000002-alive-00003.json")
        gang.save(1, 10, 2)
        assert isinstance(gang.told(), CheckpointPublished)


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_machine_that_is_alive_is_waited_for(tmp_path: Path, is_alive: bool) -> None:
    """Longer than one may be silent."""
    store, order = StorageRoot(tmp_path.as_uri()), ShareOrder(1, 10, 2)
    looks = 0

    def time_passes() -> bool:
        nonlocal looks
        looks += 1
        if is_alive:
            store.put_new(life_key(order, 1, looks), b"{}")
        if looks == 6:
            record_loss(store, order, 1, "at last")
        return False

    gatherer = ShareGatherer(1, 2, clock=lambda: looks * 0.6 * SILENT_SECONDS)

    gatherer.ask(store, order.step, order.save, leave_out=False)
    with pytest.raises(ShareLost if is_alive else ShareMissing):
        gatherer.collect(store, time_passes)


def test_orders_go_on_after_one_that_the_store_did_not_take(gang: SavingGang) -> None:
    """The others read one after the other: a number that is left out would end it for good."""
    gang.remote.mkdir()
    (gang.remote / "shares").write_text("a file where a folder belongs")
    mine = gang.save_all(10, 1)
    gang.publish(mine)
    failed = gang.told()
    assert isinstance(failed, PublicationFailed)
    assert not failed.unheard
    (gang.remote / "shares").unlink()
    gang.publish(mine)
    assert isinstance(gang.told(), CheckpointPublished)


def test_no_thread_dies_of_what_nobody_has_thought_of(gang: SavingGang) -> None:
    gang.opening_fails = RuntimeError("odd credentials")
    mine = gang.save_all(10, 1)
    gang.publish(mine)
    failed = gang.told()
    assert isinstance(failed, PublicationFailed)
    assert failed.message == "odd credentials"
    wait_until(lambda: "share-orders" in gang.openers, lambda: "machine 1 looks for orders")
    gang.opening_fails = None
    gang.publish(mine)
    assert isinstance(gang.told(), CheckpointPublished)


def test_what_an_earlier_attempt_says_late_is_not_this_ones(gang: SavingGang) -> None:
    earlier = TrainerExited(0, TrainerEnd(TrainerOutcome.KILLED))
    gang.senders[0].see(earlier)
    gang.senders[0].see(CheckpointReady(0, LocalCheckpoint(10, False, "000001-step-10", save=1)))
    gang.publish(gang.save(0, 10, 1))
    gang.wait_for("data/*/*/share-00001-of-save-000001*.json")
    gang.save(1, 10, 1)
    assert isinstance(gang.told(), CheckpointPublished)


def test_a_share_may_still_be_asked_for_when_a_newer_one_has_come(tmp_path: Path) -> None:
    """However old it is: machine 0 may be slower to save the newer one."""
    kept = tmp_path / "outbox"
    kept.mkdir()
    outbox, found = Outbox(tmp_path / "saved", kept, 2, kept_seconds=0.02), []
    for step in (1, 2, 3):
        folder = tmp_path / "saved" / f"step-{step:012d}"
        folder.mkdir(parents=True)
        (folder / "weights").write_text("w")
        found += outbox.scan()
        time.sleep(0.1)
    assert [outbox.take(each.key) is not None for each in found] == [False, True, True]
