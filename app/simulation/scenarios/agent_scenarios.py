"""Worlds in which a machine, its agent or its trainer goes wrong, one thing in each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from app.simulation.faults.fault_kinds import Fault
from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.scenario import (
    EndState,
    Scenario,
    agent,
    at,
    check_succeeded,
    nothing,
    one_job,
    recovered_with_a_witness,
    when,
)
from app.simulation.simulated.simulated_gang import Workload


def _reports(fault: Fault) -> Callable[[WorldRun], None]:
    def script(run: WorldRun) -> None:
        for seconds in range(60, 5_000, 45):
            at(run, seconds, partial(run.faults.inject, fault))

    return script


def _machine_hangs(run: WorldRun) -> None:
    when(run, "checkpoint_committed", lambda: agent(run, 1).die(), after=200.0)


def _cut_off_for(seconds: float, place: int) -> Callable[[WorldRun], None]:
    def script(run: WorldRun) -> None:
        when(
            run,
            "attempt_started",
            lambda: run.faults.cut_off(agent(run, place), seconds),
            after=600.0,
        )

    return script


def _nothing_was_recovered(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=1)
    seen.expect("instance_heard_again" in seen.kinds(), "it was never missed")


def _agent_restarts(run: WorldRun) -> None:
    when(run, "checkpoint_committed", lambda: agent(run).restart(), after=100.0)


def _gpu_fault(run: WorldRun) -> None:
    when(run, "attempt_started", lambda: agent(run).gpu_fault(), after=600.0)


def _not_kept(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    seen.expect(seen.attempts()[0].end_reason == "gpu_fault", f"{seen.attempts()[0].end_reason}")
    seen.expect(len(seen.machines()) == 3, f"{len(seen.machines())} machines")


def _store_away(run: WorldRun) -> None:
    def away(how: bool) -> None:
        run.world.store.unavailable = how

    when(run, "attempt_started", partial(away, True), after=880.0)
    when(run, "attempt_started", partial(away, False), after=1_100.0)


def _stalled_once(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    seen.expect(seen.attempts()[0].end_reason == "stalled", f"{seen.attempts()[0].end_reason}")


def _failed_once(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    seen.expect(seen.attempts()[0].end_reason == "user_error", f"{seen.attempts()[0].end_reason}")


def _out_of_memory(run: WorldRun) -> None:
    seen = EndState(run)
    seen.expect(seen.job().state == "failed", f"the job is {seen.job().state}")
    seen.expect(seen.job().end_reason == "out_of_memory", f"{seen.job().end_reason}")


AGENT_SCENARIOS = {
    "requests_lost": Scenario(_reports(Fault.REPORT_LOST), check_succeeded()),
    "replies_lost": Scenario(_reports(Fault.REPLY_LOST), check_succeeded()),
    "reports_late": Scenario(_reports(Fault.REPORT_LATE), check_succeeded()),
    "reports_doubled": Scenario(_reports(Fault.REPORT_DOUBLED), check_succeeded(1)),
    "machine_hangs": Scenario(_machine_hangs, recovered_with_a_witness, hours=5.0),
    "cut_off_for_minutes": Scenario(_cut_off_for(400.0, 1), _nothing_was_recovered),
    "cut_off_beyond_the_lease": Scenario(_cut_off_for(7_200.0, 0), check_succeeded(), hours=6.0),
    "agent_restarts": Scenario(_agent_restarts, check_succeeded(2)),
    "gpu_fault": Scenario(_gpu_fault, _not_kept),
    "store_away": Scenario(_store_away, check_succeeded(1)),
    "trainer_hangs": Scenario(
        nothing,
        _stalled_once,
        jobs=(one_job(workload=Workload(total_steps=2_400, hangs_at=800)),),
        hours=5.0,
    ),
    "trainer_fails": Scenario(
        nothing,
        _failed_once,
        jobs=(one_job(workload=Workload(total_steps=2_400, fails_at=800)),),
    ),
    "out_of_memory": Scenario(
        nothing,
        _out_of_memory,
        jobs=(one_job(workload=Workload(2_400, fails_at=800, out_of_memory=True)),),
    ),
}
