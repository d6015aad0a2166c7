"""`lowtide project`: the projects of a deployment, their rules, and a file of many of them.

Not here: the keys of a project (`key_commands`), or what rules may say (`app.domain.projects`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.command_groups import CommandList, DefaultCommandGroup
from app.cli.client.failures import INTERRUPTED, CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import path_part
from app.cli.client.terminal import Column
from app.cli.fleet.limit_commands import print_limits
from app.domain.units.errors import SpecError

project = CommandList(
    cls=DefaultCommandGroup, help="Projects: list, make, archive, restore; their rules."
)

_VALUES_MAX: Final = 50_000
"""In a file of projects: a thousand projects with fifty values each."""

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
        Column("MEMBERS", lambda row: f"{row['members']:,}", True),
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
    """Let a project take no new jobs. Its jobs go on, and its keys still read and command them."""
    found = invocation.api.post(f"/projects/{path_part(name, 'project')}/archive")
    _say(invocation, found, f"Project {found['name']} is archived: it takes no new jobs.")


@project.command("restore")
@api_command("lowtide project restore vision")
def restore_project(invocation: Invocation, name: _Name) -> None:
    """Let an archived project take jobs again."""
    found = invocation.api.post(f"/projects/{path_part(name, 'project')}/restore")
    _say(invocation, found, f"Project {found['name']} takes jobs.")


@project.command("show")
@api_command("lowtide project show vision", "lowtide project show vision --json")
def show_project(invocation: Invocation, name: _Name) -> None:
    """Show the rules that jobs of a project are under.

    And how its limits of machines are used.
    """
    from app.domain.wording.rule_words import rule_lines

    found = invocation.api.get(f"/projects/{path_part(name, 'project')}/rules")
    terminal = invocation.terminal
    if terminal.to_script(found, [found["project"]]):
        return
    terminal.line(terminal.paint(found["project"], "bold"))
    if not found["rules"]:
        terminal.line("No rules: jobs may ask for whatever the deployment has.")
    else:
        terminal.fields(list(rule_lines(found["rules"])))
        by = str(found["changed_by"]).partition(":")[2]
        at = wording.ago(found["changed_at"], datetime.now(UTC))
        terminal.line(f"Version {found['version']}, {at} by {by}.")
    print_limits(terminal, _limits(invocation, name))


@project.command("apply")
@api_command(
    "lowtide project apply projects.yaml --dry-run",
    "lowtide project apply projects.yaml --yes",
    "lowtide project apply - < projects.yaml",
)
def apply_projects(
    invocation: Invocation,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Projects as YAML, or - for stdin.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Make the projects of a file, with its rules and members.

    Shows what differs, and asks. All of it is applied, or nothing. Projects that the file does not
    name stay as they are. Needs an admin's key; a maintainer's, for what is in its own project.
    """
    document = _read_file(file)
    terminal = invocation.terminal
    planned = invocation.api.post("/projects/apply?dry_run=true", document, only_asks=True)
    names = [one["name"] for one in planned["items"] if one["outcome"] != "unchanged"]
    if dry_run or not names:
        if not terminal.to_script(planned, names):
            _print_changes(invocation, planned)
            terminal.line("Dry run: nothing was changed." if names else "Nothing differs.")
        return
    _print_changes(invocation, planned)
    asks = not (yes or file == "-") and terminal.interactive and sys.stdin.isatty()
    if asks and not typer.confirm("Apply?", default=True):
        terminal.note("Nothing was changed.")
        raise typer.Exit(INTERRUPTED)
    applied = invocation.api.post("/projects/apply", document)
    if terminal.to_script(applied, names):
        return
    terminal.line(f"Applied: {wording.plural(len(names), 'project')}.")
    for item in applied["items"]:
        if any(change["field"].startswith("limits.") for change in item["changes"]):
            exceeded = [row for row in _limits(invocation, item["name"]) if row["excess"]]
            for row in exceeded:
                terminal.line(row["excess"])


def _limits(invocation: Invocation, name: str) -> list[dict[str, Any]]:
    """The limits of a project's machines, with the deployment's."""
    found = invocation.api.get(f"/projects/{path_part(name, 'project')}/limits")
    items: list[dict[str, Any]] = found["items"]
    return items


def _read_file(source: str) -> object:
    """What a YAML file says; raises CommandFailed where it cannot be read."""
    from app.domain.spec.spec_text import MAX_DEPTH, MAX_SPEC_BYTES
    from app.domain.spec.spec_yaml import read_yaml

    what = "stdin" if source == "-" else source
    try:
        if source == "-":
            content = sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                content = file.read(MAX_SPEC_BYTES + 1)
        if len(content) > MAX_SPEC_BYTES:
            raise CommandFailed(f"{what} has more than {MAX_SPEC_BYTES >> 10} KiB; split it")
        return read_yaml(content.decode(), max_depth=MAX_DEPTH, max_values=_VALUES_MAX)
    except OSError as error:
        raise CommandFailed(f"{what} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{what} is not UTF-8 text; save it as UTF-8") from error
    except SpecError as error:
        raise CommandFailed(f"{what}: {error.message}") from error


def _print_changes(invocation: Invocation, answer: dict[str, Any]) -> None:
    terminal = invocation.terminal
    for item in answer["items"]:
        if item["outcome"] == "unchanged":
            continue
        new = " (new)" if item["outcome"] == "created" else ""
        terminal.line(f"{terminal.paint(item['name'], 'bold')}{new}")
        for change in item["changes"]:
            for sign, text in _change_lines(change):
                terminal.line(terminal.paint(f"  {sign} {text}", _SIGNS[sign]))


_SIGNS: Final = {"+": "green", "-": "red"}


def _change_lines(change: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from app.domain.wording.rule_words import rule_value

    field = change["field"]
    for sign, side in (("-", "before"), ("+", "after")):
        if change[side] is not None:
            yield sign, f"{field}: {rule_value(field, change[side])}"


def _say(invocation: Invocation, row: dict[str, object], sentence: str) -> None:
    if not invocation.terminal.to_script(row, [str(row["name"])]):
        invocation.terminal.line(sentence)
