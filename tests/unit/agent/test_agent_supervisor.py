"""The supervisor from a directive to the end of an attempt: order, notices, drains."""

from __future__ import annotations

from dataclasses import replace

from tests.support.agent.supervised_machine import Machine, committed, ended, of, saved
from trainer.agent.notices import Notice, NoticeKind
from trainer.agent.rules import actions as act
from trainer.agent.rules import observations as seen
from trainer.agent.rules.agent_state import LocalCheckpoint, Stage
from trainer.protocol.agent_report import (
    FactKind,
    MachinePhase,
    TrainerError,
    TrainerOutcome,
)
from trainer.protocol.checkpoint_manifest import CheckpointRef
from trainer.protocol.directive import (
    Directive,
    DirectiveKind,
)

# --- the usual way -----------------------------------------------------------------------------


def test_prepares_trains_publishes_and_finishes_in_order() -> None:
    machine = Machine()
    assert of(act.StartPreparation, machine.told(DirectiveKind.PREPARE))
    machine.see(seen.Prepared(1, None, 29_501))
    assert machine.fact(FactKind.PREPARED)["master_port"] == 29_501
    assert of(act.StartTrainer, machine.told(DirectiveKind.TRAIN, master_port=29_501))
    assert not of(act.StartTrainer, machine.told(DirectiveKind.TRAIN, master_port=29_501))
    machine.see(seen.TrainerStarted(1), seen.ProgressSeen(1, 5, 10, {"loss": 0.5}))
    final = saved(10, final=True)
    assert of(act.PublishCheckpoint, machine.see(seen.CheckpointReady(1, final)))
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FINISHED, exit_code=0)))
    assert FactKind.TRAINER_ENDED not in machine.kinds()  # the final manifest is not written yet
    machine.see(committed(1, final))
    order = machine.kinds_that_matter()
    assert order[-3:] == [FactKind.CHECKPOINT, FactKind.COMPLETION, FactKind.TRAINER_ENDED]
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "finished"
    assert machine.stage() is Stage.ENDED


def test_the_timeline_of_phases_begins_with_boot_and_never_runs_backwards() -> None:
    machine = Machine()
    machine.answered(Directive(DirectiveKind.PREPARE, 5, 1, "a", 0), ack=0)
    machine.see(
        seen.PhaseEntered(1, MachinePhase.SETUP, machine.now - 500.0),
        seen.PhaseEntered(1, MachinePhase.RESTORE, machine.now + 500.0),
        seen.Prepared(1),
    )
    state = machine.state
    phases = [fact for fact in state.facts.pending if fact.kind is FactKind.PHASE]
    assert [fact.data["phase"] for fact in phases] == ["boot", "setup", "restore", "idle"]
    uptimes = [fact.uptime_ms for fact in phases]
    assert uptimes == sorted(uptimes)
    assert uptimes[-1] == 1_000_000


def test_other_ranks_never_publish() -> None:
    machine = Machine().running(node_rank=1)
    asked = machine.see(
        seen.CheckpointReady(1, saved(10)),
        seen.TrainerExited(1, ended(TrainerOutcome.FINISHED)),
    )
    assert not of(act.PublishCheckpoint, asked)
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "finished"


def test_a_finished_command_without_a_checkpoint_gets_a_final_manifest_without_files() -> None:
    machine = Machine(bundled=False).running()
    machine.see(seen.ProgressSeen(1, 42))
    asked = machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FINISHED)))
    (publish,) = of(act.PublishCheckpoint, asked)
    assert publish.checkpoint == LocalCheckpoint(42, final=True, key="")
    machine.see(committed(1, publish.checkpoint, final=True))
    assert machine.kinds_that_matter()[-2:] == [FactKind.COMPLETION, FactKind.TRAINER_ENDED]


def test_the_empty_final_manifest_waits_for_an_upload_under_way() -> None:
    machine = Machine(bundled=False).running()
    machine.see(seen.ProgressSeen(1, 5), seen.CheckpointReady(1, saved(5)))
    asked = machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FINISHED)))
    assert not of(act.PublishCheckpoint, asked)
    (publish,) = of(act.PublishCheckpoint, machine.see(committed(1, saved(5))))
    assert publish.checkpoint == LocalCheckpoint(5, final=True, key="")
    machine.see(committed(1, publish.checkpoint, final=True))
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "finished"


def test_a_last_checkpoint_that_waits_is_published_as_the_final_one() -> None:
    machine = Machine(bundled=False).running()
    machine.see(seen.CheckpointReady(1, saved(5)))
    machine.see(seen.CheckpointReady(1, saved(6)))
    (publish,) = of(
        act.PublishCheckpoint, machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FINISHED)))
    )
    assert publish.checkpoint == replace(saved(6), final=True)


