"""All named scenarios, how to run one, and those in which another pool becomes cheap.

A scenario is small and about one thing; the sweep over seeds (`run_seed`) mixes everything.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from app.simulation.runs.run_world import WorldResult, WorldRun, run_world
from app.simulation.scenarios.agent_scenarios import AGENT_SCENARIOS
from app.simulation.scenarios.api_scenarios import API_SCENARIOS
from app.simulation.scenarios.byzantine_scenarios import BYZANTINE_SCENARIOS
from app.simulation.scenarios.cloud_scenarios import CLOUD_SCENARIOS
from app.simulation.scenarios.control_plane_scenarios import CONTROL_PLANE_SCENARIOS
from app.simulation.scenarios.elastic_scenarios import ELASTIC_SCENARIOS
from app.simulation.scenarios.hour_scenarios import HOUR_SCENARIOS
from app.simulation.scenarios.scenario import EndState, Scenario, one_job, take, when
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.world import WorldSettings

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
    when(run, "migration_begun", partial(take, run, None, -1), after=45.0)


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
    when(run, "migration_begun", partial(take, run, 120.0), after=60.0)


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


SCENARIOS: dict[str, Scenario] = {
    **CLOUD_SCENARIOS,
    **CONTROL_PLANE_SCENARIOS,
    **AGENT_SCENARIOS,
    **API_SCENARIOS,
    **ELASTIC_SCENARIOS,
    **MIGRATION_SCENARIOS,
    **BYZANTINE_SCENARIOS,
    **HOUR_SCENARIOS,
}


def run_scenario(url: str, name: str, seed: int = 1, echo: bool = False) -> WorldResult:
    """Run a scenario on an empty, migrated database. Raises SimulationFailed."""
    scenario = SCENARIOS[name]

    def begin(run: WorldRun) -> None:
        for plan in scenario.jobs:
            run.world.plan(plan)
        scenario.script(run)

    return run_world(
        url,
        WorldSettings(
            seed,
            scenario.hours,
            market=scenario.market,
            limits=scenario.limits,
            echo=echo,
            project_cap_microusd=scenario.project_cap_microusd,
            api_processes=scenario.api_processes,
        ),
        begin,
        scenario.hours,
        f"--scenario {name} --seed {seed}",
        finish=scenario.check,
    )
