"""`lowtide session`: the browsers in which one is signed in.

Not here: signing in on the command line (`login`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from app.cli.client import wording
from app.cli.client.command_groups import CommandList, DefaultCommandGroup
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import path_part
from app.cli.client.terminal import Column
from app.domain.wording.browser_words import browser_words

session = CommandList(cls=DefaultCommandGroup, help="Browsers that you are signed in with.")


@session.command("list")
@api_command("lowtide session")
def list_sessions(invocation: Invocation) -> None:
    """List the browsers that you are signed in with.

    `lowtide session` alone does the same.
    """
    now = datetime.now(UTC)
    columns = (
        Column("SESSION", lambda row: row["id"]),
        Column("SIGNED IN", lambda row: wording.ago(row["created_at"], now)),
        Column("LAST SEEN", lambda row: wording.ago(row["last_seen_at"], now)),
        Column("ADDRESS", lambda row: row["address"] or wording.NOTHING),
        Column("BROWSER", lambda row: browser_words(row["browser"])),
    )
    rows = invocation.api.get("/me/sessions")["items"]
    invocation.terminal.listing(columns, rows, result="id", empty="No browser is signed in.")


@session.command("end")
@api_command("lowtide session end 5d41402abc4b2a76")
def end_session(
    invocation: Invocation,
    session: Annotated[str, typer.Argument(metavar="ID", help="As `lowtide session` lists it.")],
) -> None:
    """Sign one of your browsers out, at once."""
    invocation.api.post(f"/me/sessions/{path_part(session, 'session')}/end")
    if not invocation.terminal.to_script({"id": session}, [session]):
        invocation.terminal.line("That browser is signed out.")
