"""`lowtide limits`: the most that the machines of all projects together may be.

Not here: a project's limits, which are in the file of `lowtide project apply`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from app.cli.client import wording
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.terminal import Column, Terminal

_ALL_GPUS = "gpus.all"
"""A number as `gpus` means the same."""
_COLUMNS = (
    Column("LIMIT", lambda row: row["field"]),
    Column("OF", lambda row: row["project"] or "the deployment"),
    Column("USED", lambda row: _amount(row, "used"), True),
    Column("MOST", lambda row: _amount(row, "most"), True),
)


@api_command(
    "lowtide limits",
    "lowtide limits --set machines=40 --set gpus.H100=16",
    "lowtide limits --set max_hourly_spend_usd=120",
    "lowtide limits --unset machines",
)
def limits(
    invocation: Invocation,
    changed: Annotated[
        list[str] | None, typer.Option("--set", metavar="LIMIT=VALUE", help="Set a limit.")
    ] = None,
    removed: Annotated[
        list[str] | None, typer.Option("--unset", metavar="LIMIT", help="Remove a limit.")
    ] = None,
) -> None:
    """Show or set the limits of all projects together.

    Limits: machines, gpus.all, gpus.MODEL, max_hourly_spend_usd and queued_jobs. Nothing that runs
    is stopped for them. Needs an auditor's key, to change them an admin's.
    """
    found = invocation.api.get("/limits")
    if changed or removed:
        document = _changed(found["limits"], changed or (), removed or ())
        found = invocation.api.put("/limits", {"limits": document})
    terminal = invocation.terminal
    if terminal.to_script(found, [row["field"] for row in found["items"]]):
        return
    if not found["items"]:
        terminal.line("The deployment has no limits.")
        return
    print_limits(terminal, found["items"])
    by = str(found["changed_by"]).partition(":")[2]
    terminal.line(f"Changed {wording.ago(found['changed_at'], datetime.now(UTC))} by {by}.")


def print_limits(terminal: Terminal, rows: Sequence[dict[str, Any]]) -> None:
    """Limits with their use, and a sentence for each that is exceeded."""
    if rows:
        terminal.table(_COLUMNS, rows)
    for row in rows:
        if row["excess"] is not None:
            terminal.line(row["excess"])


def _amount(row: dict[str, Any], name: str) -> str:
    is_money = row["field"] == "max_hourly_spend_usd"
    return f"{wording.money(row[name])}/h" if is_money else f"{row[name]:,}"


def _changed(
    document: dict[str, Any], changed: Sequence[str], removed: Sequence[str]
) -> dict[str, Any]:
    """The limits as they are to be. Raises CommandFailed for an option without a value."""
    gpus: dict[str, Any] = dict(document.get("gpus", {}))
    whole = {name: value for name, value in document.items() if name != "gpus"}
    for written in changed:
        name, separator, value = written.partition("=")
        if not separator or not value:
            raise CommandFailed(f"--set {written}: write LIMIT=VALUE, as machines=40")
        name = _ALL_GPUS if name == "gpus" else name
        number: int | str = int(value) if value.isascii() and value.isdecimal() else value
        target = gpus if name.startswith("gpus.") else whole
        target[name.removeprefix("gpus.")] = number
    for name in (_ALL_GPUS if written == "gpus" else written for written in removed):
        target = gpus if name.startswith("gpus.") else whole
        if target.pop(name.removeprefix("gpus."), None) is None:
            raise CommandFailed(f"--unset {name}: there is no such limit")
    return {**whole, **({"gpus": gpus} if gpus else {})}
