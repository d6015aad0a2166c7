"""Worlds of an hour about one promise each: release, money, lineage, silence, the last safe moment.

Small enough that dozens of deliberately broken control planes can be tried in them
(`make simulate-mutants`). Not here: worlds in which somebody lies or errs (`byzantine_scenarios`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from app.domain.market.offer import Market
from app.ports.cloud_provider import RefusalKind
from app.simulation.faults.fault_kinds import Fault
from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.control_plane_scenarios import cancel_races_the_reply
from app.simulation.scenarios.scenario import (
    EndState,
    agent,
    check_succeeded,
    given_back_when_overdue,
    in_an_hour,
    nothing,
    often,
    recovered_with_a_witness,
    short_job,
    take,
    when,
)
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.simulated_market import Drought
from app.simulation.simulated.world import JobPlan

_HALF_AN_HOUR = {"hours": 0.5, "gpu": "V100"}


def _dry(run: WorldRun, *, market: Market, provider: str | None = None) -> None:
    """Pools of this market, and provider, give no machine all day."""
    clock, paths = run.world.clock, run.world.market.paths
    for pool, path in sorted(paths.items()):
        if pool.market is market and provider in (None, pool.provider):
            day = Drought(clock.starts_us, clock.starts_us + 86_400_000_000)
            paths[pool] = replace(path, droughts=(day,))


# --- machines that go ---


def _killed_on_ec2(run: WorldRun) -> None:
    """Taken by EC2 within its first hour, which is free then."""
    _dry(run, market=Market.SPOT, provider="gcp")
    when(run, "checkpoint_committed", partial(take, run, None), after=120.0)


def _killed_when_booked(run: WorldRun) -> None:
    """Taken by EC2 within its first hour, some of which has been booked by then."""
    _dry(run, market=Market.SPOT, provider="gcp")
    when(run, "attempt_started", partial(take, run, None), after=2_100.0)


def _noticed(run: WorldRun) -> None:
    when(run, "attempt_started", partial(take, run, 120.0), after=500.0)


def _noticed_without_kill(run: WorldRun) -> None:
    when(run, "attempt_started", partial(take, run, 120.0, kill=False), after=300.0)


def _terminations_refused(run: WorldRun) -> None:
    def refuse() -> None:
        for cloud in run.world.clouds.values():
            cloud.faults.refuse += [RefusalKind.THROTTLED] * 6

    when(run, "attempt_succeeded", refuse)


def _never_boots(run: WorldRun) -> None:
    """One machine starts, and its agent never says a word."""
    found: list[str] = []

    def hang() -> None:
        silent = [one for one in run.world.agents.values() if not one.registered]
        if silent and not found:
            found.append(silent[0].machine.machine_id)
            silent[0].die()

    for seconds in range(12, 60, 4):
        when(run, "launch_accepted", hang, after=float(seconds))


def _cancelled_at_once(run: WorldRun) -> None:
    when(run, "launch_accepted", lambda: run.users.cancel(run.world.jobs[0]), after=1.0)


def _cancelled(run: WorldRun) -> None:
    seen = EndState(run)
    seen.expect(seen.job().state == "cancelled", f"the job is {seen.job().state}")
    seen.expect(bool(seen.machines()), "no machine was ever started")


def _hangs(run: WorldRun) -> None:
    when(run, "checkpoint_committed", lambda: agent(run, 1).die(), after=60.0)


def _hangs_alone(run: WorldRun) -> None:
    """No peer fails with it: only its silence tells."""
    when(run, "checkpoint_committed", lambda: agent(run).die(), after=60.0)


def _away(run: WorldRun) -> None:
    """Nobody listens for twenty minutes, and one machine is heard some minutes after the others."""

    def away() -> None:
        run.faults.control_plane_away(1_200.0)
        run.faults.cut_off(agent(run, 1), 1_400.0)

    when(run, "attempt_started", away, after=300.0)


# --- checkpoints ---


def _killed_after_the_third(run: WorldRun) -> None:
    when(run, "checkpoint_committed", partial(take, run, None), after=60.0, nth=3)


def _resumed_at_the_newest(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    first, second = seen.attempts()
    seen.expect(
        second.parent_step == first.committed_step > 0,
        f"saved {first.committed_step}, resumed at {second.parent_step}",
    )


# --- money ---


def _zones_apart(run: WorldRun) -> None:
    """Of the cheapest region's two zones the budget bears two machines in one alone."""
    prices = {"us-east-1a": 900_000, "us-east-1b": 1_300_000}
    paths = run.world.market.paths
    for pool, path in sorted(paths.items()):
        if pool.market is Market.SPOT:
            price = prices.get(pool.zone, 1_500_000)
            paths[pool] = replace(path, times_us=path.times_us[:1], prices=(price,))


def _never_started(run: WorldRun) -> None:
    seen = EndState(run)
    seen.expect(seen.job().state == "paused", f"the job is {seen.job().state}")
    seen.expect(not seen.machines(), "machines were asked for")


def _within_the_cap(run: WorldRun) -> None:
    seen = EndState(run)
    states = seen.states()
    seen.expect(set(states.values()) <= {"succeeded", "paused"}, f"{states}")


