"""What an audit row costs by its parts: the program's, the statement's, indexes' and triggers'.

Rows are inserted into the audit's own table, into one with its indexes alone and into a bare one,
in turn, many of each together. Not here: what a row adds to a change, where it goes along with
other statements (`audit_cost`).
"""

from __future__ import annotations

import os
from statistics import median
from time import process_time
from typing import Any

import psycopg

from app.domain.access.principal import Principal
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject, entry_of
from app.orchestration.frame.runtime import Runtime
from app.storage.audit.audit_statements import INSERT_ENTRY, entry_parameters
from tests.bench.bench_environment import BenchEnvironment, driver_url
from tests.bench.process_cost import Meter, cpu_seconds
from tests.bench.results import Figure

_ROWS = 400
"""Of one kind together, in one transaction."""
_BARE, _INDEXED, _WHOLE = "bare_entries", "indexed_entries", "audit_entries"


def measure_parts(
    around: BenchEnvironment, url: str, runtime: Runtime, principal: Principal
) -> Figure:
    """A row alone, in microseconds of processor time; its parts are the detail.

    url: of the runtime's database, which gets two more tables.
    """
    rounds = 10 if around.quick else 60
    making: list[float] = []
    sending: list[float] = []
    inserting: dict[str, list[float]] = {_BARE: [], _INDEXED: [], _WHOLE: []}
    clocks = {"app": lambda: cpu_seconds(os.getpid()), "postgres": around.postgres.cpu_seconds}
    with psycopg.connect(driver_url(url)) as connection:
        connection.execute(f"CREATE TABLE {_BARE} (LIKE {_WHOLE} INCLUDING CONSTRAINTS)")
        connection.execute(f"CREATE TABLE {_INDEXED} (LIKE {_WHOLE} INCLUDING ALL)")
        connection.commit()
        for number in range(rounds + 1):
            for table in inserting if number % 2 else reversed(inserting):
                began = process_time()
                rows = [_row(runtime, principal) for _ in range(_ROWS)]
                made = (process_time() - began) / _ROWS * 1e6
                with Meter(clocks) as meter:
                    _insert(connection, table, rows)
                # The first round warms up both.
                if number:
                    making.append(made)
                    sending.append(meter.cost.per(_ROWS, "app"))
                    inserting[table].append(meter.cost.per(_ROWS, "postgres"))
    bare, indexed, whole = (median(found) for found in inserting.values())
    detail = {
        "making_us": round(median(making), 1),
        "sending_us": round(median(sending), 1),
        "statement_us": round(bare, 1),
        "indexes_us": round(indexed - bare, 1),
        "triggers_us": round(whole - indexed, 1),
    }
    around.say("a row alone: " + ", ".join(f"{name} {value}" for name, value in detail.items()))
    total = median(making) + median(sending) + whole
    return Figure("audit", "a row alone, CPU", total, "us", detail=detail)


def _row(runtime: Runtime, principal: Principal) -> dict[str, Any]:
    """As `record_action` makes it of a command."""
    now = runtime.clock.now()
    subject = Subject(SubjectKind.JOB, str(principal.key_id), "digits", principal.project_id)
    before, after = {"state": "queued", "stop_cause": None}, {"state": "paused", "stop_cause": None}
    action, new_id = AuditAction.JOB_PAUSE, runtime.entropy.new_id()
    return entry_parameters(entry_of(new_id, now, principal, action, subject, before, after))


def _insert(connection: psycopg.Connection[Any], table: str, rows: list[dict[str, Any]]) -> None:
    statement = INSERT_ENTRY.replace(_WHOLE, table)
    with connection.pipeline():
        for row in rows:
            connection.execute(statement, row)
    connection.commit()
