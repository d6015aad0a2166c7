"""Worlds in which the control plane itself fails, or is told to stop, one thing in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from app.domain.market.offer import Market
from app.simulation.faults.fault_kinds import Fault
from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.scenario import EndState, Scenario, at, check_succeeded, one_job, when
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.simulated_market import Drought

WORKER_DEATHS = 12
_SHORT = (one_job(workload=Workload(total_steps=300, checkpoint_seconds=300.0)),)


def _worker_dies_after(phases: int) -> Callable[[WorldRun], None]:
    def script(run: WorldRun) -> None:
        run.world.worker.die_after(phases)
        when(run, "attempt_succeeded", lambda: run.world.worker.die_after(phases))

    return script


def _every_commit_doubtful(run: WorldRun) -> None:
    for seconds in range(0, 6_000, 20):
        fault = Fault.COMMIT_UNKNOWN if seconds % 40 else Fault.COMMIT_LOST
        at(run, seconds, partial(run.faults.inject, fault))


def _late_launch(run: WorldRun) -> None:
    """The first call to a cloud is made, and its result comes long after the lease has ended."""
    run.world.worker.late.before_apply += [200.0] * 3


def _late_effect(run: WorldRun) -> None:
    run.world.worker.late.before_effect += [200.0] * 3


def _no_rings(run: WorldRun) -> None:
    run.world.wakeups.faults.lose = 1_000_000


def _doubled_rings(run: WorldRun) -> None:
    run.world.wakeups.faults.double = 1_000_000


def _clock_jumps(seconds: float) -> Callable[[WorldRun], None]:
    def script(run: WorldRun) -> None:
        def jump(error: float) -> None:
            run.world.clock.set_error(error)
            run.world.worker.forget()

        at(run, 1_500.0, partial(jump, seconds))
        at(run, 3_000.0, partial(jump, 0.0))

    return script


def _away_for(seconds: float) -> Callable[[WorldRun], None]:
    def script(run: WorldRun) -> None:
        away = partial(run.faults.control_plane_away, seconds)
        when(run, "attempt_started", away, after=700.0)

    return script


def _drained_by_lease(run: WorldRun) -> None:
    """Longer than the agents' lease: they save and end by themselves, and nothing is lost."""
    seen = EndState(run)
    seen.succeeded()
    resumed = seen.attempts()[-1].parent_step
    seen.expect(resumed is not None and resumed > 1_000, f"resumed at {resumed}")


def cancel_races_the_reply(run: WorldRun) -> None:
    """The cloud has started machines, its answer is on the way, and a person cancels."""
    run.world.worker.late.before_apply += [30.0]
    when(run, "launch_submitted", lambda: run.users.cancel(run.world.jobs[0]), after=10.0)


def _cancelled_without_a_leak(run: WorldRun) -> None:
    seen = EndState(run)
    seen.expect(seen.job().state == "cancelled", f"the job is {seen.job().state}")
    seen.expect(bool(seen.machines()), "no machine was ever started")
    unpaid = [one.id for one in seen.instances() if one.launched_at is None]
    seen.expect(not unpaid, f"rows that never met their machine: {unpaid}")


def _cancel_while_training(run: WorldRun) -> None:
    when(run, "attempt_started", lambda: run.users.cancel(run.world.jobs[0]), after=1_000.0)


def _saved_before_it_left(run: WorldRun) -> None:
    seen = EndState(run)
    seen.expect(seen.job().state == "cancelled", f"the job is {seen.job().state}")
    seen.expect(seen.job().committed_step > 450, f"saved {seen.job().committed_step}")


def _pause_and_resume(run: WorldRun) -> None:
    pause = partial(_pause, run)
    when(run, "attempt_started", pause, after=1_000.0)


def _pause(run: WorldRun) -> None:
    run.users.pause(run.world.jobs[0], 900.0)


def _budget(run: WorldRun) -> None:
    more = partial(_resume_with, run, 20_000_000)
    when(run, "stopped_for_budget", more, after=1_800.0)


def _resume_with(run: WorldRun, microusd: int) -> None:
    run.users.resume(run.world.jobs[0], microusd)


def _paused_and_resumed(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    seen.expect("resumed" in seen.kinds(), "it was never paused")


def _moved_to_on_demand(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    seen.expect("moved_to_on_demand" in seen.kinds(), "it stayed on spot")
    seen.expect(seen.job().deadline_missed_at is None, "the deadline was missed")


def _outage_of_spot(run: WorldRun) -> None:
    """No spot pool gives a machine for three hours; on-demand ones can be had throughout."""
    clock, paths = run.world.clock, run.world.market.paths
    for pool, path in sorted(paths.items()):
        if pool.market is Market.SPOT:
            dry = Drought(clock.starts_us, clock.starts_us + 3 * 3_600_000_000)
            paths[pool] = replace(path, droughts=(dry,))


def _left_spot_in_time(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    seen.expect(seen.job().deadline_missed_at is None, "the deadline was missed")
    reasons = [one.document["reason"] for one in seen.decisions()]
    seen.expect("no_offer" in reasons, f"it never waited: {reasons}")
    seen.expect("on_demand" in reasons, f"it never left spot: {reasons}")
    (left,) = [one for one in seen.decisions() if one.document["reason"] == "on_demand"]
    weighed = left.document["on_demand_microusd"], left.document["wait_microusd"]
    early = left.document["slack_seconds"]
    seen.expect(early > 60, f"it waited for the last safe moment: {early} s, {weighed}")
    seen.expect(None not in weighed and weighed[0] < weighed[1], f"not by its cost: {weighed}")


CONTROL_PLANE_SCENARIOS = {
    **{
        f"worker_dies_after_phase_{phases}": Scenario(
            _worker_dies_after(phases), check_succeeded(1), jobs=_SHORT, hours=1.0
        )
        for phases in range(1, WORKER_DEATHS + 1)
    },
    "every_commit_doubtful": Scenario(_every_commit_doubtful, check_succeeded()),
    "late_launch": Scenario(_late_launch, check_succeeded()),
    "late_effect": Scenario(_late_effect, check_succeeded()),
    "no_rings": Scenario(_no_rings, check_succeeded(1)),
    "doubled_rings": Scenario(_doubled_rings, check_succeeded(1)),
    "clock_jumps_ahead": Scenario(_clock_jumps(900.0), check_succeeded(1)),
    "clock_jumps_back": Scenario(_clock_jumps(-40.0), check_succeeded(1)),
    "outage": Scenario(_away_for(1_200.0), check_succeeded(1)),
    "outage_beyond_the_lease": Scenario(_away_for(2_400.0), _drained_by_lease, hours=4.0),
    "cancel_races_a_launch_reply": Scenario(cancel_races_the_reply, _cancelled_without_a_leak),
    "cancel_while_training": Scenario(_cancel_while_training, _saved_before_it_left),
    "pause_and_resume": Scenario(_pause_and_resume, _paused_and_resumed),
    "budget_used_up": Scenario(
        _budget,
        _paused_and_resumed,
        jobs=(one_job(budget_usd="1.60", estimate={"hours": 2, "gpu": "V100", "nodes": 2}),),
        hours=5.0,
    ),
    "outage_before_a_deadline": Scenario(
        _outage_of_spot,
        _left_spot_in_time,
        jobs=(one_job(deadline="4h", estimate={"hours": 1.4, "gpu": "V100", "nodes": 2}),),
        hours=6.0,
    ),
    "deadline_near": Scenario(
        lambda _run: None,
        _moved_to_on_demand,
        jobs=(one_job(deadline="140m", estimate={"hours": 2, "gpu": "V100", "nodes": 2}),),
    ),
}
