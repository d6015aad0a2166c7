"""The mixed world of a seed: five jobs on eight machines, and every fault at its rate.

Not here: the life of a world (`run_world`), or worlds about one thing (`scenarios`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from app.simulation.engine.seeded_entropy import Dice
from app.simulation.faults.fault_kinds import RATES, Fault
from app.simulation.runs.run_world import WorldResult, WorldRun, run_world
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.world import JobPlan, WorldSettings

_FAULTS_UNTIL = 0.75
_GROWTH_MAX = 1.5
_ENDING = frozenset(
    {
        Fault.CANCEL,
        Fault.CANCEL_WHILE_LAUNCHING,
        Fault.OUTAGE,
        Fault.BACKUP_RESTORED,
        Fault.BACKUP_UNDER_API,
    }
)


def run_seed(
    url: str,
    seed: int,
    hours: float = 24.0,
    rate: float = 1.0,
    *,
    echo: bool = False,
    shuffled: bool = False,
) -> WorldResult:
    """The mixed world of a seed on an empty, migrated database.

    rate: how many times as often faults happen. shuffled: have the database find rows in another
    physical order. Raises SimulationFailed.
    """
    settings = WorldSettings(seed, hours, echo=echo, api_processes=2)

    def begin(run: WorldRun) -> None:
        dice = run.world.entropy.stream("workload")
        for plan in mixed_jobs(dice, hours):
            run.world.plan(plan)
        run.faults.begin(rates_times(rate), hours * _FAULTS_UNTIL)

    again = f"--seed {seed} --hours {hours:g} --rate {rate:g}"
    return run_world(url, settings, begin, hours, again, shuffled=shuffled)


def rates_times(rate: float) -> dict[Fault, float]:
    """All rates so many times as high; what would end a world too soon grows less."""
    return {
        kind: usual * (min(rate, _GROWTH_MAX) if kind in _ENDING else rate)
        for kind, usual in RATES.items()
    }


def mixed_jobs(dice: Dice, hours: float) -> Iterator[JobPlan]:
    """Five jobs on eight machines, of many lengths; one has little money, one is in a hurry.

    The last one is elastic.
    """
    for number, nodes in enumerate((1, 2, 1, 2, 2)):
        spec = {
            "name": f"job-{number}",
            "run": "train",
            "nodes": "2..3" if number == 4 else nodes,
            "resources": {"gpu": "V100"},
            "estimate": {"hours": max(1, round(hours / 3)), "gpu": "V100", "nodes": nodes},
        }
        workload = Workload(total_steps=round(hours * dice.uniform(300, 1_100)))
        trouble = dice.uniform()
        if trouble < 0.15:
            workload = replace(workload, hangs_at=workload.total_steps // 3)
        elif trouble < 0.3:
            workload = replace(workload, fails_at=workload.total_steps // 2)
        limit = dice.uniform()
        if limit < 0.2:
            spec["budget_usd"] = f"{dice.uniform(0.4, 1.2) * hours * nodes:.2f}"
        elif limit < 0.4:
            spec["deadline"] = f"{round(hours * dice.uniform(0.5, 1.0) * 60)}m"
        elif limit < 0.5:
            spec["max_duration"] = f"{round(hours * dice.uniform(0.3, 0.9) * 60)}m"
        yield JobPlan(spec, workload, dice.uniform(0.0, 1_800.0))
