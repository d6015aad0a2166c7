"""What came of a decision, in values that outlive a redesign: the decision, its effects, its kind.

Ids that the decision made are named by what they are, instants are told from the decision's own
on, and prose is a mark where it stands: what people read may be said better. Not here: how it was
made to decide (`todays_code`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from tests.decisions.row_journal import Change, Place, Row
from tests.decisions.todays_code import NEW_IDS

PROSE: Final = "…"
TABLES: Final = (
    "jobs",
    "attempts",
    "attempt_members",
    "instances",
    "launches",
    "assignments",
    "budgets",
    "pools",
    "events",
)
"""Tables whose changes are effects of a decision."""

_DECISIONS = "placement_decisions"
# Counters and copies of what else is compared, and what hangs on ids.
_NOT_COMPARED: Mapping[str, frozenset[str]] = {
    "jobs": frozenset({"version", "event_seq", "updated_at"}),
    "attempts": frozenset({"updated_at"}),
    "instances": frozenset({"updated_at", "credential_hash", "nonce_hash", "ordinal"}),
    "launches": frozenset({"client_token", "token_hash", "params_digest", "lease_token"}),
    "events": frozenset({"seq", "at", "message"}),
}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00")
_FIGURES = 6
_NAMED_IN = ("launches", "attempts", "instances", "assignments")
_POOL_FIGURES = ("fits", "chosen", "price_microusd_per_hour", "hazard_per_hour")
_POOL_EXPECTED = ("expected_microusd", "expected_finish_seconds")
_FIGURES_TOLD = (
    "verdict",
    "reason",
    "fence",
    "last_safe_at",
    "slack_seconds",
    "work_left_seconds",
    "wait_microusd",
    "spot_microusd",
    "on_demand_microusd",
)


@dataclass(frozen=True)
class Outcome:
    """decision: as it is stored for people, without prose; None where none was stored.

    effects: what became of rows, by table and row. kind: what it is counted as.
    """

    kind: str
    decision: Mapping[str, Any] | None
    effects: Sequence[Sequence[Any]]


def outcome_of(trigger: Mapping[str, Any], changes: Iterable[Change], at: datetime) -> Outcome:
    """What a decision's own changes, in their order, come to."""
    rows = _folded(changes)
    told = [after for (table, _), (_, after) in rows.items() if table == _DECISIONS and after]
    words = _Words(at)
    decision = words.decision(told[-1]["document"]) if told else None
    words.name_new_rows(rows)
    effects = sorted(
        (
            [table, words.key(key, after), words.fields(table, before, after)]
            for (table, key), (before, after) in rows.items()
            if table in TABLES and table != "events" and before != after
        ),
        key=_order,
    )
    effects = [one for one in effects if one[2] != {}]
    events = [
        ["events", words.fields("events", None, row)]
        for (table, _), (_, row) in rows.items()
        if table == "events" and row is not None
    ]
    kinds = sorted({row[1]["kind"] for row in events})
    return Outcome(_kind(trigger, decision, kinds, bool(effects)), decision, [*effects, *events])


def _kind(
    trigger: Mapping[str, Any], decision: Mapping[str, Any] | None, events: list[str], acted: bool
) -> str:
    """`turn of claim_jobs: wait no_offer, waiting`."""
    said = [] if decision is None else [f"{decision['verdict']} {decision['reason']}"]
    came = ", ".join([*said, *events])
    return f"{source_of(trigger)}: {came or ('rows alone' if acted else 'nothing')}"


