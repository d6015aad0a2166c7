"""Worlds in which another pool becomes cheap while a gang trains, one thing in each."""

from __future__ import annotations

from dataclasses import replace

from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.scenario import EndState, Scenario, machine, one_job, when
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.simulated_machine import SimulatedMachine

_USUAL, _CHEAP = 1_000_000, 150_000
_CHEAP_FROM_US = 3_600_000_000
_EIGHT_HOURS = one_job(workload=Workload(total_steps=14_400, checkpoint_seconds=900.0))


def _another_pool_becomes_cheap(run: WorldRun) -> None:
    """All spot pools cost the same; the one that is taken last is cheap from the first hour on."""
    clock, paths = run.world.clock, run.world.market.paths
    spot = [pool for pool in sorted(paths) if pool.market == "spot"]
    before = clock.starts_us - 3_600_000_000
    for pool in spot:
        later = _CHEAP if pool == spot[-1] else _USUAL
        times = (before, clock.starts_us + _CHEAP_FROM_US)
        paths[pool] = replace(paths[pool], times_us=times, prices=(_USUAL, later))


def _newest(run: WorldRun) -> SimulatedMachine:
    return machine(run, -1)


def _moved_once(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    first, second = seen.attempts()
    seen.expect(first.end_reason == "migrated", f"the first attempt ended {first.end_reason}")
    seen.expect(
        second.parent_step == first.best_step,
        f"saved at {first.best_step}, resumed at {second.parent_step}",
    )
    seen.expect(len(seen.machines()) == 4, f"{len(seen.machines())} machines for two gangs of two")


def _target_dies_while_booting(run: WorldRun) -> None:
    _another_pool_becomes_cheap(run)

    def kill() -> None:
        taken = _newest(run)
        run.world.clouds[taken.pool.provider].give_notice(taken, None)

    when(run, "migration_begun", kill, after=45.0)


def _stayed_and_went_on(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    kinds = seen.kinds()
    seen.expect("migration_given_up" in kinds, "the move was not given up")
    ended = [one.end_reason for one in seen.attempts()]
    seen.expect("spot_interrupted" not in ended, f"attempts ended {ended}")
    seen.expect(kinds.count("migration_begun") == 2, "it was not tried again later")


def _old_gang_is_interrupted(run: WorldRun) -> None:
    _another_pool_becomes_cheap(run)

    def notice() -> None:
        taken = machine(run)
        run.world.clouds[taken.pool.provider].give_notice(taken, 120.0)

    when(run, "migration_begun", notice, after=60.0)


def _took_over(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    first, second = seen.attempts()
    seen.expect(first.end_reason == "spot_interrupted", f"it ended {first.end_reason}")
    seen.expect(second.parent_step == first.best_step, f"resumed at {second.parent_step}")
    seen.expect("replacement_requested" not in seen.kinds(), "a third gang was asked for")
    seen.expect(len(seen.machines()) == 4, f"{len(seen.machines())} machines for two gangs of two")


MIGRATION_SCENARIOS = {
    "cheaper_pool": Scenario(
        _another_pool_becomes_cheap, _moved_once, jobs=(_EIGHT_HOURS,), hours=11.0
    ),
    "cheaper_pool_takes_its_machines": Scenario(
        _target_dies_while_booting, _stayed_and_went_on, jobs=(_EIGHT_HOURS,), hours=11.0
    ),
    "interrupted_while_moving": Scenario(
        _old_gang_is_interrupted, _took_over, jobs=(_EIGHT_HOURS,), hours=11.0
    ),
}
