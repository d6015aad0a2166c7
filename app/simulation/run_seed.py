"""Run one world: a seed's mix of jobs and faults, or a named scenario, and check it to the end.

Not here: the command (`__main__`), or the database it runs on (`scratch_database`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import Engine, StaticPool, create_engine, text

from app.simulation.failure_report import SimulationFailed, failure_report
from app.simulation.faults import RATES, Fault, Faults
from app.simulation.invariants import Invariants
from app.simulation.people import People
from app.simulation.seeded_entropy import Dice
from app.simulation.simulated_gang import Workload
from app.simulation.table_digest import log_tables
from app.simulation.world import JobPlan, World, WorldSettings

SETTLE_HOURS_MAX = 48.0
_FAULTS_UNTIL = 0.75
_LOOK_HOURS = 0.5


@dataclass(frozen=True)
class Outcome:
    """How a world ended: what two runs of a seed must share, and how much it was."""

    seed: int
    digest: str
    virtual_hours: float
    events: int
    transactions: int
    machines: int
    states: Mapping[str, str]
    faults: Mapping[Fault, int]


@dataclass(frozen=True)
class Run:
    """A world with its people, faults and rules: what a scenario's script works with."""

    world: World
    people: People
    faults: Faults
    invariants: Invariants


def run_seed(
    url: str, seed: int, hours: float = 24.0, echo: bool = False, shuffled: bool = False
) -> Outcome:
    """The mixed world of a seed on an empty, migrated database.

    shuffled: have the database find rows in another physical order. Raises SimulationFailed.
    """
    settings = WorldSettings(seed, hours, echo=echo)

    def begin(run: Run) -> None:
        dice = run.world.entropy.stream("workload")
        for plan in mixed_jobs(dice, hours):
            run.world.plan(plan)
        run.faults.begin(RATES, hours * _FAULTS_UNTIL)

    return run_world(url, settings, begin, hours, f"seed {seed}", shuffled=shuffled)


def run_world(
    url: str,
    settings: WorldSettings,
    begin: Callable[[Run], None],
    hours: float,
    name: str,
    *,
    shuffled: bool = False,
    finish: Callable[[Run], None] | None = None,
) -> Outcome:
    """Let a world live for so many hours and come to rest, checked all the way.

    finish: looked at once it rests. Raises SimulationFailed with a report.
    """
    with _engine(url, shuffled) as engine:
        world = World(settings, engine)
        people = People(world)
        run = Run(world, people, Faults(world, people), Invariants(world))
        world.loop.after_each.append(run.invariants.after_event)
        quiet = logging.getLogger("app.orchestration")
        level = quiet.level
        quiet.setLevel(logging.CRITICAL)
        try:
            begin(run)
            world.run(hours)
            _settle(run, hours)
            run.invariants.check_at_rest(run.faults.history.away_seconds)
            if finish is not None:
                finish(run)
            return _outcome(run)
        except Exception as error:
            report = failure_report(world, run.faults.history, error, name)
            raise SimulationFailed(report) from error
        finally:
            quiet.setLevel(level)


def mixed_jobs(dice: Dice, hours: float) -> Iterator[JobPlan]:
    """Five jobs on eight machines, of many lengths; one has little money, one is in a hurry."""
    for number, nodes in enumerate((1, 2, 1, 2, 2)):
        spec = {
            "name": f"job-{number}",
            "run": "train",
            "nodes": nodes,
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


def _settle(run: Run, hours: float) -> None:
    """Faults have stopped: wait until nothing moves any more, for a bounded time."""
    until = hours
    while not run.invariants.at_rest() and until < hours + SETTLE_HOURS_MAX:
        until += _LOOK_HOURS
        run.world.run(until)


def _outcome(run: Run) -> Outcome:
    world = run.world
    with world.engine.connect() as connection:
        rows = connection.execute(text("SELECT name, state FROM jobs ORDER BY name"))
        states = {row.name: row.state for row in rows}
        log_tables(connection, world.log)
    return Outcome(
        seed=world.settings.seed,
        digest=world.log.digest,
        virtual_hours=world.clock.elapsed_seconds / 3600,
        events=world.loop.happened,
        transactions=world.transactions.count,
        machines=sum(len(cloud.machines) for cloud in world.clouds.values()),
        states=states,
        faults=dict(run.faults.history.counts),
    )


_BY_INDEX = "-c enable_seqscan=off"
_BY_PLACE = "-c enable_indexscan=off -c enable_indexonlyscan=off -c enable_bitmapscan=off"


@contextmanager
def _engine(url: str, shuffled: bool) -> Iterator[Engine]:
    """One connection. Rows are found by index, or in the order in which they happen to lie."""
    order = _BY_PLACE if shuffled else _BY_INDEX
    engine = create_engine(
        url,
        poolclass=StaticPool,
        pool_reset_on_return=None,
        connect_args={"options": f"-c timezone=UTC -c jit=off {order}", "connect_timeout": 5},
    )
    try:
        yield engine
    finally:
        engine.dispose()
