"""Worlds of an hour about what api processes remember of agents, one thing in each.

Not here: the memory (`app.orchestration.directives.agent_report_cache`), or what faults do to it
(`api_process`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from app.simulation.faults.fault_kinds import Fault
from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.scenario import (
    EndState,
    at,
    check_succeeded,
    in_an_hour,
    known_again,
    often,
    short_job,
    take,
    when,
)
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.world import SIMULATED_LIMITS

_QUICK = replace(SIMULATED_LIMITS, report_interval_seconds=20.0)
"""More reports than usual are without news, and so answered from memory."""


def _repeated(fault: Fault, every: float) -> Callable[[WorldRun], None]:
    def script(run: WorldRun) -> None:
        often(run, (fault,), every=every, since=60.0)

    return script


def _answered_from_memory(run: WorldRun) -> None:
    """And most reports were, or the world says nothing about it."""
    EndState(run).succeeded(attempts=1)
    processes = run.world.network.processes
    steady = sum(process.steady_reports for process in processes)
    full = sum(process.full_reports for process in processes)
    EndState(run).expect(steady > full, f"{steady} answers from memory, {full} by a transaction")


def _cancel(run: WorldRun) -> None:
    when(run, "attempt_started", lambda: run.users.cancel(run.world.jobs[0]), after=600.0)


def _cancel_was_noticed(run: WorldRun) -> None:
    """By the next report of each machine, though it has no news of its own."""
    seen = EndState(run)
    job = seen.job()
    seen.expect(job.state == "cancelled", f"the job is {job.state}")
    seen.expect(job.committed_step > 250, f"step {job.committed_step} was saved")


def _backup_under_api(run: WorldRun) -> None:
    """A machine is lost after the backup; the rows of its successor go, and its memory stays."""
    restore = partial(run.faults.byzantine.restore_after, 700.0, True)
    when(run, "checkpoint_committed", restore, after=20.0)
    when(run, "checkpoint_committed", partial(take, run, None), after=40.0)


def _end_lost_under_api(run: WorldRun) -> None:
    """The rows forget that the trainer has failed; its agent has said so, and memory goes on."""
    restores: list[Callable[[], None]] = []

    def back_up() -> None:
        restores.append(run.faults.byzantine.back_up(api_runs_on=True))

    def restore() -> None:
        restores.pop()()

    when(run, "attempt_started", back_up, after=300.0)
    when(run, "attempt_ended_retryable", restore)  # before the next attempt is directed
    at(run, 1_800.0, partial(_end_was_found, run))


def _end_was_found(run: WorldRun) -> None:
    seen = EndState(run)
    first = seen.attempts()[0]
    seen.expect(first.end_reason == "fenced_off", f"the first attempt ended as {first.end_reason}")


_gang_of_two = partial(in_an_hour, api_processes=2)

API_SCENARIOS = {
    "answered_from_memory": _gang_of_two(lambda _run: None, _answered_from_memory),
    "api_processes_die": _gang_of_two(_repeated(Fault.API_KILLED, 75.0), check_succeeded(1)),
    "exchanges_fail": _gang_of_two(
        _repeated(Fault.EXCHANGE_FAILS, 150.0), check_succeeded(1), limits=_QUICK
    ),
    "exchanges_slow": _gang_of_two(_repeated(Fault.EXCHANGE_SLOW, 60.0), check_succeeded(1)),
    "cancelled_from_memory": _gang_of_two(_cancel, _cancel_was_noticed),
    "end_lost_under_api": in_an_hour(
        _end_lost_under_api,
        check_succeeded(2),
        short_job(1, Workload(900, checkpoint_seconds=300.0, fails_at=450)),
    ),
    "backup_under_api": _gang_of_two(_backup_under_api, known_again, limits=_QUICK),
}
