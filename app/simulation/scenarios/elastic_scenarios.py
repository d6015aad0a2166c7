"""Worlds in which the zone of an elastic gang runs dry, one thing in each."""

from __future__ import annotations

from dataclasses import replace

from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.scenario import EndState, Scenario, one_job, take, when
from app.simulation.simulated.simulated_gang import Workload

_ELASTIC = one_job("2..3", estimate={"hours": 2, "nodes": 2}, deadline="150m", market="spot")


def _set_room(run: WorldRun, machines: int) -> None:
    """Every spot pool holds so many machines from now on; it takes none back for it."""
    paths = run.world.market.paths
    for pool, path in sorted(paths.items()):
        if pool.market == "spot":
            paths[pool] = replace(path, capacity=machines)


def _loses_one_and_the_zone_is_dry(run: WorldRun) -> None:
    def dry() -> None:
        _set_room(run, 0)
        take(run, 120.0)

    when(run, "attempt_started", dry, after=1_000.0)


def _goes_on_with_the_survivors(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    counts = [one.node_count for one in seen.attempts()]
    seen.expect(counts[0] == 3 and counts[-1] == 2, f"gangs of {counts}")
    seen.expect("gang_sized" in seen.kinds(), "nobody was told of it")
    seen.expect(len(seen.machines()) == 3, f"{len(seen.machines())} machines in a dry zone")


def _little_room(run: WorldRun) -> None:
    _set_room(run, 2)


def _began_with_what_there_was(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    seen.expect(seen.attempts()[0].node_count == 2, f"{seen.attempts()[0].node_count} at first")


def _loses_two_and_the_zone_is_dry(run: WorldRun) -> None:
    def dry() -> None:
        _set_room(run, 0)
        for place in (0, 1):
            take(run, 120.0, place)

    when(run, "attempt_started", dry, after=1_000.0)
    when(run, "attempt_started", lambda: _set_room(run, 3), after=2_000.0)


def _began_anew_elsewhere(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    lost = [one for one in seen.instances() if one.noticed_at is not None]
    seen.expect(len(lost) == 2, f"{len(lost)} were taken")


def _loses_one_and_the_zone_recovers(run: WorldRun) -> None:
    _loses_one_and_the_zone_is_dry(run)
    when(run, "attempt_started", lambda: _set_room(run, 6), after=2_500.0)


def _grew_again(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    counts = [one.node_count for one in seen.attempts()]
    reasons = [one.end_reason for one in seen.attempts()]
    seen.expect(counts == [3, 2, 3], f"gangs of {counts}, which ended {reasons}")
    seen.expect(reasons[1] == "resized", f"they ended {reasons}")
    seen.expect(seen.job().retries_used == 0, "a resize has cost a retry")


ELASTIC_SCENARIOS = {
    "elastic_grows_again": Scenario(
        _loses_one_and_the_zone_recovers,
        _grew_again,
        # Its deadline asks for three: without one, price and hazard decide between two and three.
        jobs=(
            one_job(
                "2..3",
                Workload(total_steps=9_000, checkpoint_seconds=900.0),
                estimate={"hours": 5.3, "nodes": 2},
                deadline="7h",
                market="spot",
            ),
        ),
        hours=9.0,
    ),
    "elastic_without_replacement": Scenario(
        _loses_one_and_the_zone_is_dry, _goes_on_with_the_survivors, jobs=(_ELASTIC,)
    ),
    "elastic_with_little_room": Scenario(
        _little_room, _began_with_what_there_was, jobs=(_ELASTIC,)
    ),
    "elastic_with_too_few_survivors": Scenario(
        _loses_two_and_the_zone_is_dry, _began_anew_elsewhere, jobs=(_ELASTIC,), hours=4.0
    ),
}
