"""`lowtide freeze`, `lowtide thaw`: no launches of a project, at a cloud or anywhere, for a while.

Not here: what a freeze stops (`app.domain.launch_limits.freeze`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from app.cli.client import wording
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import path_part
from app.cli.client.terminal import Column

_Name = Annotated[str | None, typer.Argument(metavar="PROJECT", help="The project's name.")]
_Cloud = Annotated[str | None, typer.Option("--cloud", metavar="CLOUD", help="aws, gcp or local.")]
_Everything = Annotated[bool, typer.Option("--everything", help="All clouds and projects.")]


@api_command(
    "lowtide freeze",
    "lowtide freeze vision --reason 'the month is spent'",
    "lowtide freeze --cloud aws",
    "lowtide freeze --everything",
)
def freeze(
    invocation: Invocation,
    name: _Name = None,
    cloud: _Cloud = None,
    everything: _Everything = False,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="One line, shown where jobs wait for it.")
    ] = "",
) -> None:
    """Request no machines for a while. Alone: list what is frozen.

    Of a project, at a cloud, or none at all. Machines that run stay, and launches that were
    requested before go on. Nothing is replaced, and no on-demand machine is requested before a
    deadline. A project needs a maintainer's key, all else an admin's.
    """
    name = name or invocation.project
    if not (name or cloud or everything):
        _list(invocation)
        return
    _require_one(name, cloud, everything)
    if name is not None:
        path = f"/projects/{path_part(name, 'project')}/freeze"
        made = invocation.api.post(path, {"reason": reason})
    else:
        made = invocation.api.post("/freezes", {"cloud": cloud, "reason": reason})
    if not invocation.terminal.to_script(made, [_place(made)]):
        invocation.terminal.line(made["sentence"])


@api_command("lowtide thaw vision", "lowtide thaw --cloud aws", "lowtide thaw --everything")
def thaw(
    invocation: Invocation,
    name: _Name = None,
    cloud: _Cloud = None,
    everything: _Everything = False,
) -> None:
    """Let machines be requested again.

    Names what was frozen by the same words. Jobs that wait look for machines within half a minute.
    """
    name = name or invocation.project
    _require_one(name, cloud, everything)
    if name is not None:
        found = invocation.api.post(f"/projects/{path_part(name, 'project')}/thaw")
    else:
        found = invocation.api.post("/freezes/thaw", {"cloud": cloud})
    ended = found["thawed"]
    terminal = invocation.terminal
    if terminal.to_script(found, [] if ended is None else [_place(ended)]):
        return
    if ended is None:
        terminal.line("It was not frozen.")
    else:
        terminal.line(f"Thawed: {_place(ended)}.")


def _list(invocation: Invocation) -> None:
    now = datetime.now(UTC)
    columns = (
        Column("FROZEN", _place),
        Column("SINCE", lambda row: wording.ago(row["frozen_at"], now)),
        Column("BY", lambda row: row["frozen_by"].partition(":")[2]),
        Column("REASON", lambda row: row["reason"] or wording.NOTHING),
    )
    rows = [{**row, "place": _place(row)} for row in invocation.api.get("/freezes")["items"]]
    invocation.terminal.listing(columns, rows, result="place", empty="Nothing is frozen.")


def _place(row: dict[str, Any]) -> str:
    if row["project"] is not None:
        return f"project {row['project']}"
    return "everything" if row["cloud"] is None else f"cloud {row['cloud']}"


def _require_one(name: str | None, cloud: str | None, everything: bool) -> None:
    if sum((name is not None, cloud is not None, everything)) != 1:
        raise CommandFailed("name one of them: a project, --cloud CLOUD, or --everything")
