"""The supervisor's rules of time, of fences and versions, of trouble, and of facts."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

from app.api.agents.agents import REPORT_BYTES_MAX
from app.orchestration.directives.read_steady_report import METRICS_MAX, read_steady
from tests.support.agent.supervised_machine import HOLD, LEASE, Machine, committed, ended, of, saved
from trainer.agent.rules import actions as act
from trainer.agent.rules import observations as seen
from trainer.agent.rules import supervisor
from trainer.agent.rules.agent_state import Stage
from trainer.agent.rules.fact_backlog import FactBacklog
from trainer.agent.rules.time_rules import next_due
from trainer.protocol.agent_report import (
    FactKind,
    MachinePhase,
    TrainerOutcome,
)
from trainer.protocol.directive import (
    Directive,
    DirectiveKind,
    Peer,
    ReportReply,
)
from trainer.protocol.wire import encode

# --- the lease ---------------------------------------------------------------------------------


def test_the_lease_drains_kills_and_powers_off() -> None:
    machine = Machine().running()
    begun = machine.now
    machine.now = begun + LEASE - 181.0
    machine.see(seen.ProgressSeen(1, 1))
    assert of(act.SignalDrain, machine.after(1.0))
    assert not of(act.KillTrainer, machine.after(179.0))
    assert of(act.KillTrainer, machine.after(1.0))
    assert not of(act.PowerOff, machine.after(299.0))
    assert of(act.PowerOff, machine.after(1.0))
    assert not of(act.PowerOff, machine.after(1.0))


def test_the_lease_counts_from_the_sending_and_late_answers_do_not_shorten_it() -> None:
    machine = Machine()
    sent = machine.now
    machine.now += 30.0
    newer = seen.ReportAnswered(sent + 20.0, ReportReply(0, LEASE, 5.0, HOLD))
    older = seen.ReportAnswered(sent + 10.0, ReportReply(0, LEASE, 5.0, HOLD))
    machine.see(newer, older)
    assert machine.state.lease_until == sent + 20.0 + LEASE
    assert machine.asked[-1] == act.ArmPowerOff(sent + 20.0 + LEASE + 300.0)


def test_a_short_lease_reserves_a_third() -> None:
    machine = Machine().running()
    reply = ReportReply(0, 30.0, 1.0, replace(HOLD, version=0))
    machine.see(seen.ReportAnswered(machine.now, reply))
    assert not of(act.SignalDrain, machine.after(19.0))
    assert of(act.SignalDrain, machine.after(1.0))


def test_a_machine_that_was_never_answered_powers_off() -> None:
    state = supervisor.initial_state("b", "s", 0.0)
    _, asked = supervisor.step(state, [], 2_100.0)
    assert of(act.PowerOff, asked)


def test_next_due_finds_every_instant_at_which_time_decides() -> None:
    machine = Machine().running()
    machine.see(seen.ProgressSeen(1, 1))
    machine.after(2.0)
    assert next_due(machine.state, machine.now) == machine.now - 2.0 + 600.0
    machine.told(DirectiveKind.DRAIN, drain_seconds=60.0)
    assert next_due(machine.state, machine.now) == machine.now + 60.0


# --- fences, versions, refusals ----------------------------------------------------------------


def test_lower_versions_and_lower_fences_are_ignored() -> None:
    machine = Machine().running(fence=4)
    machine.answered(Directive(DirectiveKind.STOP, machine.version - 1, 4))
    assert machine.stage() is Stage.RUNNING
    machine.told(DirectiveKind.STOP, fence=3)
    assert machine.stage() is Stage.RUNNING
    assert of(act.KillTrainer, machine.told(DirectiveKind.STOP, fence=4))


def test_observations_of_another_fence_are_void() -> None:
    machine = Machine().running(fence=2)
    before = machine.state
    assert machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FINISHED))) == []
    assert machine.state.work == before.work


def test_a_higher_fence_ends_the_old_trainer_first() -> None:
    machine = Machine().running(fence=1)
    asked = machine.told(DirectiveKind.PREPARE, fence=2)
    assert of(act.KillTrainer, asked)
    assert not of(act.StartPreparation, asked)
    asked = machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FAILED, exit_code=-9)))
    assert of(act.StartPreparation, asked)
    last = [fact for fact in machine.state.facts.pending if fact.kind is FactKind.TRAINER_ENDED]
    assert [(fact.fence, fact.data["outcome"]) for fact in last] == [(1, "killed")]


def test_cut_off_by_a_later_fence_it_kills_and_commits_nothing_more() -> None:
    machine = Machine().running()
    machine.see(seen.CheckpointReady(1, saved(3)))
    assert of(act.KillTrainer, machine.see(seen.FencedOff(1, 9)))
    asked = machine.see(
        seen.CheckpointReady(1, saved(4)),
        seen.TrainerExited(1, ended(TrainerOutcome.FAILED)),
    )
    assert not of(act.PublishCheckpoint, asked)
    assert machine.fact(FactKind.FENCED_OFF) == {"by_fence": 9}
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "killed"


def test_rank_0_does_not_start_on_a_port_it_does_not_hold() -> None:
    machine = Machine()
    machine.told(DirectiveKind.PREPARE)
    machine.see(seen.Prepared(1, None, 29_501))
    assert not of(act.StartTrainer, machine.told(DirectiveKind.TRAIN, master_port=29_999))
    assert of(act.StartTrainer, machine.told(DirectiveKind.TRAIN, master_port=29_501))


def test_revoked_kills_and_leaves() -> None:
    machine = Machine().running()
    asked = machine.see(seen.ReportRefused(seen.Refusal.REVOKED))
    assert [type(action) for action in asked[:2]] == [act.KillTrainer, act.Leave]


def test_a_refused_protocol_drains_and_a_foreign_fence_is_given_up() -> None:
    machine = Machine().running()
    assert of(act.SignalDrain, machine.see(seen.ReportRefused(seen.Refusal.PROTOCOL)))
    machine = Machine().running()
    assert of(act.KillTrainer, machine.see(seen.ReportRefused(seen.Refusal.NOT_A_MEMBER)))
    assert machine.report().fence is None


def test_leave_waits_for_the_trainer_to_be_gone() -> None:
    machine = Machine().running()
    assert not of(act.Leave, machine.told(DirectiveKind.LEAVE, fence=None))
    asked = machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FAILED)))
    assert of(act.Leave, asked)
    assert machine.see() == []


def test_a_restarted_agent_says_what_it_killed_and_does_not_train_unprepared() -> None:
    machine = Machine(killed_fence=6)
    first = [fact for fact in machine.state.facts.pending if fact.kind is FactKind.TRAINER_ENDED]
    assert [(fact.fence, fact.data["outcome"]) for fact in first] == [(6, "killed")]
    asked = machine.told(DirectiveKind.TRAIN, fence=6, master_port=1)
    assert not of(act.StartTrainer, asked)
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "killed"


def test_a_rank_that_failed_before_the_kill_is_told_as_a_failure() -> None:
    machine = Machine().running()
    machine.told(DirectiveKind.STOP, fence=1)
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FAILED, before_kill=True)))
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "failed"


def test_a_command_that_our_drain_ended_has_not_failed_when_a_kill_follows() -> None:
    machine = Machine().running()
    machine.told(DirectiveKind.DRAIN, drain_seconds=60.0)
    assert of(act.KillTrainer, machine.after(60.0))
    end = ended(TrainerOutcome.FAILED, exit_code=-15, before_kill=True)
    machine.see(seen.TrainerExited(1, end))
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "killed"


# --- stalls, publication trouble ---------------------------------------------------------------


def test_a_stall_dumps_stacks_then_kills() -> None:
    machine = Machine().running()
    machine.see(seen.ProgressSeen(1, 8))
    assert not of(act.DumpStacks, machine.after(599.0))
    machine.see(seen.ProgressSeen(1, 8))  # the same step again is no progress
    asked = machine.after(1.0)
    assert of(act.DumpStacks, asked)
    assert not of(act.KillTrainer, asked)
    assert machine.fact(FactKind.STALLED) == {"step": 8, "seconds": 600.0}
    assert of(act.KillTrainer, machine.after(5.0))
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FAILED)))
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "killed"


def test_restoring_and_compiling_each_have_the_whole_time() -> None:
    machine = Machine().running()
    for phase in (MachinePhase.RESTORE, MachinePhase.COMPILE):
        assert not of(act.DumpStacks, machine.after(599.0))
        machine.see(seen.PhaseEntered(1, phase, machine.now, 0))
        assert machine.state.phase is phase
        machine.told(DirectiveKind.TRAIN, fence=1, master_port=29_501)  # renews the lease
    machine.after(300.0)
    machine.see(seen.PhaseEntered(1, MachinePhase.COMPILE, machine.now, 0))  # said again: not new
    assert not of(act.DumpStacks, machine.after(299.0))
    assert of(act.DumpStacks, machine.after(1.0))


def test_the_first_step_ends_compiling_and_later_phases_are_no_step() -> None:
    machine = Machine().running()
    machine.see(seen.PhaseEntered(1, MachinePhase.COMPILE, machine.now, 0))
    machine.see(seen.ProgressSeen(1, 1))
    assert machine.state.phase is MachinePhase.TRAIN
    machine.after(599.0)
    machine.see(seen.PhaseEntered(1, MachinePhase.COMPILE, machine.now, 1))
    assert of(act.DumpStacks, machine.after(1.0))


def test_a_drain_carries_its_deadline_and_an_earlier_one_is_told() -> None:
    machine = Machine().running()
    asked = machine.told(DirectiveKind.DRAIN, fence=1, drain_seconds=90.0)
    assert of(act.SignalDrain, asked) == [act.SignalDrain(1, machine.now + 90.0)]
    assert not of(act.TellDeadline, machine.told(DirectiveKind.DRAIN, fence=1, drain_seconds=90.0))
    asked = machine.told(DirectiveKind.DRAIN, fence=1, drain_seconds=20.0)
    assert of(act.TellDeadline, asked) == [act.TellDeadline(1, machine.now + 20.0)]
    assert not of(act.SignalDrain, asked)


def test_a_stop_of_a_stalled_gang_dumps_the_stacks_here_too() -> None:
    machine = Machine().running()
    asked = machine.told(DirectiveKind.STOP, fence=1, stalled=True)
    assert of(act.DumpStacks, asked)
    assert not of(act.KillTrainer, asked)
    assert not of(act.DumpStacks, machine.told(DirectiveKind.STOP, fence=1, stalled=True))
    assert of(act.KillTrainer, machine.after(5.0))


def test_a_command_that_reports_no_step_is_not_watched_for_stalls() -> None:
    machine = Machine(bundled=False).running()
    machine.now += 1_200.0
    machine.answered(Directive(DirectiveKind.TRAIN, machine.version, 1, "attempt", 0))
    assert machine.stage() is Stage.RUNNING
    assert FactKind.STALLED not in machine.kinds()


def test_a_failed_publication_is_tried_again_later_each_time() -> None:
    machine = Machine().running()
    machine.see(seen.CheckpointReady(1, saved(3)))
    for wait in (2.0, 4.0, 8.0):
        machine.see(seen.PublicationFailed(1, saved(3), "store"))
        assert not of(act.PublishCheckpoint, machine.after(wait - 0.5))
        assert of(act.PublishCheckpoint, machine.after(0.5))


def test_finished_without_a_committed_final_manifest_is_a_failure_of_the_store() -> None:
    machine = Machine().running()
    machine.see(
        seen.CheckpointReady(1, saved(3, final=True)),
        seen.TrainerExited(1, ended(TrainerOutcome.FINISHED)),
    )
    machine.after(600.0)
    told = machine.fact(FactKind.TRAINER_ENDED)
    assert told["outcome"] == "failed"
    assert told["error"]["type"] == "store_unavailable"


def test_a_crash_after_the_final_manifest_is_still_finished() -> None:
    machine = Machine().running()
    machine.see(seen.CheckpointReady(1, saved(3, final=True)))
    machine.see(committed(1, saved(3, final=True)))
    machine.see(seen.TrainerExited(1, ended(TrainerOutcome.FAILED, exit_code=-6)))
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "finished"


# --- facts and metrics -------------------------------------------------------------------------


def test_facts_are_resent_until_acknowledged_and_numbered_without_gaps() -> None:
    machine = Machine().running()
    first = machine.report()
    assert machine.report().facts == first.facts
    assert machine.report().seq == first.seq + 2
    machine.answered(HOLD, ack=first.facts[0].fact_no)
    numbers = [fact.fact_no for fact in machine.report().facts]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] == first.facts[0].fact_no + 1


def test_the_backlog_drops_old_metrics_and_never_an_end() -> None:
    backlog = FactBacklog().add(FactKind.TRAINER_ENDED, 1.0)
    for _ in range(20):
        backlog = backlog.add(FactKind.METRICS, 2.0, kept_max=10)
    assert len(backlog.pending) == 10
    assert backlog.dropped == 11
    assert backlog.pending[0].kind is FactKind.TRAINER_ENDED
    for _ in range(20):
        backlog = backlog.add(FactKind.NOTICE, 3.0, kept_max=10)
    kept = [fact.kind for fact in backlog.pending]
    assert kept.count(FactKind.NOTICE) == 20
    assert FactKind.METRICS not in kept
    assert backlog.acknowledge(999) is backlog


def test_metrics_go_out_once_a_second_and_fifty_at_a_time() -> None:
    machine = Machine().running()
    machine.after(1.0)
    machine.report()
    start = machine.state.facts.last_fact_no
    for number in range(200):
        machine.now += 0.01
        machine.see(seen.ProgressSeen(1, number, None, {"loss": 1.0}))
    facts = [
        fact
        for fact in machine.state.facts.pending
        if fact.kind is FactKind.METRICS and fact.fact_no > start
    ]
    assert 2 <= len(facts) <= 3
    assert all(0 < len(fact.data["points"]) <= 50 for fact in facts)


def test_a_report_carries_no_more_metrics_than_the_control_plane_takes() -> None:
    machine = Machine().running()
    machine.answered(HOLD)
    trained = {f"train/{number}": 1.0 for number in range(40)}
    scored = {f"eval/{number}": 2.0 for number in range(40)}
    machine.see(seen.ProgressSeen(1, 5, None, trained), seen.ProgressSeen(1, 6, None, scored))
    progress = encode(replace(machine.report(), facts=()))["progress"]
    assert read_steady(encode(replace(machine.report(), instance_id=str(UUID(int=1)), facts=())))
    assert len(progress["metrics"]) == METRICS_MAX
    assert scored.items() <= progress["metrics"].items()


def test_a_backlog_of_many_metrics_fits_into_reports_and_is_sent_in_full() -> None:
    point = {f"{number:02d}-{'ä' * 90}": 0.1234567890123456 for number in range(64)}
    backlog = FactBacklog()
    for second in range(40):
        points = [{"step": float(step), **point} for step in range(50)]
        backlog = backlog.add(FactKind.METRICS, float(second), 1, {"points": points})
    sent = 0
    while batch := backlog.next_batch():
        assert len(json.dumps(encode(batch), ensure_ascii=False).encode()) < REPORT_BYTES_MAX // 2
        sent += len(batch)
        backlog = backlog.acknowledge(batch[-1].fact_no)
    assert sent == 40


def test_a_long_backlog_asks_for_the_next_report_at_once() -> None:
    machine = Machine().running()
    for number in range(250):
        machine.see(seen.GpuFaulted(f"fault {number}"))
    report = machine.report()
    assert len(report.facts) == 200
    asked = machine.see(
        seen.ReportAnswered(machine.now, ReportReply(5, LEASE, 5.0, replace(HOLD, version=0)))
    )
    assert of(act.ReportNow, asked)


def test_a_report_carries_a_bounded_share_of_chart_points() -> None:
    backlog = FactBacklog()
    for _ in range(100):
        backlog = backlog.add(FactKind.METRICS, 1.0)
    backlog = backlog.add(FactKind.NOTICE, 2.0)
    sent = 0
    while batch := backlog.next_batch():
        assert len(batch) <= 31
        sent += len(batch)
        backlog = backlog.acknowledge(batch[-1].fact_no)
    assert sent == 101


def test_a_shutdown_of_the_system_counts_more_than_any_directive() -> None:
    machine = Machine().running()
    assert of(act.SignalDrain, machine.see(seen.ShutdownAsked(30.0)))
    assert not of(act.Leave, machine.told(DirectiveKind.PREPARE, fence=2))
    asked = machine.see(seen.TrainerExited(1, ended(TrainerOutcome.DRAINED, exit_code=75)))
    assert of(act.Leave, asked)
    assert not of(act.StartPreparation, asked)


def test_a_gang_waits_in_its_own_phase() -> None:
    machine = Machine()
    peers = tuple(Peer(rank, "10.0.0.1", 1, 9) for rank in range(2))
    machine.told(DirectiveKind.PREPARE, peers=peers, node_rank=1)
    machine.see(seen.Prepared(1))
    assert machine.state.phase is MachinePhase.GANG_WAIT