def test_a_final_parent_completes_without_training() -> None:
    machine = Machine()
    machine.told(DirectiveKind.PREPARE, fence=3)
    parent = CheckpointRef(2, 10, "abc")
    machine.see(seen.Prepared(3, parent, 29_501, parent_final=True, parent_size_bytes=4096))
    assert machine.fact(FactKind.COMPLETION) == {"step": 10, "digest": "abc"}
    assert machine.fact(FactKind.PREPARED)["parent_size_bytes"] == 4096


# --- notices and drains ------------------------------------------------------------------------


def notice(seconds: float | None = 120.0, kind: NoticeKind = NoticeKind.INTERRUPTION) -> Notice:
    return Notice(kind, "terminate", seconds, "ec2", "n1")


def test_a_notice_drains_at_once_and_is_told_once() -> None:
    machine = Machine().running()
    asked = machine.see(seen.NoticeSeen(notice()))
    assert of(act.SignalDrain, asked)
    assert isinstance(asked[-1], act.ReportNow)
    assert machine.fact(FactKind.NOTICE)["seconds_left"] == 120.0
    assert machine.see(seen.NoticeSeen(notice())) == []
    assert machine.kinds().count(FactKind.NOTICE) == 1


def test_a_drain_ends_in_this_order_checkpoint_then_trainer_ended() -> None:
    machine = Machine().running()
    machine.see(seen.NoticeSeen(notice()))
    machine.see(
        seen.CheckpointReady(1, saved(7)),
        seen.TrainerExited(1, ended(TrainerOutcome.DRAINED, exit_code=75)),
    )
    assert FactKind.TRAINER_ENDED not in machine.kinds()
    asked = machine.see(committed(1, saved(7)))
    assert of(act.ReportNow, asked)
    order = machine.kinds_that_matter()
    assert order[-2:] == [FactKind.CHECKPOINT, FactKind.TRAINER_ENDED]
    assert machine.fact(FactKind.TRAINER_ENDED)["drain_cause"] == "notice"


def test_in_a_drain_the_newest_checkpoint_takes_the_place_of_the_older_upload() -> None:
    machine = Machine().running()
    machine.see(seen.CheckpointReady(1, saved(5)))
    assert not of(act.PublishCheckpoint, machine.see(seen.CheckpointReady(1, saved(6))))
    machine.told(DirectiveKind.DRAIN, drain_seconds=60.0)
    newest = of(act.PublishCheckpoint, machine.see(seen.CheckpointReady(1, saved(7))))
    assert [action.checkpoint.step for action in newest] == [7]


def test_a_second_save_of_the_step_under_way_does_not_abandon_it() -> None:
    machine = Machine().running()
    machine.see(seen.CheckpointReady(1, saved(5)))
    machine.told(DirectiveKind.DRAIN, drain_seconds=60.0)
    assert not machine.see(seen.CheckpointReady(1, saved(5, key="again")))
    assert of(act.PublishCheckpoint, machine.see(seen.CheckpointReady(1, saved(5, final=True))))


def test_drain_time_used_up_kills_and_a_repeated_order_never_lengthens_it() -> None:
    machine = Machine().running()
    machine.told(DirectiveKind.DRAIN, drain_seconds=60.0)
    machine.now += 50.0
    machine.told(DirectiveKind.DRAIN, drain_seconds=60.0)
    assert not of(act.KillTrainer, machine.after(9.0))
    assert of(act.KillTrainer, machine.after(1.0))
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FAILED, exit_code=-9)))
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "killed"


def test_rebalance_and_far_maintenance_are_told_but_do_not_drain() -> None:
    machine = Machine().running()
    far = Notice(NoticeKind.MAINTENANCE, "system-reboot", 86_400.0, "ec2", "n2")
    hint = Notice(NoticeKind.REBALANCE, "rebalance", None, "ec2", "n3")
    assert not of(act.SignalDrain, machine.see(seen.NoticeSeen(far), seen.NoticeSeen(hint)))
    assert {FactKind.NOTICE, FactKind.REBALANCE} <= set(machine.kinds())


def test_a_notice_with_a_wrong_clock_still_leaves_time_to_save() -> None:
    machine = Machine().running()
    machine.see(seen.NoticeSeen(notice(seconds=-900.0)))
    assert not of(act.KillTrainer, machine.after(9.0))


def test_a_command_that_dies_of_our_sigterm_is_drained() -> None:
    machine = Machine(bundled=False).running()
    machine.told(DirectiveKind.DRAIN, drain_seconds=60.0)
    died = ended(TrainerOutcome.FAILED, exit_code=-15, error=TrainerError("x", signal=15))
    machine.see(seen.TrainerExited(1, died))
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "drained"


def test_a_drain_before_the_start_has_nothing_to_save() -> None:
    machine = Machine()
    machine.told(DirectiveKind.PREPARE)
    asked = machine.told(DirectiveKind.DRAIN, drain_seconds=60.0)
    assert of(act.CancelPreparation, asked)
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "drained"
    assert machine.see(seen.Prepared(1, None, 1)) == []
