"""A recorded window as the market of a simulated world, and what the controllers made of it.

Lives here: pools that are up, down and priced as recorded, machines that are taken where a pool
goes down, and the machines of a run in the words of a replay. Not here: the replay itself
(`app.backtest`) or the controllers, which are the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from app.backtest.policy_view import Terms
from app.backtest.traces import Window
from app.domain.market.offer import Market, Pool
from app.simulation.engine.virtual_clock import MICROSECONDS, instant
from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.scenario import CALM, EndState
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.simulated_market import Drought, PoolPath
from app.simulation.simulated.world import SIMULATED_LIMITS, JobPlan, WorldSettings

BEGINS_SECONDS = 600.0
"""The window begins when prices are known: a job that came sooner would wait for them."""

LOOK_SECONDS = 150.0
"""Room that controllers keep before the last safe moment, which they look for now and then; a
replay sees it come in every tick. It is added to the deadline, so that both have as much time."""

STEPS_PER_SECOND = 0.5
_CAPACITY = 8
_LONG_BEFORE_US = 72 * 3600 * MICROSECONDS


@dataclass(frozen=True)
class Rented:
    """One machine that trained. pool: an index of the window, -1 for on-demand; hours from the
    window's beginning.
    """

    pool: int
    begin_hours: float
    end_hours: float


def settings_for(terms: Terms, hours: float) -> WorldSettings:
    """A world whose overheads are those of the replay.

    Nothing moves between spot pools but by the choice itself, and a replay has no reserve for
    on-demand machines that come late. Nor does it keep a distance between changes of the market.
    """
    limits = replace(
        SIMULATED_LIMITS,
        on_demand_acquire_seconds=0.0,
        boot_p95_seconds=terms.overhead_seconds - 20.0,
        restore_seconds=20.0,
        migration_saving_share=1.0,
        return_rest_seconds=0.0,
        return_room_share=0.0,
        return_saving_share=0.0,
        return_saving_microusd=0,
        describe_seconds=45.0,
    )
    return WorldSettings(1, hours, market=CALM, limits=limits)


def begin(run: WorldRun, window: Window, terms: Terms) -> None:
    """Put the window's market in place of the world's, and have the job submitted."""
    world = run.world
    paths = world.market.paths
    paths.clear()
    for place, pool in enumerate(pools_of(window)):
        paths[pool] = _path(run, window, place, pool)
        steady = replace(pool, market=Market.ON_DEMAND)
        before = (world.clock.starts_us - _LONG_BEFORE_US,)
        on_demand = round(window.on_demand * 1e6)
        paths[steady] = PoolPath(steady, "ec2", before, (on_demand,), (), 100)
    hours = terms.job_seconds / 3600
    spec = {
        "name": "job",
        "run": "train",
        "resources": {"gpu": "V100"},
        "market": "auto",
        "deadline": f"{terms.deadline_seconds + LOOK_SECONDS:.0f}s",
        "estimate": {"hours": hours, "gpu": "V100"},
    }
    work = Workload(
        total_steps=round(terms.job_seconds * STEPS_PER_SECOND),
        steps_per_second=STEPS_PER_SECOND,
        checkpoint_seconds=120.0,
        progress_seconds=60.0,
    )
    world.plan(JobPlan(spec, work, BEGINS_SECONDS))


def pools_of(window: Window) -> tuple[Pool, ...]:
    """The window's pools by index: zones of two regions."""
    zones = [("us-east-1", f"us-east-1{letter}") for letter in "abcd"]
    zones += [("us-west-2", f"us-west-2{letter}") for letter in "abcd"]
    named = [Pool("aws", region, zone, "ec2-v100", Market.SPOT) for region, zone in zones]
    return tuple(named[place] for place in range(len(window.pools)))


def rented(run: WorldRun, window: Window) -> list[Rented]:
    """The machines that worked for the job, in order of launching."""
    begins_us = run.world.clock.starts_us + round(BEGINS_SECONDS * MICROSECONDS)
    pools = pools_of(window)
    found = []
    for one in sorted(EndState(run).machines(), key=lambda one: (one.launched_us, one.machine_id)):
        spot = one.pool.market is Market.SPOT
        ended_us = one.launched_us if one.ended_us is None else one.ended_us
        hours = ((at - begins_us) / MICROSECONDS / 3600 for at in (one.launched_us, ended_us))
        found.append(Rented(pools.index(one.pool) if spot else -1, *hours))
    return found


def finish_seconds(run: WorldRun) -> float:
    """From the window's beginning until the job had succeeded."""
    began = instant(run.world.clock.starts_us) + timedelta(seconds=BEGINS_SECONDS)
    return float((EndState(run).job().ended_at - began).total_seconds())


def _path(run: WorldRun, window: Window, place: int, pool: Pool) -> PoolPath:
    """The pool as recorded; beyond the window it is as it was last."""
    clock, tick_us = run.world.clock, window.tick_seconds * MICROSECONDS
    begins_us = clock.starts_us + round(BEGINS_SECONDS * MICROSECONDS)
    up = np.r_[True, window.up[place], True]
    edges = [int(edge) for edge in np.flatnonzero(up[1:] != up[:-1])]
    droughts = []
    for from_tick, to_tick in zip(edges[::2], edges[1::2], strict=True):
        droughts.append(Drought(begins_us + from_tick * tick_us, begins_us + to_tick * tick_us))
        run.world.loop.at(droughts[-1].from_us, lambda: _take(run, pool))
    microusd = [round(float(price) * 1e6) for price in window.prices[place]]
    changes = [
        tick for tick in range(len(microusd)) if tick == 0 or microusd[tick] != microusd[tick - 1]
    ]
    times = [begins_us + tick * tick_us for tick in changes]
    times[0] = clock.starts_us - _LONG_BEFORE_US
    prices = tuple(microusd[tick] for tick in changes)
    return PoolPath(pool, "ec2", tuple(times), prices, tuple(droughts), _CAPACITY)


def _take(run: WorldRun, pool: Pool) -> None:
    """A recording tells of no warning: what is there is gone at once."""
    cloud = run.world.clouds[pool.provider]
    for machine in cloud.alive():
        if machine.pool == pool:
            cloud.give_notice(machine, None)
