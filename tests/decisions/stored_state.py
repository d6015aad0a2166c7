"""The state of a decision: the rows that it may depend on, and putting them into a database.

Not here: how they lie in the file (`triples_file`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import orjson
from sqlalchemy import Connection, text

from tests.decisions.row_journal import KEYS, Change, Place, Row, place_of

LEFT_OUT: Mapping[str, str] = {
    "events": "history: written by decisions, read by none",
    "phases": "what machines did, second by second: for bills",
    "ledger_entries": "bills; what counts of them is on budgets and jobs",
    "cost_rollups": "bills",
    "books_passes": "bills",
    "books_differences": "bills",
    "metric_points": "charts",
    "log_streams": "logs",
    "log_chunks": "logs",
    "sweeps": "what sweeps found",
    "stale_results": "for sweeps",
    "controller_runs": "for operators",
    "deployment_events": "for operators",
    "job_estimates": "for people: no decision reads them",
    "budget_thresholds": "for people: no decision reads them",
    "api_keys": "for people",
    "sessions": "for people",
    "people": "for people",
    "memberships": "for people",
    "invitations": "for people",
    "logins": "for people",
    "identities": "for people",
    "answered_sign_ins": "for people",
    "sign_in_attempts": "for people",
}
"""Tables that are no part of a state, and why not. A new table is part of it until it is here."""

TABLES = tuple(name for name in KEYS if name not in LEFT_OUT)

# Columns that say nothing to a decision, change all the time, and may be left empty.
_COLUMNS_LEFT_OUT: Mapping[str, frozenset[str]] = {
    "deployment": frozenset({"listening_at", "hearing_since_at", "sweep_asked_at"}),
    "jobs": frozenset({"owner_key_id", "owner_person_id"}),
}
# What a column holds instead: the reading of the newest decision goes by its outline.
_COLUMNS_EMPTIED: Mapping[str, frozenset[str]] = {
    "placement_decisions": frozenset({"document"}),
    "contacts": frozenset({"metrics"}),
}

State = dict[Place, Row]


def states_at(changes: Iterable[Change], seqs: Iterable[int]) -> Iterator[State]:
    """The state after each of these numbers of a journal, which rise. Its rows are shared."""
    state: State = {}
    left = iter(changes)
    waiting = next(left, None)
    for seq in seqs:
        while waiting is not None and waiting.seq <= seq:
            _apply(state, waiting)
            waiting = next(left, None)
        yield _newest_decisions(state)


def _apply(state: State, change: Change) -> None:
    if change.table in LEFT_OUT:
        return
    if change.after is None:
        state.pop(change.place, None)
        return
    left_out = _COLUMNS_LEFT_OUT.get(change.table, frozenset())
    emptied = _COLUMNS_EMPTIED.get(change.table, frozenset())
    state[change.place] = {
        name: {} if name in emptied else value
        for name, value in change.after.items()
        if name not in left_out
    }


def _newest_decisions(state: State) -> State:
    """Without decisions that a newer one of the same job has replaced."""
    newest: dict[str, int] = {}
    for table, key in state:
        if table == "placement_decisions":
            newest[key[0]] = max(newest.get(key[0], 0), key[1])
    return {
        place: row
        for place, row in state.items()
        if place[0] != "placement_decisions" or newest[place[1][0]] == place[1][1]
    }


class LoadedRows:
    """What lies in a database that only this object fills: from state to state by difference."""

    def __init__(self) -> None:
        self._rows: State = {}

    def load(self, connection: Connection, state: State) -> None:
        """Have the database hold these rows and no others, unnoticed by triggers and keys."""
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        gone = [place for place, row in self._rows.items() if state.get(place) != row]
        come = [place for place, row in state.items() if self._rows.get(place) != row]
        for table, rows in _by_table(gone, self._rows).items():
            connection.execute(text(_DELETE[table]), {"rows": orjson.dumps(rows).decode()})
        for table, rows in _by_table(come, state).items():
            connection.execute(text(_INSERT[table]), {"rows": orjson.dumps(rows).decode()})
        self._rows = dict(state)

    def changed(self, changes: Iterable[Change]) -> None:
        """Somebody has written to the database since."""
        for change in changes:
            if change.before is not None:
                self._rows.pop(place_of(change.table, change.before), None)
            if change.after is not None:
                self._rows[change.place] = change.after


def _by_table(places: Iterable[Place], rows: State) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for place in places:
        found.setdefault(place[0], []).append(rows[place])
    return found


_DELETE = {
    table: f"DELETE FROM {table} AS old USING jsonb_populate_recordset(NULL::{table}, "
    f"CAST(:rows AS jsonb)) AS gone WHERE {' AND '.join(f'old.{c} = gone.{c}' for c in columns)}"
    for table, columns in KEYS.items()
}
_INSERT = {
    table: f"INSERT INTO {table} SELECT * FROM jsonb_populate_recordset(NULL::{table}, "
    f"CAST(:rows AS jsonb))"
    for table in KEYS
}
