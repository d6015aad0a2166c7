"""`lowtide events`, `checkpoints` and `metrics`: what happened to a job.

Not here: the job as it stands (`list_commands`), why its machines are where they are (`explain`),
its output (`logs`) and its cost (`cost_commands`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from app.cli.client import job_view, wording
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import JobName, job_path
from app.cli.client.terminal import Column
from app.domain.units.numbers import number_text
from app.domain.wording.event_words import actor_words, event_words, without_doubles

_LIMIT: Final = 10_000
_POINTS_SHOWN: Final = 20
_DIGITS: Final = 6

EVENT_COLUMNS: Final = (
    Column("TIME (UTC)", lambda row: wording.clock_time(row["at"])),
    Column("WHAT", lambda row: event_words(row["kind"])),
    Column("MACHINE", lambda row: row.get("machine") or ""),
    Column("BY", lambda row: actor_words(row["actor"], row.get("machine"))),
    Column("MESSAGE", lambda row: row["message"]),
)


@api_command(
    "lowtide events bert-ft",
    "lowtide events bert-ft --kind 'interruption notice'",
)
def events(
    invocation: Invocation,
    job: JobName,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Only this kind: as shown, or as --json has it."),
    ] = None,
) -> None:
    """List what happened to a job, oldest first.

    An event of a job, its attempt and its machines is shown once; --json has every entry.
    """
    path = job_path(invocation.api, job)
    found = invocation.api.pages(f"{path}/events", limit=_LIMIT, turn="after")
    rows = [row for row in found if kind in (None, row["kind"], event_words(row["kind"]))]
    if not invocation.terminal.as_json:
        rows = without_doubles(rows)
    invocation.terminal.listing(EVENT_COLUMNS, rows, result="kind", empty="No event of this kind.")


@api_command("lowtide checkpoints bert-ft")
def checkpoints(invocation: Invocation, job: JobName) -> None:
    """List a job's committed checkpoints, newest first."""
    found = invocation.api.get(f"{job_path(invocation.api, job)}/checkpoints")["items"]
    columns = (
        Column("STEP", lambda row: f"{row['step']:,}", True),
        Column("ATTEMPT", wording.attempt_cell, True),
        Column("SIZE", lambda row: wording.size(row["size_bytes"]), True),
        Column("SAVED (UTC)", lambda row: wording.clock_time(row["committed_at"])),
        Column("NOTE", _checkpoint_note),
    )
    empty = "This job has saved no checkpoint."
    invocation.terminal.listing(columns, found, result="step", empty=empty)


@api_command("lowtide metrics bert-ft", "lowtide metrics bert-ft --json --all")
def metrics(
    invocation: Invocation,
    job: JobName,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Every point, not only {_POINTS_SHOWN} of them.")
    ] = False,
) -> None:
    """Show the numbers a job has reported, step by step."""
    path = job_path(invocation.api, job)
    found = invocation.api.pages(f"{path}/metrics", limit=_LIMIT, turn="after")
    points = found if everything else wording.spread(found, _POINTS_SHOWN)
    names = sorted({name for point in points for name in point["metrics"]})
    columns = (
        Column("STEP", lambda row: f"{row['step']:,}", True),
        Column("ATTEMPT", wording.attempt_cell, True),
        *(Column(name.upper(), _metric(name), True) for name in names),
    )
    empty = "" if points else _no_metrics(invocation.api.get(path))
    invocation.terminal.listing(columns, points, result="step", empty=empty)


def _no_metrics(job: dict[str, Any]) -> str:
    if job["ended_at"] is not None:
        return "No metrics: the job ended before its training reported progress."
    return "No metrics yet: they come with the first progress lines of the training."


def _checkpoint_note(row: dict[str, Any]) -> str:
    notes = [
        name
        for name, true in (
            ("final", row["final"]),
            ("best", row["best"]),
            ("removed", row["pruned_at"]),
        )
        if true
    ]
    values = job_view.metrics(row["metrics"])
    return ", ".join([*notes, *([values] if values else [])])


def _metric(name: str) -> Any:
    def text(row: dict[str, Any]) -> str:
        value = row["metrics"].get(name)
        return wording.NOTHING if value is None else number_text(value, _DIGITS)

    return text
