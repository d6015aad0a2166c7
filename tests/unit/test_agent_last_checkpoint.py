"""What a machine has saved when its attempt is ended from outside is still committed, in bounds.

Not here: the supervisor's other rules (`test_agent_supervisor`, `test_agent_supervisor_rules`), or
the store's own checks before a manifest (tests/integration/test_agent_checkpoints.py).
"""

from __future__ import annotations

import pytest

from tests.support.supervised_machine import Machine, committed, ended, of, saved
from trainer.agent import actions as act
from trainer.agent import observations as seen
from trainer.agent.agent_state import Limits, Stage
from trainer.agent.notices import Notice, NoticeKind
from trainer.protocol.agent_report import FactKind, TrainerOutcome
from trainer.protocol.directive import DirectiveKind, DrainCause

GONE = ended(TrainerOutcome.FAILED, exit_code=-9)


def uploading(step: int = 7, limits: Limits | None = None) -> Machine:
    """Rank 0 of a gang that trains, with a complete checkpoint on its way to the store."""
    machine = Machine(limits=limits).running()
    assert of(act.PublishCheckpoint, machine.see(seen.CheckpointReady(1, saved(step))))
    return machine


def test_a_stop_lets_the_upload_under_way_end() -> None:
    machine = uploading()
    assert of(act.KillTrainer, machine.told(DirectiveKind.STOP))
    machine.see(seen.TrainerExited(1, GONE))
    assert machine.stage is Stage.CLOSING
    assert FactKind.TRAINER_ENDED not in machine.kinds()
    machine.told(DirectiveKind.STOP)
    machine.told(DirectiveKind.HOLD, fence=None)  # the verdict has come: nothing is hurried by it
    assert machine.stage is Stage.CLOSING
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
    machine.after(Limits().closing)
    assert machine.stage is Stage.ENDED
    without = Machine().running()
    without.told(DirectiveKind.STOP)
    without.see(seen.TrainerExited(1, GONE))
    assert without.stage is Stage.ENDED


def test_after_a_stop_the_lease_still_ends_everything() -> None:
    machine = uploading(limits=Limits(closing=10_000.0))
    machine.told(DirectiveKind.STOP)
    machine.see(seen.TrainerExited(1, GONE))
    assert machine.state.lease_until is not None
    machine.after(machine.state.lease_until - machine.now - 1.0)
    assert machine.stage is Stage.CLOSING
    machine.after(1.0)
    assert machine.stage is Stage.ENDED


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
        machine.now += Limits().handover / 5
    assert of(act.StartPreparation, machine.after(Limits().handover / 5))
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
    drain = {"drain_seconds": 20.0, "drain_cause": DrainCause.INTERRUPTION}
    machine.told(DirectiveKind.DRAIN, **drain)
    machine.see(seen.CheckpointReady(1, saved(9)))
    if exited_in_time:
        machine.see(seen.TrainerExited(1, ended(TrainerOutcome.DRAINED, exit_code=75)))
        machine.told(DirectiveKind.DRAIN, **drain)
    asked = machine.after(21.0)
    if not exited_in_time:
        assert of(act.KillTrainer, asked)
        machine.see(seen.TrainerExited(1, GONE))
    assert machine.stage is Stage.CLOSING
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
        assert machine.stage is Stage.ENDED
