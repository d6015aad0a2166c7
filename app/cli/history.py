"""`lowtide events`, `checkpoints`, `metrics` and `explain`: what happened to a job, and why.

Not here: the job as it stands (`jobs`), its output (`logs`) and its cost (`costs`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from app.cli import job_view, wording
from app.cli.invocation import Invocation, api_command
from app.cli.job_lookup import JobName, job_path
from app.cli.terminal import Column, Terminal

_LIMIT: Final = 10_000
_POINTS_SHOWN: Final = 20
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The placement's own words for the pools that nobody asked about.
_OTHER_MARKET: Final = "another market than asked for"

EVENT_COLUMNS: Final = (
    Column("TIME (UTC)", lambda row: wording.clock_time(row["at"])),
    Column("KIND", lambda row: row["kind"]),
    Column("BY", lambda row: actor(row["actor"])),
    Column("MESSAGE", lambda row: row["message"]),
)


@api_command(
    "lowtide events bert-ft",
    "lowtide events bert-ft --kind interruption_noticed",
)
def events(
    invocation: Invocation,
    job: JobName,
    kind: Annotated[str | None, typer.Option(help="Only this kind.")] = None,
) -> None:
    """List what happened to a job, oldest first."""
    path = job_path(invocation.api, job)
    found = invocation.api.pages(f"{path}/events", limit=_LIMIT, turn="after")
    rows = [row for row in found if kind in (None, row["kind"])]
    _list(invocation.terminal, EVENT_COLUMNS, rows, "kind", "No event of this kind.")


@api_command("lowtide checkpoints bert-ft")
def checkpoints(invocation: Invocation, job: JobName) -> None:
    """List a job's committed checkpoints, newest first."""
    found = invocation.api.get(f"{job_path(invocation.api, job)}/checkpoints")["items"]
    columns = (
        Column("STEP", lambda row: f"{row['step']:,}", True),
        Column("ATTEMPT", lambda row: str(row["fence"]), True),
        Column("SIZE", lambda row: wording.size(row["size_bytes"]), True),
        Column("COMMITTED (UTC)", lambda row: wording.clock_time(row["committed_at"])),
        Column("NOTE", _checkpoint_note),
    )
    empty = "No checkpoint yet: the first one is committed a while after training begins."
    _list(invocation.terminal, columns, found, "step", empty)


@api_command("lowtide metrics bert-ft", "lowtide metrics bert-ft --json --all")
def metrics(
    invocation: Invocation,
    job: JobName,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Every point, not {_POINTS_SHOWN} spread over all.")
    ] = False,
) -> None:
    """Show the numbers a job has reported, step by step."""
    path = job_path(invocation.api, job)
    found = invocation.api.pages(f"{path}/metrics", limit=_LIMIT, turn="after")
    points = found if everything else wording.spread(found, _POINTS_SHOWN)
    names = sorted({name for point in points for name in point["metrics"]})
    columns = (
        Column("STEP", lambda row: f"{row['step']:,}", True),
        Column("ATTEMPT", lambda row: str(row["fence"]), True),
        *(Column(name.upper(), _metric(name), True) for name in names),
    )
    empty = "No metrics yet: they come with the first progress lines of the training."
    _list(invocation.terminal, columns, points, "step", empty)


@api_command(
    "lowtide explain bert-ft",
)
def explain(invocation: Invocation, job: JobName) -> None:
    """Say why a job is where it is.

    The pools that were considered, with the reasons; every decision since; what it waits for.
    """
    api, terminal = invocation.api, invocation.terminal
    path = job_path(api, job)
    found = api.get(path)
    history = api.pages(f"{path}/events", limit=_LIMIT, turn="after")
    claim = next((row for row in reversed(history) if row["data"].get("considered")), None)
    told = [row for row in history if row["kind"] in _DECISIONS]
    if terminal.as_json:
        considered = None if claim is None else claim["data"]["considered"]
        terminal.json(
            {
                "state": found["state"],
                "why": found["why"],
                "next_look_at": found["next_look_at"],
                "considered_at": None if claim is None else claim["at"],
                "considered": considered,
                "decisions": told,
            }
        )
        return
    now = datetime.now(UTC)
    terminal.line(f"{found['name']} is {terminal.state(found['state'])}{_because(found, now)}")
    if claim is not None:
        terminal.line(f"\nPools considered at {wording.clock_time(claim['at'])} UTC, best first:")
        considered = claim["data"]["considered"]
        shown = [row for row in considered if row["why"] != _OTHER_MARKET]
        terminal.table(_CONSIDERED_COLUMNS, shown)
        if len(shown) < len(considered):
            others = wording.plural(len(considered) - len(shown), "pool")
            terminal.line(f"and {others} of the other market")
    if told:
        terminal.line("\nDecisions so far:")
        terminal.table(EVENT_COLUMNS, told)


_DECISIONS: Final = frozenset(
    {
        "claimed", "waiting", "offers_exhausted", "interruption_noticed", "replacement_requested",
        "attempt_ended_retryable", "attempt_ended_fresh", "attempt_ended_fatal", "given_up",
        "stop_ordered", "deadline_unsafe", "deadline_missed", "moved_to_on_demand",
    }
)  # fmt: skip

_CONSIDERED_COLUMNS: Final = (
    Column("POOL", lambda row: wording.pool(row["pool"])),
    Column("$/H", lambda row: wording.hourly(row["price_microusd_per_hour"]), True),
    Column(
        "VS ON-DEMAND",
        lambda row: wording.against_on_demand(
            row["price_microusd_per_hour"], row["on_demand_microusd_per_hour"]
        ),
        True,
    ),
    Column("VERDICT", lambda row: ("✓ " if row["fits"] else "  ") + row["why"]),
)


def actor(text: str) -> str:
    """Who did it, with a long id cut to its end: "agent 93ec1b47"."""
    kind, _, name = text.partition(":")
    return f"{kind} {wording.short_id(name) if _ID.fullmatch(name) else name}"


def _because(job: dict[str, Any], now: datetime) -> str:
    why = (job["why"] or "").rstrip(".")
    parts = [f": {why}."] if why else ["."]
    if job["next_look_at"] is not None:
        parts.append(f" The next look is {wording.ahead(job['next_look_at'], now)}.")
    promise = job_view.deadline(job, now)
    if promise:
        parts.append(f" Deadline {promise}.")
    return "".join(parts)


def _list(
    terminal: Terminal,
    columns: tuple[Column, ...],
    rows: list[Any],
    name: str,
    empty: str,
) -> None:
    if terminal.as_json:
        terminal.json(rows)
    elif terminal.quiet:
        for row in rows:
            terminal.result(str(row[name]))
    elif rows:
        terminal.table(columns, rows)
    else:
        terminal.line(empty)


def _checkpoint_note(row: dict[str, Any]) -> str:
    notes = [
        name for name, true in (("final", row["final"]), ("removed", row["pruned_at"])) if true
    ]
    values = job_view.metrics(row["metrics"])
    return ", ".join([*notes, *([values] if values else [])])


def _metric(name: str) -> Any:
    def text(row: dict[str, Any]) -> str:
        value = row["metrics"].get(name)
        return wording.NOTHING if value is None else f"{value:.6g}"

    return text