def source_of(trigger: Mapping[str, Any]) -> str:
    """What made the decision come, in a few words."""
    if trigger["kind"] == "turn":
        return str(trigger["controller"])
    if trigger["kind"] == "report":
        facts = {fact["kind"] for fact in trigger["report"]["facts"]} - {"phase", "metrics"}
        return f"report of {', '.join(sorted(facts)) or 'nothing new'}"
    if trigger["kind"] == "registration":
        return "registration"
    if trigger["kind"] == "seen":
        states = {machine["state"] for machine in trigger["machines"]}
        return f"cloud shows {', '.join(sorted(states)) or 'none'}"
    answer = trigger["answer"]
    if "error" in answer:
        return f"launch answered {'nothing' if answer['unknown'] else answer['error']}"
    if answer["pending"]:
        return "launch pending"
    return "launch accepted" if answer["accepted"] else "launch refused"


def _folded(changes: Iterable[Change]) -> dict[Place, tuple[Row | None, Row | None]]:
    """Each row before and after all of them, in the order of their first change."""
    rows: dict[Place, tuple[Row | None, Row | None]] = {}
    for one in changes:
        before = rows[one.place][0] if one.place in rows else one.before
        rows[one.place] = (before, one.after)
    return rows


class _Words:
    """Plain values for rows, with names for ids that are new."""

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._names: dict[str, str] = {}

    def name_new_rows(self, rows: Mapping[Place, tuple[Row | None, Row | None]]) -> None:
        """Name what was made by what it is, not by the order in which it was made."""
        for table in _NAMED_IN:
            made = [
                (orjson.dumps(self.fields(table, None, after), option=orjson.OPT_SORT_KEYS), after)
                for (name, _), (before, after) in rows.items()
                if name == table and before is None and after is not None
            ]
            made.sort(key=lambda one: one[0])
            for number, (_, row) in enumerate(made, 1):
                self._names[row["id"]] = f"new {table} {number}"

    def fields(self, table: str, before: Row | None, after: Row | None) -> Any:
        """The columns that are others than before; `gone` for a row that is not there any more."""
        if after is None:
            return "gone"
        old, skipped = before or {}, _NOT_COMPARED.get(table, frozenset())
        return {
            name: self.plain(after.get(name))
            for name in sorted({*old, *after})
            if name not in skipped and old.get(name) != after.get(name)
        }

    def key(self, key: Sequence[Any], row: Row | None) -> Any:
        return [self.plain(part) for part in key]

    def decision(self, document: Mapping[str, Any]) -> dict[str, Any]:
        told = {name: self.plain(document.get(name)) for name in _FIGURES_TOLD}
        unblock = document.get("unblock")
        told["unblock"] = None if unblock is None else unblock.get("microusd_per_hour")
        told["pools"] = [
            [one["pool"], one["market"], *(self.plain(one.get(name)) for name in _of_pool(one))]
            for one in document.get("pools", ())
        ]
        return {name: value for name, value in told.items() if value is not None}

    def plain(self, value: Any) -> Any:
        """The value with instants from now on, rounded figures, names of ids, and no prose."""
        if isinstance(value, Mapping):
            return {name: self.plain(value[name]) for name in sorted(value)}
        if isinstance(value, list):
            return [self.plain(one) for one in value]
        if isinstance(value, float):
            return float(f"{value:.{_FIGURES}g}")
        if not isinstance(value, str):
            return value
        if _INSTANT.fullmatch(value):
            seconds = (datetime.fromisoformat(value) - self._at).total_seconds()
            return f"now{seconds:+.3f}".rstrip("0").rstrip(".")
        named = _UUID.sub(self._name, value)
        return PROSE if " " in value or len(value) > 200 else named

    def _name(self, found: re.Match[str]) -> str:
        name = found[0]
        if not name.startswith(NEW_IDS):
            return name
        return self._names.get(name, "new")


def _of_pool(pool: Mapping[str, Any]) -> Sequence[str]:
    """What is kept of a pool: all of it where it was chosen."""
    return (*_POOL_FIGURES, *_POOL_EXPECTED) if pool.get("fits") else _POOL_FIGURES


def _order(effect: Sequence[Any]) -> tuple[int, bytes]:
    return TABLES.index(effect[0]), orjson.dumps(effect, option=orjson.OPT_SORT_KEYS)
