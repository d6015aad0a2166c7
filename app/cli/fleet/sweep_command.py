"""`lowtide sweep`: compare every cloud's list with the rows now, and decide on what was kept.

Not here: the end of everything (`destroy`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from app.adapters.system_clock import steady_seconds
from app.cli.client import wording
from app.cli.client.failures import JOB_FAILED
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.terminal import Column, style_of_state

_LOOK_SECONDS: Final = 0.5
_LISTED_SECONDS: Final = 60.0
_FATE: Final = {
    "owned": "known", "kept": "adopted", "would_reap": "would be released", "leaving": "leaving",
}  # fmt: skip


@api_command(
    "lowtide sweep",
    "lowtide sweep --confirm",
)
def sweep(
    invocation: Invocation,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Release unknown machines that were kept.")
    ] = False,
) -> None:
    """Compare the machines in all clouds with the database now.

    Releases machines that the database does not know. If the database seems to lack rows, as after
    a restored backup, it keeps such machines until `lowtide sweep --confirm`. Needs an admin's key.
    """
    document = invocation.api.post("/sweep", {"confirm": confirm})
    listed = wait_for(invocation, all_listed, _LISTED_SECONDS)
    released, document = document.get("released", 0), listed
    terminal = invocation.terminal
    unknown = (row["provider_instance_id"] for row in _unknown(document))
    if not terminal.to_script({**document, "released": released}, unknown):
        print_lists(invocation, document)
        _print_found(invocation, document, released if confirm else None)
    if not all_listed(document):
        terminal.note("Some regions were not listed in time; see the worker's log.")
        raise typer.Exit(JOB_FAILED)


def wait_for(
    invocation: Invocation, done: Callable[[dict[str, Any]], bool], seconds: float
) -> dict[str, Any]:
    """The state of sweeps once it is `done`, or as it stands when the time is over."""
    until = steady_seconds() + seconds
    while True:
        document: dict[str, Any] = invocation.api.get("/sweep")
        if done(document) or steady_seconds() >= until:
            return document
        time.sleep(_LOOK_SECONDS)


def all_listed(document: dict[str, Any]) -> bool:
    """Whether every region was listed since that was asked for."""
    return bool(document["regions"]) and all(one["fresh"] for one in document["regions"])


def print_lists(invocation: Invocation, document: dict[str, Any]) -> None:
    """The last list of every region."""
    now = datetime.now(UTC)
    invocation.terminal.table(
        (
            Column("CLOUD", lambda row: row["provider"]),
            Column("REGION", lambda row: row["region"]),
            Column("MACHINES", lambda row: str(row["machines"]), True),
            Column("LISTED", lambda row: wording.ago(row["swept_at"], now)),
            Column("NOTE", _note),
        ),
        document["regions"],
    )


def print_machines(invocation: Invocation, rows: list[dict[str, Any]]) -> None:
    """Machines with what becomes of each."""
    now = datetime.now(UTC)
    invocation.terminal.table(
        (
            Column("MACHINE", lambda row: row["provider_instance_id"] or wording.NOTHING),
            Column("CLOUD", lambda row: row["provider"]),
            Column("POOL", lambda row: wording.pool(row["pool"])),
            Column(
                "STATE", lambda row: row["state"], style=lambda row: style_of_state(row["state"])
            ),
            Column("JOB", lambda row: row["job_name"] or wording.NOTHING),
            Column("SINCE", lambda row: wording.ago(row["launched_at"], now)),
            Column("$/H", lambda row: wording.hourly(row["microusd_per_hour"]), True),
            Column("FATE", lambda row: _FATE[row["verdict"]]),
        ),
        rows,
    )


def leftovers_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What is there besides machines, with its cloud and region."""
    return [
        {**row, "provider": one["provider"], "region": one["region"]}
        for one in document["regions"]
        for row in one["remains"]
    ]


def print_leftovers(invocation: Invocation, document: dict[str, Any]) -> None:
    """Disks, templates, groups and policies; nothing where there are none."""
    rows = leftovers_of(document)
    if not rows:
        return
    now = datetime.now(UTC)
    invocation.terminal.table(
        (
            Column("KIND", lambda row: row["kind"]),
            Column("ID", lambda row: row["id"]),
            Column("CLOUD", lambda row: row["provider"]),
            Column("REGION", lambda row: row["region"]),
            Column("IDLE", lambda row: _idle(row, now)),
            Column("NOTE", lambda row: row["note"]),
        ),
        rows,
    )


def _idle(row: dict[str, Any], now: datetime) -> str:
    since = row["idle_since_at"]
    return wording.NOTHING if since is None else wording.ago(since, now)


def _print_found(invocation: Invocation, document: dict[str, Any], released: int | None) -> None:
    terminal, unknown = invocation.terminal, _unknown(document)
    known = document["machine_count"] - len(unknown)
    terminal.line(f"{wording.plural(known, 'machine')} known, {len(unknown)} found by sweeps.")
    if unknown:
        print_machines(invocation, unknown)
    print_leftovers(invocation, document)
    for event in document["events"][:5]:
        terminal.line(f"{wording.clock_time(event['at'])} UTC  {event['message']}")
    if released is not None:
        terminal.line(f"Confirmed: {wording.plural(released, 'machine')} released.")
    elif document["mode"] == "adopt":
        terminal.line(f"Rows are missing: {document['reason']}.")
        terminal.line("Unknown machines are kept until `lowtide sweep --confirm` releases them.")


def _unknown(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in document["machines"] if row["origin"] == "adopted"]


def _note(row: dict[str, Any]) -> str:
    if not row["fresh"]:
        return "not listed since"
    return "" if row["complete"] else "the list was incomplete"
