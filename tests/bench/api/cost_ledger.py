"""Reports over a ledger of a million entries, and how fast entries are written.

The entries are those of many projects over ninety days, with the rollup that belongs to them; the
database writes them itself. A report reads the rollup; what it says of the ledger is what the
controller that compares the two has found. Not here: whether they agree (the tests).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from statistics import median
from time import perf_counter
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import Engine, insert

from app.storage.money.cost_figures import CostGroup
from app.storage.money.cost_read_models import CostReports
from app.storage.money.money_repository import LedgerRow
from app.storage.schema.money_tables import ledger_entries
from app.storage.session.engine import make_engine
from tests.bench.bench_environment import BenchEnvironment, driver_url
from tests.bench.results import Figure
from tests.support.api.agent_api import Gang, make_gang, make_runtime

PROJECTS = 200
DAYS = 90
_LAST_DAY = date(2026, 6, 30)
_BATCH = 48

_FILL = (
    """
    CREATE TEMP TABLE payers AS
    SELECT n, uuidv7() AS project_id, uuidv7() AS job_id, uuidv7() AS instance_id
    FROM generate_series(0, %(projects)s - 1) AS n
    """,
    """
    INSERT INTO projects (id, name, created_at)
    SELECT project_id, 'project-' || n, now() FROM payers
    """,
    """
    INSERT INTO instances
    SELECT (jsonb_populate_record(one, jsonb_build_object(
        'id', payers.instance_id, 'job_id', payers.job_id, 'provider_instance_id', 'bench-' || n,
        'launched_at', %(first_at)s, 'ended_at', NULL, 'cost_final_at', now()
    ))).*
    FROM payers, instances AS one
    """,
    """
    INSERT INTO ledger_entries (
        id, instance_id, component, usage_hour_at, job_id, project_id, kind, amount_microusd,
        usage_from_at, usage_to_at, booked_at, price_source, rule_id, estimated
    )
    SELECT uuidv7(), instance_id, 'compute', at, job_id, project_id, 'accrual',
        1000 + n %% 997, at, at + interval '1 h', at + interval '1 h', 'bench', 'bench', false
    FROM (
        SELECT payers.*,
            date_trunc(
                'hour', %(first_at)s + %(hours)s * interval '1 h' * entry / %(entries)s
            ) AS at
        FROM generate_series(0, %(entries)s - 1) AS entry
        JOIN payers ON payers.n = entry %% %(projects)s
        ORDER BY entry
    ) AS used
    """,
    """
    INSERT INTO cost_rollups (
        instance_id, rollup_key, day, project_id, job_id, component, kind, amount_microusd, entries
    )
    SELECT instance_id, concat_ws('/', day, project_id, job_id, component, kind), day, project_id,
        job_id, component, kind, sum(amount_microusd), count(*)
    FROM (SELECT *, (usage_hour_at AT TIME ZONE 'UTC')::date AS day FROM ledger_entries) AS dated
    GROUP BY instance_id, day, project_id, job_id, component, kind
    """,
    "ANALYZE",
)


def measure(around: BenchEnvironment) -> list[Figure]:
    """Fill, report, write."""
    entries = 50_000 if around.quick else 1_000_000
    with ExitStack() as stack:
        url = around.postgres.clone()
        engine = make_engine(url)
        stack.callback(engine.dispose)
        around.say(f"writing {entries:,} ledger entries")
        began = perf_counter()
        gang = make_gang(engine, make_runtime(engine, around.new_folder("store")))
        project_id = _fill(url, entries)
        around.say(f"written in {perf_counter() - began:.0f} s")
        return _reports(around, engine, project_id, entries) + _writing(around, engine, gang)


def _fill(url: str, entries: int) -> UUID:
    values = {
        "projects": PROJECTS,
        "entries": entries,
        "hours": DAYS * 24,
        "first_at": datetime.combine(_LAST_DAY, time(), UTC) - timedelta(days=DAYS - 1),
    }
    with psycopg.connect(driver_url(url), autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET timezone = 'UTC'")
        for statement in _FILL:
            named = values if "%(" in statement else None
            connection.execute(statement, named)
        found = connection.execute("SELECT project_id FROM payers LIMIT 1").fetchone()
    if found is None:
        raise RuntimeError("no project was written")
    project_id: UUID = found[0]
    return project_id


def _reports(
    around: BenchEnvironment, engine: Engine, project_id: UUID, entries: int
) -> list[Figure]:
    reports = CostReports(engine)
    whole = reports.period_costs(_LAST_DAY - timedelta(days=DAYS), _LAST_DAY)
    if len(whole.by_day) != DAYS or whole.total_microusd == 0:
        raise RuntimeError("the report does not show what was written")
    week, month, quarter = (_LAST_DAY - timedelta(days=n - 1) for n in (7, 30, DAYS))

    def period(since: date, project: UUID | None = None) -> Callable[[], object]:
        return lambda: reports.period_costs(since, _LAST_DAY, CostGroup.PROJECT, project_id=project)

    asked = {
        "one project, 30 days": (period(month, project_id), 5.0),
        "all projects, 7 days": (period(week), 20.0),
        f"all projects, {DAYS} days": (period(quarter), 100.0),
    }
    figures = []
    for what, (ask, goal) in asked.items():
        ask()
        taken = median(_milliseconds(ask) for _ in range(3 if around.quick else 5))
        around.say(f"{what}: {taken:.0f} ms")
        name = f"report over {entries:,} entries: {what}"
        figures.append(Figure("costs", name, taken, "ms", goal))
    return figures


def _writing(around: BenchEnvironment, engine: Engine, gang: Gang) -> list[Figure]:
    """One machine's entries as accrual books them, beside a plain insert of the same rows."""
    runtime = make_runtime(engine, around.new_folder("store"))

    def booked(rows: list[LedgerRow]) -> None:
        with runtime.begin() as uow:
            uow.money.append_entries(rows)

    def plain(rows: list[LedgerRow]) -> None:
        with engine.begin() as connection:
            connection.execute(insert(ledger_entries), rows)

    found: dict[str, list[float]] = {"booked": [], "plain": []}
    for _ in range(5 if around.quick else 30):
        for name, write in (("booked", booked), ("plain", plain)):
            rows = _entries(gang)
            found[name].append(_milliseconds(partial(write, rows)) / 1000)
    taken = {name: median(seconds) for name, seconds in found.items()}
    what = f"entries of a machine, {_BATCH} to a transaction"
    return [
        Figure("costs", f"{what}, of plain inserts/s", taken["plain"] / taken["booked"], "x",
               0.65, False),
        Figure("costs", f"{what}, with rollup and budgets", _BATCH / taken["booked"], "/s"),
    ]  # fmt: skip


def _entries(gang: Gang) -> list[LedgerRow]:
    """Two days of a machine, hour by hour."""
    begin = datetime(2026, 7, 1, tzinfo=UTC)
    hours = [begin + timedelta(hours=number) for number in range(_BATCH)]
    return [
        {
            "id": uuid4(),
            "instance_id": gang.instance_ids[0],
            "component": "compute",
            "assignment_id": None,
            "usage_hour_at": hour,
            "job_id": gang.job_id,
            "project_id": None,
            "attempt_id": None,
            "kind": "accrual",
            "reason": None,
            "amount_microusd": 900_000,
            "usage_from_at": hour,
            "usage_to_at": hour + timedelta(hours=1),
            "booked_at": hour + timedelta(hours=1),
            "price_source": "bench",
            "price_captured_at": None,
            "rule_id": "bench",
            "estimated": False,
        }
        for hour in hours
    ]


def _milliseconds(ask: Callable[[], object]) -> float:
    began = perf_counter()
    ask()
    return 1000 * (perf_counter() - began)