def _stopped_at_the_cap(run: WorldRun) -> None:
    seen = EndState(run)
    seen.expect(seen.job().state == "paused", f"the job is {seen.job().state}")
    seen.expect("stopped_for_budget" in seen.kinds(), f"{seen.kinds()}")
    seen.expect(bool(seen.machines()), "no machine was ever started")


def _loses_a_machine_at_the_cap(run: WorldRun) -> None:
    often(run, (Fault.PRICE_JUMPS,), every=600.0, since=90.0)
    when(run, "attempt_started", partial(take, run, 120.0), after=400.0)


# --- deadlines ---


def _spot_is_dry(run: WorldRun) -> None:
    _dry(run, market=Market.SPOT)
    moved: dict[str, Any] = {}

    def look() -> None:
        moved.setdefault("job", EndState(run).job())
        moved.setdefault("at", run.world.clock.now())

    when(run, "moved_to_on_demand", look)
    run.notes["moved"] = moved


def _left_at_the_last_safe_moment(run: WorldRun) -> None:
    seen, moved = EndState(run), run.notes["moved"]
    seen.succeeded()
    seen.expect(bool(moved), "it never left spot")
    job, at = moved["job"], moved["at"]
    limits = run.world.runtime.limits
    start_up = limits.on_demand_acquire_seconds + limits.boot_p95_seconds + limits.restore_seconds
    safe = job.deadline_at - timedelta(seconds=start_up + 1_800.0)
    seen.expect(job.deadline_missed_at is None, "the deadline was missed")
    seen.expect(
        at <= safe + timedelta(seconds=60), f"it left spot at {at}, and was safe until {safe}"
    )


def _slower_than_estimated(run: WorldRun) -> None:
    registered: list[int] = []

    def look() -> None:
        on_demand = [
            one for one in EndState(run).instances() if one.market == Market.ON_DEMAND.value
        ]
        registered.append(sum(one.state == "registered" for one in on_demand))

    when(run, "drain_ordered_yield", look)
    run.notes["registered"] = registered


def _acquired_before_it_released(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    seen.expect(seen.job().deadline_missed_at is None, "the deadline was missed")
    seen.expect(run.notes["registered"][:1] == [1], f"it yielded to {run.notes['registered']}")


def _budgeted(usd: str) -> JobPlan:
    return short_job(budget_usd=usd, estimate={**_HALF_AN_HOUR, "nodes": 2})


_RACING = tuple(short_job(name=name) for name in ("job", "job-1", "job-2", "job-3"))
_SLOW = Workload(total_steps=1_500, checkpoint_seconds=300.0)

HOUR_SCENARIOS = {
    "hour_calm": in_an_hour(nothing, check_succeeded(1), short_job(4)),
    "hour_killed_on_ec2": in_an_hour(_killed_on_ec2, check_succeeded(2)),
    "hour_killed_when_booked": in_an_hour(
        _killed_when_booked, check_succeeded(2), short_job(2, _SLOW)
    ),
    "hour_noticed": in_an_hour(_noticed, _resumed_at_the_newest),
    "hour_noticed_without_kill": in_an_hour(_noticed_without_kill, given_back_when_overdue),
    "hour_terminations_refused": in_an_hour(_terminations_refused, check_succeeded(1)),
    "hour_never_boots": in_an_hour(_never_boots, check_succeeded()),
    "hour_cancelled_at_once": in_an_hour(_cancelled_at_once, _cancelled),
    "hour_cancel_races_a_reply": in_an_hour(cancel_races_the_reply, _cancelled),
    "hour_hangs": in_an_hour(_hangs, recovered_with_a_witness),
    "hour_hangs_alone": in_an_hour(_hangs_alone, recovered_with_a_witness, short_job(1)),
    "hour_away": in_an_hour(_away, check_succeeded(1)),
    "hour_pruned": in_an_hour(
        _killed_after_the_third, _resumed_at_the_newest, short_job(checkpoint={"keep": 1})
    ),
    "hour_budget_too_small": in_an_hour(nothing, _never_started, _budgeted("0.10")),
    "hour_budget_of_a_project": in_an_hour(
        nothing, _within_the_cap, *_RACING, project_cap_microusd=1_200_000
    ),
    "hour_budget_below_some_bids": in_an_hour(_zones_apart, _stopped_at_the_cap, _budgeted("0.55")),
    "hour_budget_used_up": in_an_hour(nothing, _stopped_at_the_cap, _budgeted("0.90")),
    "hour_budget_and_a_loss": in_an_hour(
        _loses_a_machine_at_the_cap, _within_the_cap, _budgeted("2.20")
    ),
    "hour_spot_is_dry": in_an_hour(
        _spot_is_dry,
        _left_at_the_last_safe_moment,
        short_job(1, deadline="100m", estimate={**_HALF_AN_HOUR, "nodes": 1}),
    ),
    "hour_slower_than_estimated": in_an_hour(
        _slower_than_estimated,
        _acquired_before_it_released,
        short_job(1, _SLOW, deadline="80m", estimate={**_HALF_AN_HOUR, "nodes": 1}),
    ),
}
