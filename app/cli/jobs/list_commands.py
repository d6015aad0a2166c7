"""`lowtide jobs` (also `ps`) and `show`.

Not here: commands that change a job (`job_commands`), following a job (`follow`) and its history
(`history`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from app.cli.client import job_view, wording
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import JobName, job_path
from app.cli.client.terminal import Column, style_of_state
from app.domain.units.durations import format_duration


@api_command(
    "lowtide jobs",
    "lowtide jobs -s live",
    "lowtide jobs -l team=nlp --since 7d",
)
def jobs(
    invocation: Invocation,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", "-s", metavar="STATES", help="States with commas; also live and ended."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="TEXT", help="A part of the name.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", "-l", metavar="KEY=VALUE", help="Jobs with this label; repeatable."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Submitted since: 36h, or 2026-03-01T00:00Z.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, metavar="N", help="Show at most this many.")
    ] = 20,
) -> None:
    """List jobs, newest first.

    SAVED compares with on-demand for the same work; it is a dash until a job has ended and its cost
    is final: `lowtide cost JOB` has it so far. If COST says "some waived", a cloud ended a machine
    so early that it does not charge for it: `lowtide cost JOB` has how much. WHY is there if a job
    waits, fails or tries again; a screen shows as much of it as fits, `lowtide show JOB` the whole
    sentence.
    """
    query = {
        "state": state,
        "name": name,
        "label": label or None,
        "since": None if since is None else wording.since(since, datetime.now(UTC)).isoformat(),
    }
    found = invocation.api.pages("/jobs", query, limit=limit)
    terminal = invocation.terminal
    if terminal.to_script(found, (job["name"] for job in found)):
        return
    if not found:
        filtered = any(value is not None for value in query.values())
        terminal.line(
            "No job matches; leave a filter out."
            if filtered
            else "No jobs yet. Submit one: lowtide submit job.yaml"
        )
    else:
        columns = _columns(datetime.now(UTC))
        if any(map(job_view.listed_reason, found)):
            columns.append(Column("WHY", job_view.listed_reason, prose=True))
        terminal.table(columns, found)
        if any(_saving_is_open(job) for job in found):
            terminal.note(
                "SAVED is - until a job has ended and its cost is final; so far: lowtide cost JOB"
            )
        if len(found) == limit:
            terminal.note(f"The newest {limit:,}; ask for more with --limit.")


@api_command("lowtide show flowers-r50")
def show(invocation: Invocation, job: JobName) -> None:
    """Show one job: state and why, progress, machines, money.

    Of a failed or paused job it also names the next commands.
    """
    found = invocation.api.get(job_path(invocation.api, job))
    terminal = invocation.terminal
    if terminal.to_script(found, [found["state"]]):
        return
    terminal.line(terminal.paint(found["name"], "bold"))
    terminal.fields(job_view.summary(found, datetime.now(UTC), terminal))
    if found["machines"]:
        terminal.line()
        terminal.table(job_view.MACHINE_COLUMNS, found["machines"])
    if following := job_view.next_commands(found):
        terminal.line()
        for line in following:
            terminal.line(line)


def _state(job: dict[str, Any]) -> str:
    return f"{job['state']}, disk full" if job.get("disk_full") else str(job["state"])


def _columns(now: datetime) -> list[Column]:
    return [
        Column("ID", lambda job: wording.short_id(job["id"])),
        Column("NAME", lambda job: job["name"]),
        Column("STATE", _state, style=lambda job: style_of_state(job["state"])),
        Column("PROGRESS", _progress),
        Column("ETA/DEADLINE", lambda job: _eta_and_deadline(job, now)),
        Column("WHERE", _where),
        Column("$/H", lambda job: wording.hourly(job["microusd_per_hour"]), True),
        Column("COST", _cost, True),
        Column("SAVED", lambda job: wording.saved(job["net_saved_ratio"]), True),
    ]


def _saving_is_open(job: dict[str, Any]) -> bool:
    """Whether it has cost something, and what it saved is compared only once it has ended."""
    return job["ended_at"] is None and job["spent_microusd"] > 0 and job["net_saved_ratio"] is None


def _progress(job: dict[str, Any]) -> str:
    step = f"step {job['step']:,}" if job["step"] else wording.NOTHING
    return job_view.bar(job, 8) or step


def _cost(job: dict[str, Any]) -> str:
    """ "$0.37", with a mark where a cloud did not charge for a machine, as `show` has how much."""
    spent = wording.money(job["spent_microusd"])
    return f"{spent}, some waived" if job.get("waived") else spent


def _eta_and_deadline(job: dict[str, Any], now: datetime) -> str:
    """ "in 12m 5s / in 1h 58m": when it is done, and when the deadline is; "due in 1h 58m"."""
    if job["ended_at"] is not None:
        return f"ended {wording.ago(job['ended_at'], now)}"
    left, deadline_at = job["remaining_seconds"], wording.instant(job["deadline_at"])
    about = "~" if job["eta_from"] == "estimate" else ""
    eta = "" if left is None else f"in {about}{format_duration(left)}"
    if deadline_at is None:
        return eta or wording.NOTHING
    ahead = (deadline_at - now).total_seconds()
    if ahead < 0:
        due = f"missed {format_duration(-ahead)} ago"
    elif left is None or left <= ahead:
        due = f"{'' if eta else 'due '}in {format_duration(ahead)}"
    else:
        due = f"in {format_duration(ahead)}, late"
    return f"{eta} / {due}" if eta else due


def _where(job: dict[str, Any]) -> str:
    if job.get("replacing"):
        return str(job["replacing"])
    if not job["pools"]:
        return wording.NOTHING
    first, *others = sorted({wording.place(key) for key in job["pools"]})
    more = f" +{len(others)}" if others else ""
    return f"{job['machines']} × {first}{more}"
