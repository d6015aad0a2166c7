"""What a machine has saved when its attempt is ended from outside is still committed, in bounds.

Not here: the supervisor's other rules (`test_agent_supervisor`, `test_agent_supervisor_rules`), or
the store's own checks before a manifest (tests/integration/checkpoints/test_agent_checkpoints.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.agent.supervised_machine import Machine, committed, ended, of, saved
from trainer.agent.notices import Notice, NoticeKind
from trainer.agent.rules import actions as act
from trainer.agent.rules import observations as seen
from trainer.agent.rules.agent_state import LocalCheckpoint, Stage, Timings
from trainer.protocol.agent_report import FactKind, TrainerOutcome
from trainer.protocol.checkpoint_manifest import CheckpointRef
from trainer.protocol.directive import DirectiveKind, DrainCause

GONE = ended(TrainerOutcome.FAILED, exit_code=-9)


def uploading(step: int = 7, limits: Timings | None = None) -> Machine:
    """Rank 0 of a gang that trains, with a complete checkpoint on its way to the store."""
    machine = Machine(limits=limits).running()
    assert of(act.PublishCheckpoint, machine.see(seen.CheckpointReady(1, saved(step))))
    return machine


def test_a_stop_lets_the_upload_under_way_end() -> None:
    machine = uploading()
    assert of(act.KillTrainer, machine.told(DirectiveKind.STOP))
    machine.see(seen.TrainerExited(1, GONE))
    assert machine.stage() is Stage.CLOSING
    assert FactKind.TRAINER_ENDED not in machine.kinds()
    machine.told(DirectiveKind.STOP)
    machine.told(DirectiveKind.HOLD, fence=None)  # the verdict has come: nothing is hurried by it
    assert machine.stage() is Stage.CLOSING
    machine.see(committed(1, saved(7)))
    assert machine.kinds_that_matter()[-2:] == [FactKind.CHECKPOINT, FactKind.TRAINER_ENDED]
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "killed"


def test_a_stop_publishes_what_was_complete_and_had_not_begun() -> None:
    machine = uploading(7)
    machine.see(seen.CheckpointReady(1, saved(8)))
    machine.told(DirectiveKind.STOP)
    asked = machine.see(seen.TrainerExited(1, GONE))
    assert [action.checkpoint.step for action in of(act.PublishCheckpoint, asked)] == [8]


def test_after_a_stop_nothing_is_waited_for_that_does_not_come() -> None:
    machine = uploading()
    machine.told(DirectiveKind.STOP)
    machine.see(seen.TrainerExited(1, GONE))
    machine.after(Timings().closing)
    assert machine.stage() is Stage.ENDED
    without = Machine().running()
    without.told(DirectiveKind.STOP)
    without.see(seen.TrainerExited(1, GONE))
    assert without.stage() is Stage.ENDED


def test_after_a_stop_the_lease_still_ends_everything() -> None:
    machine = uploading(limits=Timings(closing=10_000.0))
    machine.told(DirectiveKind.STOP)
    machine.see(seen.TrainerExited(1, GONE))
    assert machine.state.lease_until is not None
    machine.after(machine.state.lease_until - machine.now - 1.0)
    assert machine.stage() is Stage.CLOSING
    machine.after(1.0)
    assert machine.stage() is Stage.ENDED


def test_the_next_attempt_waits_for_the_last_checkpoint_of_this_one() -> None:
    machine = uploading()
    machine.told(DirectiveKind.STOP)
    machine.see(seen.TrainerExited(1, GONE))
    assert not of(act.StartPreparation, machine.told(DirectiveKind.PREPARE, fence=2))
    assert of(act.StartPreparation, machine.see(committed(1, saved(7))))


def test_the_next_attempt_does_not_wait_for_long() -> None:
    machine = uploading()
    machine.told(DirectiveKind.STOP)
    machine.see(seen.TrainerExited(1, GONE))
    for _ in range(4):  # asked again with every answer: the time runs from the first
        assert not of(act.StartPreparation, machine.told(DirectiveKind.PREPARE, fence=2))
        machine.now += Timings().handover / 5
    assert of(act.StartPreparation, machine.after(Timings().handover / 5))
    last = [fact for fact in machine.state.facts.pending if fact.kind is FactKind.TRAINER_ENDED]
    assert [fact.fence for fact in last] == [1]


def test_the_next_attempt_does_not_wait_for_a_store_that_fails() -> None:
    machine = uploading()
    machine.told(DirectiveKind.STOP)
    machine.see(seen.TrainerExited(1, GONE), seen.PublicationFailed(1, saved(7), "away"))
    assert of(act.StartPreparation, machine.told(DirectiveKind.PREPARE, fence=2))


def test_a_machine_that_is_given_back_waits_for_nothing() -> None:
    machine = uploading()
    machine.told(DirectiveKind.STOP)
    machine.see(seen.TrainerExited(1, GONE))
    assert of(act.Leave, machine.told(DirectiveKind.LEAVE, fence=None))


@pytest.mark.parametrize("exited_in_time", [True, False])
def test_the_time_of_a_drain_is_the_taken_machines_and_not_the_survivors(
    exited_in_time: bool,
) -> None:
    machine = Machine().running()
    drain: dict[str, Any] = {"drain_seconds": 20.0, "drain_cause": DrainCause.INTERRUPTION}
    machine.told(DirectiveKind.DRAIN, **drain)
    machine.see(seen.CheckpointReady(1, saved(9)))
    if exited_in_time:
        machine.see(seen.TrainerExited(1, ended(TrainerOutcome.DRAINED, exit_code=75)))
        machine.told(DirectiveKind.DRAIN, **drain)
    asked = machine.after(21.0)
    if not exited_in_time:
        assert of(act.KillTrainer, asked)
        machine.see(seen.TrainerExited(1, GONE))
    assert machine.stage() is Stage.CLOSING
    machine.see(committed(1, saved(9)))
    assert machine.kinds_that_matter()[-2:] == [FactKind.CHECKPOINT, FactKind.TRAINER_ENDED]


def test_the_time_of_a_stop_for_people_and_of_an_own_notice_is_kept() -> None:
    told = Machine().running()
    told.told(DirectiveKind.DRAIN, drain_seconds=20.0, drain_cause=DrainCause.STOP)
    noticed = Machine().running()
    notice = Notice(NoticeKind.INTERRUPTION, "terminate", 20.0, "ec2", "one")
    noticed.see(seen.NoticeSeen(notice))
    for machine in (told, noticed):
        machine.see(
            seen.CheckpointReady(1, saved(9)),
            seen.TrainerExited(1, ended(TrainerOutcome.DRAINED, exit_code=75)),
        )
        machine.after(20.0)
        assert machine.stage() is Stage.ENDED


# --- a store that is too slow for the notice ---


def sized(step: int, megabytes: int, optional: int = 0) -> LocalCheckpoint:
    return LocalCheckpoint(step, False, f"folder-{step}", megabytes * 10**6, optional * 10**6)


def stored(checkpoint: LocalCheckpoint) -> seen.Observation:
    ref = CheckpointRef(1, checkpoint.step, "d")
    return seen.CheckpointPublished(1, checkpoint, ref, checkpoint.size_bytes, False)


def noticed_while_uploading(seconds: float, megabytes: int = 100) -> Machine:
    """10 MB/s; 50 MB of step 6 are away when the notice comes, with so many seconds left."""
    machine = Machine().running()
    machine.see(seen.CheckpointReady(1, sized(5, 100)))
    machine.after(10.0)
    machine.see(stored(sized(5, 100)), seen.CheckpointReady(1, sized(6, megabytes)))
    machine.after(5.0)
    machine.see(seen.NoticeSeen(Notice(NoticeKind.INTERRUPTION, "terminate", seconds, "ec2", "n")))
    return machine


def test_what_can_still_be_committed_is_not_given_up_for_what_cannot() -> None:
    machine = noticed_while_uploading(12.0)
    asked = machine.see(seen.CheckpointReady(1, sized(7, 200)))
    assert not of(act.PublishCheckpoint, asked)
    (said,) = of(act.Say, asked)
    assert said.sentence == (
        "the checkpoint of step 7 (200 MB) needs about 20 s at 10 MB/s, and 12 s are left: unless"
        " the store gets faster, step 6 counts"
    )
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.DRAINED, exit_code=75, step=7)))
    machine.after(5.0)
    (next_one,) = of(act.PublishCheckpoint, machine.see(stored(sized(6, 100))))
    assert next_one.checkpoint.step == 7  # tried all the same
    machine.after(7.0)
    assert machine.stage() is Stage.ENDED
    assert machine.fact(FactKind.CHECKPOINT)["step"] == 6
    assert machine.fact(FactKind.TRAINER_ENDED)["unsent_step"] == 7


@pytest.mark.parametrize(("seconds", "megabytes"), [(12.0, 60), (290.0, 200)])
def test_the_newest_goes_first_where_it_fits(seconds: float, megabytes: int) -> None:
    machine = noticed_while_uploading(seconds)
    asked = machine.see(seen.CheckpointReady(1, sized(7, megabytes)))
    assert [action.checkpoint.step for action in of(act.PublishCheckpoint, asked)] == [7]
    assert not of(act.Say, asked)
    machine.see(stored(sized(7, megabytes)))
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.DRAINED, exit_code=75, step=7)))
    assert "unsent_step" not in machine.fact(FactKind.TRAINER_ENDED)


def test_where_nothing_fits_the_newest_is_tried_and_the_last_committed_one_named() -> None:
    machine = noticed_while_uploading(10.0, megabytes=300)
    machine.now += 6.0  # the trainer took its time
    asked = machine.see(seen.CheckpointReady(1, sized(7, 200)))
    assert [action.checkpoint.step for action in of(act.PublishCheckpoint, asked)] == [7]
    (said,) = of(act.Say, asked)
    assert said.sentence.endswith("and 4 s are left: unless the store gets faster, step 5 counts")


def test_what_a_checkpoint_may_do_without_stays_behind_when_that_makes_it_fit() -> None:
    machine = noticed_while_uploading(12.0)
    asked = machine.see(seen.CheckpointReady(1, sized(7, 150, optional=50)))
    (order,) = of(act.PublishCheckpoint, asked)
    assert (order.checkpoint.step, order.leave_out) == (7, True)
    (said,) = of(act.Say, asked)
    assert said.sentence.endswith("12 s are left: 50 MB that it may do without are left out")
    whole = noticed_while_uploading(16.0)
    (order,) = of(act.PublishCheckpoint, whole.see(seen.CheckpointReady(1, sized(7, 150, 50))))
    assert not order.leave_out
    final = replace(sized(7, 150, optional=50), final=True)
    finished = noticed_while_uploading(10.0, megabytes=300)
    (order,) = of(act.PublishCheckpoint, finished.see(seen.CheckpointReady(1, final)))
    assert not order.leave_out  # nobody trains on from there
