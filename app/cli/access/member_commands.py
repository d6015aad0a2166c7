"""`lowtide member`, `lowtide person`: who is in a project with which role; people of a deployment.

Not here: keys (`key_commands`), or the page that accepts an invitation (`app.web.access`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.command_groups import CommandList, DefaultCommandGroup
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import path_part
from app.cli.client.terminal import Column
from app.domain.access.roles import Role

member = CommandList(
    cls=DefaultCommandGroup, help="Members of a project: list, invite, change, remove."
)
person = CommandList(
    cls=DefaultCommandGroup, help="People of the deployment: list, disable, anonymise."
)

_LISTED_MAX: Final = 100_000
_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name or id of a person or a service key.")
]
_Person = Annotated[str, typer.Argument(metavar="NAME", help="A person's name or id.")]
_Role = Annotated[
    Role,
    typer.Option(
        metavar="ROLE",
        show_choices=False,
        help="viewer, submitter, maintainer, auditor or admin; never more than your own.",
    ),
]


@member.command("list")
@api_command("lowtide member", "lowtide member list --project vision")
def list_members(invocation: Invocation) -> None:
    """List the project's people and service keys, with their roles.

    `lowtide member` alone does the same.
    """
    now = datetime.now(UTC)
    rows = invocation.api.pages("/members", limit=_LISTED_MAX, turn="after")
    by_groups = (Column("BY GROUPS OF", _issuer),) if any(map(_issuer, rows)) else ()
    columns = (
        Column("MEMBER", lambda row: row["name"]),
        Column("KIND", lambda row: row["kind"]),
        Column("ROLE", lambda row: row["role"]),
        Column("SINCE", lambda row: wording.ago(row["since"], now)),
        Column("EMAIL", lambda row: row["email"] or wording.NOTHING),
        *by_groups,
        Column("STATE", _state),
    )
    invocation.terminal.listing(columns, rows, result="name", empty="The project has no members.")


@member.command("invite")
@api_command(
    "lowtide member invite --role maintainer --email lea@example.com",
    "lowtide member invite --again Lea",
)
def invite(
    invocation: Invocation,
    role: _Role = Role.SUBMITTER,
    email: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="To tell invitations apart; nothing is sent to it."),
    ] = None,
    again: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Another key for this person, whose keys are lost (admins)."
        ),
    ] = None,
) -> None:
    """Make a link that makes one person a member.

    It works once, within 72 hours. The first person who opens it becomes the member, so send it
    over a channel that only the right one reads.
    """
    if again is not None and email is not None:
        raise CommandFailed("--email is for a new person: leave it out with --again")
    body = {"role": role.value, "email": email, "person": again}
    made = invocation.api.post("/invitations", body)
    terminal = invocation.terminal
    link = f"{invocation.api.url}{made['link']}"
    if terminal.as_json:
        terminal.json({**made, "link": link})
        return
    terminal.raw(f"{link}\n")
    if not terminal.quiet:
        what = f"{made['role']} of the project {made['project']}" if again is None else again
        until = wording.clock_time(made["expires_at"])
        terminal.note(f"For {what}, once, until {until} UTC. It is shown here alone.")


@member.command("invitations")
@api_command("lowtide member invitations")
def list_invitations(invocation: Invocation) -> None:
    """List the invitations that nobody has accepted yet."""
    columns = (
        Column("INVITATION", lambda row: row["id"]),
        Column("ROLE", lambda row: row["role"] if row["person_id"] is None else "another key"),
        Column("EMAIL", lambda row: row["email"] or wording.NOTHING),
        Column("BY", lambda row: row["created_by"].partition(":")[2]),
        Column("EXPIRES", lambda row: wording.clock_time(row["expires_at"])),
    )
    rows = invocation.api.pages("/invitations", limit=_LISTED_MAX, turn="after")
    invocation.terminal.listing(columns, rows, result="id", empty="No invitation is open.")


@member.command("uninvite")
@api_command("lowtide member uninvite 0190b3c4-…")
def uninvite(
    invocation: Invocation,
    invitation: Annotated[
        str, typer.Argument(metavar="ID", help="As `lowtide member invitations` lists it.")
    ],
) -> None:
    """Take an invitation back."""
    path = f"/invitations/{path_part(invitation, 'invitation')}/revoke"
    _change(invocation, path, "The invitation is taken back.", result="id")


@member.command("role")
@api_command("lowtide member role Lea maintainer")
def change_role(
    invocation: Invocation,
    name: _Name,
    role: Annotated[
        Role,
        typer.Argument(metavar="ROLE", help="viewer, submitter, maintainer, auditor or admin."),
    ],
) -> None:
    """Give a member another role in the project, within two seconds."""
    _change(invocation, f"{_path(name)}/role", "{name} has the role {role}.", {"role": role.value})


@member.command("remove")
@api_command("lowtide member remove Lea")
def remove(invocation: Invocation, name: _Name) -> None:
    """End a membership, or revoke a service key, within two seconds. Jobs go on.

    A key of another project, as vision/ci, goes on working in its others. A membership that groups
    at an issuer gave comes back with the next sign-in, and the command says so.
    """
    removed = _change(invocation, f"{_path(name)}/remove", "{name} is no member any more.")
    if issuer := _issuer(removed):
        invocation.terminal.note(
            f"The groups of {removed['name']} at {issuer} give the membership again at the next "
            "sign-in: take the person out of the group there, or, for all projects at once, run "
            f"`lowtide person disable '{removed['name']}'`."
        )


@person.command("list")
@api_command("lowtide person")
def list_people(invocation: Invocation) -> None:
    """List all people of the deployment (`lowtide person` alone). For admins and auditors."""
    now = datetime.now(UTC)
    columns = (
        Column("PERSON", lambda row: row["name"]),
        Column("EMAIL", lambda row: row["email"] or wording.NOTHING),
        Column("CREATED", lambda row: wording.ago(row["created_at"], now)),
        Column("STATE", _state),
    )
    rows = invocation.api.pages("/people", limit=_LISTED_MAX, turn="after")
    invocation.terminal.listing(columns, rows, result="name", empty="There are no people.")


@person.command("disable")
@api_command("lowtide person disable Lea")
def disable(invocation: Invocation, name: _Person) -> None:
    """Disable a person: its keys and sessions do nothing.

    That holds within two seconds, in any project. Its jobs go on.
    """
    path = f"/people/{path_part(name, 'person')}/disable"
    _change(invocation, path, "{name} is disabled.")


@person.command("enable")
@api_command("lowtide person enable Lea")
def enable(invocation: Invocation, name: _Person) -> None:
    """Enable a person: its keys and sessions work again."""
    path = f"/people/{path_part(name, 'person')}/enable"
    _change(invocation, path, "{name} may sign in again.")


@person.command("anonymise")
@api_command("lowtide person anonymise Lea", "lowtide person anonymise Lea --yes")
def anonymise(
    invocation: Invocation,
    name: _Person,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a person's name and address, for good.

    Ends its keys, browsers, accounts and memberships, too. What it has done stays in the audit, as
    done by someone removed. For admins.
    """
    path = f"/people/{path_part(name, 'person')}/anonymise"
    if not yes:
        if not invocation.terminal.interactive:
            raise CommandFailed(
                f"this removes the name of {name} for good: add --yes to run without a prompt"
            )
        typer.confirm(
            f"Remove the name and address of {name} for good, and end all its keys?", abort=True
        )
    row = invocation.api.post(path)
    if not invocation.terminal.to_script(row, [row["name"]]):
        invocation.terminal.line(f"{name} is called {row['name']} from now on, and has no access.")


def _path(name: str) -> str:
    """Of a member: a name, or `home/name` of a key of another project."""
    parts = [path_part(part, "member") for part in name.split("/", 1)]
    return f"/members/{'/'.join(parts)}"


def _issuer(row: dict[str, Any]) -> str:
    """Whose groups gave a membership; "" for one by hand, and from a former api."""
    return row.get("issuer") or ""


def _state(row: dict[str, Any]) -> str:
    return "good" if row["disabled_at"] is None else "disabled"


def _change(
    invocation: Invocation,
    path: str,
    sentence: str,
    body: dict[str, Any] | None = None,
    *,
    result: str = "name",
) -> dict[str, Any]:
    """Post an order, and say what it did. Returns the answer.

    sentence: with fields of the answer in braces. result: the field that -q prints.
    """
    row: dict[str, Any] = invocation.api.post(path, body)
    if not invocation.terminal.to_script(row, [row[result]]):
        invocation.terminal.line(sentence.format_map(row))
    return row
