"""`lowtide explain`: why a job's machines are where they are, and what a waiting job waits for.

Not here: the decisions and their reasons, which the api hands out, or what happened since
(`history`).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import JobName, job_path
from app.cli.client.job_view import eta, hazard_head, next_commands, price_columns
from app.cli.client.prose_table import prose, prose_table
from app.cli.client.terminal import Column, Terminal
from app.domain.units.durations import format_duration, whole_minutes
from app.domain.units.instants import clock_time
from app.domain.wording.decision_words import (
    LEFT_NOTE,
    ORDER_BY_PRICE,
    ORDER_BY_SPEED,
    WAYS_EXPECTED,
    WAYS_NOTE,
    verdict_word,
)
from app.domain.wording.machine_words import billing_speed_words

_HISTORY_MAX: Final = 100
_LOOKED_BACK: Final = 20
_POOLS_SHOWN: Final = 12
_CHOSEN: Final = "✓"
_WAYS: Final = (
    ("with spot machines", "spot_microusd"),
    ("by waiting", "wait_microusd"),
    ("with on-demand machines", "on_demand_microusd"),
)

Row = dict[str, Any]


@api_command(
    "lowtide explain bert-ft",
    "lowtide explain bert-ft --history",
    "lowtide explain bert-ft --json",
)
def explain(
    invocation: Invocation,
    job: JobName,
    history: Annotated[
        bool, typer.Option("--history", help=f"Earlier decisions, too; at most {_HISTORY_MAX}.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help=f"All pools considered, not only the best {_POOLS_SHOWN}.")
    ] = False,
) -> None:
    """Explain where a job's machines are, and why.

    Also how safe its deadline is. Every pool considered for the newest decision, with price, quote
    age, hazard (interruptions per hour of a machine), expected cost and time, and why it was or was
    not taken. Of a job that waits: what would unblock it, and at what price.
    """
    terminal = invocation.terminal
    limit = _HISTORY_MAX if history else 1 if terminal.as_json else _LOOKED_BACK
    path = job_path(invocation.api, job)
    found = invocation.api.get(f"{path}/explanation", {"limit": limit})
    decisions = found["decisions"]
    taken = _taken(_placing(decisions)) if decisions else []
    if terminal.to_script(found, (row["pool"] for row in taken)):
        return
    now = datetime.now(UTC)
    _head(terminal, found, now)
    if decisions:
        terminal.line()
        _told(terminal, found, decisions[0], now, everything)
        placing = _placing(decisions)
        if placing is not decisions[0]:
            terminal.line("\nWhere its machines come from:")
            _told(terminal, found, placing, now, everything)
    elif found["waiting"] is None or not found["waiting"]["nearest"]:
        terminal.line("No decision about its machines is recorded yet.")
    if told := billing_speed_words(found.get("billing_speed", 1)):
        prose(terminal, told)
    if history and len(decisions) > 1:
        terminal.line("\nDecisions so far, newest first:")
        prose_table(terminal, _decision_columns(now), _SENTENCE, decisions)
    elif history and decisions:
        terminal.line("\nThere was no other decision before.")
    if following := next_commands(found):
        terminal.line()
        for line in following:
            terminal.line(line)


def _head(terminal: Terminal, found: Row, now: datetime) -> None:
    """The state with its reason, the slack, and what a waiting job waits for."""
    because = f": {found['why']}" if found["why"] else "."
    prose(terminal, f"{found['name']} {wording.standing(found['state'])}{because}")
    end = eta(found, now)
    if end:
        running = found.get("as_it_runs")
        prose(terminal, f"As it runs now, it is {end}{_for_more(running)}")
    prose(terminal, found["slack"])
    # A server of the release before does not tell it.
    if work := found.get("work_by_formula"):
        prose(terminal, _by_formula(work))
    waiting = found["waiting"]
    if waiting is None:
        return
    due = wording.instant(waiting["next_look_at"])
    look = "now" if due is None or due <= now else wording.ahead(waiting["next_look_at"], now)
    prose(terminal, f"Next look {look}. It needs {waiting['needs']}.")
    if waiting["unblocked_by"]:
        terminal.line("\nWhat would unblock it:")
        for way in waiting["unblocked_by"]:
            prose(terminal, way["sentence"], indent="  ")
    if not found["decisions"] and waiting["nearest"]:
        terminal.line("\nThe nearest pools now:")
        prose_table(terminal, _near_columns(found["node_count"]), _WHY, waiting["nearest"])


def _by_formula(work: Row) -> str:
    """How the work was estimated that the spec says nothing of, and what the estimate is good for.

    Decisions do not use it: it is for GPUs in general, and a measured pace is of this job.
    """
    return (
        f"The whole run takes about {whole_minutes(work['seconds'])} on one machine by "
        f"{work['sentence']}. Submission weighs a deadline or a budget by this; decisions about "
        "machines use the pace that is measured."
    )


def _for_more(running: Row | None) -> str:
    """What the rest costs as it runs, and what that figure is; ends the sentence."""
    if not running:
        return "."
    return f", for {wording.money(running['remaining_microusd'])} more. {LEFT_NOTE}"


def _placing(decisions: list[Row]) -> Row:
    """The newest decision that weighed pools: to keep machines is a decision, too."""
    return next((row for row in decisions if row["pools"]), decisions[0])


def _told(terminal: Terminal, found: Row, decision: Row, now: datetime, everything: bool) -> None:
    """One decision with its pools and the ways that were weighed."""
    verdict = verdict_word(decision["verdict"])
    ordinal = wording.attempt(decision)
    attempt = "" if ordinal is None else f", attempt {ordinal}"
    at = f"{wording.clock_time(decision['decided_at'])} UTC"
    held = ""
    if decision["last_confirmed_at"] != decision["decided_at"]:
        held = f", last confirmed {wording.ago(decision['last_confirmed_at'], now)}"
    number = f"Decision {decision['decision_no']}{attempt}"
    prose(terminal, f"{number}: {verdict}, at {at}{held}.")
    prose(terminal, decision["sentence_now"], indent="  ")
    ways = [
        f"{name} {wording.money(decision[key])}" for name, key in _WAYS if decision[key] is not None
    ]
    if ways:
        told_at = f"At the decision {_hour(decision['last_confirmed_at'])}"
        expected = f"{told_at}, {WAYS_EXPECTED} {', '.join(ways)}. {WAYS_NOTE}"
        prose(terminal, expected, indent="  ")
    shown = decision["pools"] if everything else decision["pools"][:_POOLS_SHOWN]
    if not shown:
        return
    running = found.get("as_it_runs")
    shown = [_left(row, running) for row in shown]
    count = decision.get("node_count") or found["node_count"]
    prose_table(terminal, _pool_columns(count), _WHY_NOW, shown)
    if count > 1:
        terminal.line(
            f"HAZARD/H EACH is that of one machine over its life; any of the {count} interrupts "
            "the job."
        )
    if any(row.get("left") for row in shown):
        prose(
            terminal,
            "left: of the pool that the job is in, what is left now, at its pace and price of now. "
            "The other pools are as the decision expected them.",
        )
    if any(row["expected_microusd"] and _by_hour(row) for row in shown):
        by_speed = found.get("compares_speed", True)
        order = ORDER_BY_SPEED if by_speed else ORDER_BY_PRICE
        hour = "hour" if found.get("billing_speed", 1) == 1 else "billed hour"
        machine = f"one {hour} of training on one machine"
        work = f"what a V100 does in one {hour}" if by_speed else machine
        prose(
            terminal,
            f"EXPECTED with /h: for {work}, since this decision did not know how much work was "
            f"left. {order}",
        )
    if not all(map(_by_hour, shown)):
        prose(
            terminal,
            "EXPECTED, WOULD TAKE: for the work left at the decision, in that pool alone, with "
            "start-up and the interruptions to expect there, without a minimum charge and without "
            "what was spent before.",
        )
    rest = len(decision["pools"]) - len(shown)
    if rest:
        terminal.line(f"and {wording.plural(rest, 'pool')} more: --all")


def _left(row: Row, running: Row | None) -> Row:
    """A pool that the job trains in with what is left for the figures that were expected."""
    if running is None or row["pool"] not in running["pools"]:
        return row
    return {
        **row,
        "left": True,
        "expected_microusd": running["remaining_microusd"],
        "expected_finish_seconds": running["remaining_seconds"],
    }


def _hour(text: str) -> str:
    at = wording.instant(text)
    return wording.NOTHING if at is None else clock_time(at)


def _taken(decision: Row) -> list[Row]:
    return [row for row in decision["pools"] if row["chosen"]]


def _held(decision: Row, now: datetime) -> str:
    """How long a decision was, or is, in force."""
    first = wording.instant(decision["decided_at"])
    until = wording.instant(decision["held_until_at"]) or now
    return wording.NOTHING if first is None else format_duration((until - first).total_seconds())


def _by_hour(row: Row) -> bool:
    return row["expected_finish_seconds"] is None


def _expected(row: Row) -> str:
    told = wording.money(row["expected_microusd"])
    told += "/h" if row["expected_microusd"] is not None and _by_hour(row) else ""
    return f"{told} left" if row.get("left") else told


def _hazard(row: Row) -> str:
    hazard = row["hazard_per_hour"]
    return wording.NOTHING if hazard is None or not math.isfinite(hazard) else f"{hazard:.2f}"


def _would_take(row: Row) -> str:
    seconds = row["expected_finish_seconds"]
    if seconds is None:
        return wording.NOTHING
    return f"{format_duration(seconds)} left" if row.get("left") else format_duration(seconds)


def _decision_columns(now: datetime) -> tuple[Column, ...]:
    return (
        Column("NO", lambda row: str(row["decision_no"]), True),
        Column("AT (UTC)", lambda row: wording.clock_time(row["decided_at"])),
        Column("HELD", lambda row: _held(row, now), True),
        Column("DECISION", lambda row: verdict_word(row["verdict"])),
        Column("POOLS", lambda row: _places(_taken(row))),
    )


def _places(rows: list[Row]) -> str:
    return ", ".join(wording.place(row["pool"]) for row in rows) or wording.NOTHING


def _style(row: Row) -> str:
    return "green" if row["chosen"] else "" if row["fits"] else "dim"


def _pool_columns(count: int) -> tuple[Column, ...]:
    return (
        Column("", lambda row: _CHOSEN if row["chosen"] else " ", style=_style),
        Column("POOL", lambda row: wording.pool(row["pool"]), style=_style),
        *price_columns(count, _price),
        _VS_ON_DEMAND,
        Column("QUOTE AGE", lambda row: format_duration(row["quote_age_seconds"]), True),
        Column(hazard_head(count), _hazard, True),
        Column("EXPECTED", _expected, True),
        Column("WOULD TAKE", _would_take, True),
    )


def _near_columns(count: int) -> tuple[Column, ...]:
    return (
        Column("", lambda _row: " "),
        Column("POOL", lambda row: wording.pool(row["pool"])),
        *price_columns(count, _price),
        _VS_ON_DEMAND,
    )


def _price(row: Row) -> int:
    return int(row["price_microusd_per_hour"])


_VS_ON_DEMAND: Final = Column(
    "VS ON-DEMAND", lambda row: wording.against(row["on_demand_ratio"]), True
)
_WHY: Final = Column("WHY", lambda row: row["why"])
_WHY_NOW: Final = Column("WHY", lambda row: row["why_now"])
_SENTENCE: Final = Column("SENTENCE", lambda row: row["sentence_now"])
