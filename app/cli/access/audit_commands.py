"""`lowtide audit`: what people have done, as a list, as a file, and whether it is as it was.

Not here: how any of it is kept or compared.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.command_groups import CommandList, DefaultCommandGroup
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.terminal import Column, Terminal

audit = CommandList(cls=DefaultCommandGroup, help="What people did: list it, export it, verify it.")

DIFFERS: Final = 1
_REFUSED_MAX: Final = 1_000
_PARTS_MAX: Final = 1_000_000
_DIFFERENCES_MAX: Final = 100

_Who = Annotated[
    str | None,
    typer.Option(
        "--who",
        metavar="NAME",
        help="Only what this person or key did; a person's key is also PERSON/KEY.",
    ),
]
_Action = Annotated[
    str | None,
    typer.Option("--action", metavar="ACTION", help="As job.cancel, or job; with commas."),
]
_Day = Annotated[
    str | None, typer.Option("--day", metavar="DAY", help="Of this day in UTC: 2026-03-01.")
]


class ExportForm(StrEnum):
    """In which form rows are exported."""

    CSV = "csv"
    JSONL = "jsonl"


@audit.command("list")
@api_command(
    "lowtide audit",
    "lowtide audit list --who ci --action job --day 2026-03-01",
    "lowtide audit list --refused",
)
def list_audit(
    invocation: Invocation,
    who: _Who = None,
    action: _Action = None,
    day: _Day = None,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Show at most this many.")
    ] = 50,
    refused: Annotated[
        bool, typer.Option("--refused", help="Refused attempts by minute instead; at most 1000.")
    ] = False,
) -> None:
    """List what people did, newest first (`lowtide audit` alone).

    A maintainer's key lists its project, an auditor's or an admin's every project.
    """
    if refused:
        if who is not None or action is not None:
            raise CommandFailed("--refused goes with --day and --limit only: leave the others out")
        if limit > _REFUSED_MAX:
            raise CommandFailed(f"--limit: at most {_REFUSED_MAX:,} with --refused")
        query = {"day": day, "limit": limit}
        counts = invocation.api.get("/audit/refusals", query)["items"]
        empty = "No attempt was refused."
        invocation.terminal.listing(_REFUSED_COLUMNS, counts, result="address", empty=empty)
        return
    query = {"who": who, "action": action, "day": day}
    rows = invocation.api.pages("/audit", query, limit=limit)
    invocation.terminal.listing(_COLUMNS, rows, result="id", empty="Nothing was done.")


@audit.command("export")
@api_command(
    "lowtide audit export > audit.csv",
    "lowtide audit export --format jsonl --day 2026-03-01 > day.jsonl",
)
def export(
    invocation: Invocation,
    form: Annotated[
        ExportForm, typer.Option("--format", metavar="FORM", help="csv or jsonl.")
    ] = ExportForm.CSV,
    who: _Who = None,
    action: _Action = None,
    day: _Day = None,
) -> None:
    """Print every row, newest first, as CSV or JSON lines."""
    if invocation.terminal.as_json or invocation.terminal.quiet:
        raise CommandFailed("an export has whole rows: use --format jsonl, or `lowtide audit list`")
    query = {"who": who, "action": action, "day": day, "format": form.value}
    for text in invocation.api.texts("/audit", query):
        invocation.terminal.raw(text)


@audit.command("verify")
@api_command("lowtide audit verify")
def verify(invocation: Invocation) -> None:
    """Compare every row with its seal.

    It compares every seal with its copy outside the database, too, names the first rows that differ
    or are missing, and says how many rows no seal has yet. Exit code 1 if anything differs. Needs
    an auditor's or an admin's key.
    """
    whole = _verified(invocation)
    terminal = invocation.terminal
    if terminal.as_json:
        terminal.json(whole)
    else:
        _print_verification(terminal, whole)
    if not whole["agrees"]:
        raise typer.Exit(DIFFERS)


def _verified(invocation: Invocation) -> dict[str, Any]:
    """All parts as one."""
    differences: list[dict[str, Any]] = []
    seals = rows = after = differences_found = 0
    for _ in range(_PARTS_MAX):
        part = invocation.api.get("/audit/verify", {"after": after})
        seals, rows = seals + part["seals"], rows + part["rows"]
        differences_found += part["differences_found"]
        differences += part["differences"][: _DIFFERENCES_MAX - len(differences)]
        if part["next"] is None:
            break
        after = part["next"]
    return {
        **part,
        "agrees": not differences,
        "seals": seals,
        "rows": rows,
        "differences": differences,
        "differences_found": differences_found,
        "is_cut": differences_found > len(differences) or part["next"] is not None,
    }


def _print_verification(terminal: Terminal, whole: dict[str, Any]) -> None:
    compared = f"{wording.plural(whole['rows'], 'row')} in {wording.plural(whole['seals'], 'seal')}"
    if whole["agrees"]:
        verdict = terminal.paint("agrees", "green")
        terminal.line(f"The audit {verdict}: {compared}, here and outside the database.")
    else:
        verdict = terminal.paint("DOES NOT AGREE", "red")
        terminal.line(f"The audit {verdict}: {compared} compared.")
        for one in whole["differences"]:
            terminal.line(f"- {one['sentence']}")
        more = whole["differences_found"] - len(whole["differences"])
        if more:
            terminal.line(f"- And {wording.plural(more, 'difference')} more.")
    unsealed = whole["unsealed"]
    if unsealed is not None and unsealed["rows"]:
        since = wording.clock_time(unsealed["from_at"])
        terminal.line(
            f"Not sealed yet: {wording.plural(unsealed['rows'], 'row')}, the oldest of {since} UTC."
        )


def _without_key(row: dict[str, Any]) -> str:
    return "a machine" if row["action"] == "secret.deliver" else "the host"


_COLUMNS: Final = (
    Column("TIME (UTC)", lambda row: wording.clock_time(row["at"])),
    Column("WHO", lambda row: row["who"] or _without_key(row)),
    Column("ACTION", lambda row: row["action"]),
    Column("WHAT", lambda row: row["subject_name"]),
    Column("PROJECT", lambda row: row["project"] or wording.NOTHING),
    Column("FROM", lambda row: row["address"] or wording.NOTHING),
    Column(
        "NO.", lambda row: wording.NOTHING if row["number"] is None else f"{row['number']:,}", True
    ),
)
_REFUSED_COLUMNS: Final = (
    Column("MINUTE (UTC)", lambda row: wording.clock_time(row["minute_at"])),
    Column("FROM", lambda row: row["address"]),
    Column("KEY", lambda row: f"{row['key_prefix']}…" if row["key_prefix"] else wording.NOTHING),
    Column("ATTEMPTS", lambda row: f"{row['attempts']:,}", True),
    Column("ACTION", lambda row: row["action"]),
)
