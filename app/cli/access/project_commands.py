"""`lowtide project`: the projects of a deployment. For admins; auditors may list.

Not here: the keys of a project (`key_commands`).
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

project = CommandList(cls=DefaultCommandGroup, help="Projects: list, make, archive, restore.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The project's name.")]


@project.command("list")
@api_command("lowtide project", "lowtide project list --json")
def list_projects(invocation: Invocation) -> None:
    """List all projects (`lowtide project` alone). Needs an admin's or an auditor's key."""
    now = datetime.now(UTC)
    columns = (
        Column("PROJECT", lambda row: row["name"]),
        Column("JOBS", lambda row: f"{row['jobs']:,}", True),
        Column("KEYS", lambda row: f"{row['keys']:,}", True),
        Column("CREATED", lambda row: wording.ago(row["created_at"], now)),
        Column("ARCHIVED", lambda row: wording.ago(row["archived_at"], now)),
    )
    rows = invocation.api.get("/projects")["items"]
    invocation.terminal.listing(columns, rows, result="name", empty="There is no project.")


@project.command("create")
@api_command("lowtide project create vision")
def create_project(invocation: Invocation, name: _Name) -> None:
    """Make a project. Then `lowtide key create NAME --project PROJECT` makes its first key."""
    made = invocation.api.post("/projects", {"name": name})
    _say(invocation, made, f"Project {made['name']}: make its first key with "
         f"`lowtide key create NAME --project {made['name']}`.")  # fmt: skip


@project.command("archive")
@api_command("lowtide project archive vision")
def archive_project(invocation: Invocation, name: _Name) -> None:
    """Let a project take no new jobs. Those that it has go on, and its keys still read."""
    found = invocation.api.post(f"/projects/{path_part(name, 'project')}/archive")
    _say(invocation, found, f"Project {found['name']} is archived: it takes no new jobs.")


@project.command("restore")
@api_command("lowtide project restore vision")
def restore_project(invocation: Invocation, name: _Name) -> None:
    """Let an archived project take jobs again."""
    found = invocation.api.post(f"/projects/{path_part(name, 'project')}/restore")
    _say(invocation, found, f"Project {found['name']} takes jobs.")


def _say(invocation: Invocation, row: dict[str, object], sentence: str) -> None:
    if not invocation.terminal.to_script(row, [str(row["name"])]):
        invocation.terminal.line(sentence)
