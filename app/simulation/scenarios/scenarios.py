"""All named scenarios, and how to run one.

A scenario is small and about one thing; the sweep over seeds (`run_seed`) mixes everything.
"""

from __future__ import annotations

from app.simulation.runs.run_world import WorldResult, WorldRun, run_world
from app.simulation.scenarios.agent_scenarios import AGENT_SCENARIOS
from app.simulation.scenarios.api_scenarios import API_SCENARIOS
from app.simulation.scenarios.byzantine_scenarios import BYZANTINE_SCENARIOS
from app.simulation.scenarios.cloud_scenarios import CLOUD_SCENARIOS
from app.simulation.scenarios.control_plane_scenarios import CONTROL_PLANE_SCENARIOS
from app.simulation.scenarios.elastic_scenarios import ELASTIC_SCENARIOS
from app.simulation.scenarios.hour_scenarios import HOUR_SCENARIOS
from app.simulation.scenarios.migration_scenarios import MIGRATION_SCENARIOS
from app.simulation.scenarios.scenario import Scenario
from app.simulation.simulated.world import WorldSettings

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
