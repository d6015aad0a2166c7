"""Let one world live, come to rest, and hold it against the rules all the way.

Not here: what is in the world (`run_seed`, `scenarios`), or the database it runs on
(`scratch_database`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, StaticPool, create_engine, select, text

from app.simulation.engine.event_log import EventLog
from app.simulation.faults.fault_kinds import Fault
from app.simulation.faults.faults import Faults
from app.simulation.runs.failure_report import SimulationFailed, failure_report
from app.simulation.simulated.simulated_users import SimulatedUsers
from app.simulation.simulated.world import World, WorldSettings
from app.simulation.watches.invariants import Invariants
from app.storage.schema.tables import metadata

SETTLE_HOURS_MAX = 48.0
_LOOK_HOURS = 0.5

_LEFT_OUT = frozenset({"controller_runs"})


@dataclass(frozen=True)
class WorldResult:
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
class WorldRun:
    """A world with its people, faults and rules: what a scenario's script works with.

    notes: what a script has seen, for its check.
    """

    world: World
    users: SimulatedUsers
    faults: Faults
    invariants: Invariants
    notes: dict[str, Any] = field(default_factory=dict)


def run_world(
    url: str,
    settings: WorldSettings,
    begin: Callable[[WorldRun], None],
    hours: float,
    again: str,
    *,
    shuffled: bool = False,
    finish: Callable[[WorldRun], None] | None = None,
) -> WorldResult:
    """Let a world live for so many hours and come to rest, checked all the way.

    again: the arguments that run the same world by hand. finish: looked at once it rests. Raises
    SimulationFailed with a report.
    """
    with _engine(url, shuffled) as engine:
        world = World(settings, engine)
        users = SimulatedUsers(world)
        run = WorldRun(world, users, Faults(world, users), Invariants(world))
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
            report = failure_report(world, run.faults.history, error, again)
            raise SimulationFailed(report) from error
        finally:
            quiet.setLevel(level)


def _settle(run: WorldRun, hours: float) -> None:
    """Faults have stopped: wait until nothing moves any more, for a bounded time."""
    until = hours
    while not run.invariants.at_rest() and until < hours + SETTLE_HOURS_MAX:
        until += _LOOK_HOURS
        run.world.run(until)
        run.invariants.check_all()


def _outcome(run: WorldRun) -> WorldResult:
    world = run.world
    with world.engine.connect() as connection:
        rows = connection.execute(text("SELECT name, state FROM jobs ORDER BY name"))
        states = {row.name: row.state for row in rows}
        log_tables(connection, world.log)
    return WorldResult(
        seed=world.settings.seed,
        digest=world.log.digest,
        virtual_hours=world.clock.elapsed_seconds / 3600,
        events=world.loop.happened,
        transactions=world.transactions.count,
        machines=sum(len(cloud.machines) for cloud in world.clouds.values()),
        states=states,
        faults=dict(run.faults.history.counts),
    )


# A bitmap finds rows by index and reads them by place. Where a row comes to lie depends on when the
# server removes old versions, and that on transactions in all its databases: on chance.
_BY_INDEX = "-c enable_seqscan=off -c enable_bitmapscan=off"
_BY_PLACE = (
    "-c enable_indexscan=off -c enable_indexonlyscan=off -c enable_bitmapscan=off "
    "-c enable_hashagg=off -c enable_hashjoin=off"
)


@contextmanager
def _engine(url: str, shuffled: bool) -> Iterator[Engine]:
    """One connection. Rows are found by index, or in the order in which they happen to lie and are
    then sorted by whatever they are joined or grouped by.
    """
    order = _BY_PLACE if shuffled else _BY_INDEX
    engine = create_engine(
        url,
        poolclass=StaticPool,
        pool_reset_on_return=None,
        connect_args={
            "options": f"-c timezone=UTC -c jit=off {order}",
            "connect_timeout": 60,
            "prepare_threshold": None,
        },
    )
    try:
        yield engine
    finally:
        engine.dispose()


def log_tables(connection: Connection, log: EventLog, known: MetaData = metadata) -> None:
    """Write a digest of every table into the log."""
    for table in sorted(known.tables.values(), key=lambda one: one.name):
        if table.name in _LEFT_OUT:
            continue
        digest, rows = hashlib.sha256(), 0
        for row in connection.execute(select(table).order_by(*table.primary_key.columns)):
            digest.update(repr(tuple(row)).encode())
            rows += 1
        log.write("table", f"{table.name}: {rows} rows, {digest.hexdigest()[:16]}")
