"""`lowtide instances`: rented machines, and rehearsing an interruption on the local cloud.

Not here: what can be rented (`offers`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from app.cli.client import job_view, wording
from app.cli.client.command_groups import CommandList, DefaultCommandGroup
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import one_ending_in
from app.cli.client.terminal import Column, style_of_state
from app.domain.units.durations import HOUR_SECONDS, format_duration, parse_duration
from app.domain.units.errors import InvalidValue
from app.domain.wording.machine_words import ended_words

instances = CommandList(cls=DefaultCommandGroup, help="Rented machines; rehearse an interruption.")

_LISTED_MAX: Final = 1_000
_ID_END_MIN: Final = 4
_NOTICE_MAX_SECONDS: Final = HOUR_SECONDS


@instances.command("list")
@api_command(
    "lowtide instances",
    "lowtide instances --job bert-ft --all",
)
def list_instances(
    invocation: Invocation,
    job: Annotated[
        str | None, typer.Option(metavar="JOB", help="Only this job's, by name or id.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also machines that have ended.")
    ] = False,
) -> None:
    """List rented machines (`lowtide instances` alone)."""
    found = _instances(invocation, job, live=not everything)
    empty = "No machine has been rented yet." if everything else "No machine is rented now."
    columns = _columns(datetime.now(UTC))
    invocation.terminal.listing(columns, found, result="id", empty=empty)


@instances.command("interrupt")
@api_command(
    "lowtide instances interrupt bert-ft/m2",
    "lowtide instances interrupt bert-ft/m2 --notice 6s",
    "lowtide instances interrupt bert-ft/m2 --no-notice",
)
def interrupt(
    invocation: Invocation,
    instance: Annotated[
        str, typer.Argument(metavar="MACHINE", help="JOB/m2, the cloud's id, or the end of an id.")
    ],
    notice: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Warning before the kill, for EC2: 10s, 1m, or seconds; default: the simulated "
            "cloud's.",
        ),
    ] = None,
    no_notice: Annotated[bool, typer.Option("--no-notice", help="Kill it without notice.")] = False,
) -> None:
    """Let the local cloud interrupt a machine.

    As a real cloud would: the notice first, then the kill. Refused for any other cloud. Compute
    Engine sets the notice when a machine starts, so no other can be given for its machines.
    """
    if notice is not None and no_notice:
        raise CommandFailed("give --notice or --no-notice, not both")
    seconds = None if notice is None else _notice_seconds(notice)
    row = _one(invocation, instance)
    body = {} if seconds is None and not no_notice else {"notice_seconds": seconds}
    answer = invocation.api.post(f"/instances/{row['id']}/interrupt", body)
    if invocation.terminal.as_json:
        invocation.terminal.json(answer)
        return
    # What the cloud answers: a machine under notice keeps its first deadline.
    left = (datetime.fromisoformat(answer["ends_at"]) - datetime.now(UTC)).total_seconds()
    if invocation.terminal.quiet:
        invocation.terminal.result(row["id"])
    else:
        invocation.terminal.line(_interrupted(row, None if no_notice else left))


def _notice_seconds(written: str) -> float:
    """Of "10s", "1m" or a bare number of seconds. Raises CommandFailed for anything else."""
    try:
        seconds = float(written)
    except ValueError:
        try:
            seconds = parse_duration(written)
        except InvalidValue:
            seconds = math.nan
    if not 0 <= seconds <= _NOTICE_MAX_SECONDS:
        raise CommandFailed(
            f"--notice {written[:40]!r}: write a time from 0s to 1h, as 10s or 1m, or a number of "
            "seconds"
        )
    return seconds


def _interrupted(row: Mapping[str, Any], left_seconds: float | None) -> str:
    """What happens to the machine now. left_seconds: until the kill; None: no notice is given."""
    machine = f"{row.get('name') or row['id']} of {row['job_name']}"
    if left_seconds is None:
        return f"{machine} is killed now, without notice."
    return f"{machine} has its notice; it is killed in {format_duration(max(0, left_seconds))}."


def _one(invocation: Invocation, wanted: str) -> dict[str, Any]:
    """The live machine of that name, of the cloud's id, or with that end of an id."""
    found = {row["id"]: row for row in _instances(invocation, None, live=True)}
    for row in found.values():
        if wanted in names_of(row):
            return dict(row)
    if len(wanted) < _ID_END_MIN:
        raise CommandFailed(
            f"{wanted!r} is too short for an id; write JOB/{wanted} for a machine of a job, as "
            "`lowtide instances` lists them"
        )
    instance_id = one_ending_in(list(found), wanted.lower())
    if instance_id is None:
        raise CommandFailed(
            f"no rented machine is called {wanted!r}; `lowtide instances` lists them", status=404
        )
    return dict(found[instance_id])


def names_of(row: Mapping[str, Any]) -> list[str]:
    """What a machine may be called, but for the end of its id; nothing before the cloud has it."""
    names = [f"{row['job_name']}/{row['name']}"] if row.get("name") else []
    if row["provider_instance_id"]:
        names += [row["provider_instance_id"], wording.cloud_id(row)]
    return names


def _instances(invocation: Invocation, job: str | None, *, live: bool) -> list[dict[str, Any]]:
    query: dict[str, Any] = {"job": job, "live": live, "limit": _LISTED_MAX}
    items: list[dict[str, Any]] = invocation.api.get("/instances", query)["items"]
    return items


def _columns(now: datetime) -> tuple[Column, ...]:
    return (
        Column("JOB", lambda row: row["job_name"]),
        Column("MACHINE", lambda row: row.get("name") or wording.NOTHING),
        Column("CLOUD'S ID", wording.cloud_id),
        Column("POOL", lambda row: wording.pool(row["pool"])),
        Column("DOING", job_view.doing, style=lambda row: style_of_state(row["state"])),
        Column("$/H", lambda row: wording.hourly(row["microusd_per_hour"]), True),
        Column("SINCE", lambda row: wording.ago(row["requested_at"], now)),
        Column("NOTE", _note),
    )


def _note(row: dict[str, Any]) -> str:
    if row["ended_at"] is not None:
        return f"ended {wording.clock_time(row['ended_at'])} UTC by {ended_words(row['ended_by'])}"
    if row["notice_deadline_at"] is not None:
        return f"notice: interrupted at {wording.clock_time(row['notice_deadline_at'])} UTC"
    return job_view.machine_note({"notice": None, **row})
