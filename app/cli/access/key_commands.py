"""`lowtide key`: keys of a project, and one's own; and a way back in without any.

Not here: the storing of one's own key (`login`), or projects (`project_commands`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.adapters.system_entropy import SystemEntropy
from app.cli.access.project_names import names_in
from app.cli.client import wording
from app.cli.client.command_groups import CommandList, DefaultCommandGroup
from app.cli.client.failures import UNREACHABLE, CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import path_part
from app.cli.client.local_command import (
    AsJson,
    Quiet,
    StateDir,
    ending_well,
    first_line,
    settings_with,
)
from app.cli.client.server_address import store_secret
from app.cli.client.terminal import Column, Terminal
from app.cli.server.migrate_command import database_of
from app.domain.access.roles import Role
from app.domain.units.durations import parse_duration
from app.domain.units.errors import DomainError, InvalidValue

if TYPE_CHECKING:
    from app.orchestration.access.manage_keys import IssuedKey

key = CommandList(
    cls=DefaultCommandGroup, help="Keys of a project, or your own: list, make, rotate, revoke."
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")]
_Mine = Annotated[bool, typer.Option("--mine", help="Keys of your own, not the project's.")]
_Person = Annotated[
    str | None,
    typer.Option(
        "--person", metavar="WHO", help="Keys of this person, by name or id, for admins alone."
    ),
]
_ONCE: Final = "A secret is shown once and stored nowhere; keep it where only its user reads it."


@key.command("list")
@api_command("lowtide key", "lowtide key list --project vision")
def list_keys(
    invocation: Invocation,
    everything: Annotated[
        bool, typer.Option("--all", help="Also keys that are revoked or have expired.")
    ] = False,
    mine: _Mine = False,
    person: _Person = None,
) -> None:
    """List the project's service keys, or your own.

    `lowtide key` alone lists the project's, which maintainers and admins see; --mine your own,
    --person those of another person.
    """
    now = datetime.now(UTC)
    rows = invocation.api.get(_keys(mine, person))["items"]
    shown = [row for row in rows if everything or _state(row, now) == "good"]
    named = (Column("PROJECTS", _projects),) if any(map(_projects, shown)) else ()
    columns = (
        Column("KEY", lambda row: row["name"]),
        # Of another person's key the api has its limit: the person's roles differ by project.
        Column("ROLE" if person is None else "AT MOST", lambda row: row["role"]),
        *named,
        Column("BEGINS", _beginning),
        Column("STATE", lambda row: _state(row, now)),
        Column("LAST USE", lambda row: wording.ago(row["last_used_at"], now)),
        Column("CREATED", lambda row: wording.ago(row["created_at"], now)),
        Column("BY", lambda row: (row["created_by"] or wording.NOTHING).partition(":")[2]),
        Column("EXPIRES", lambda row: wording.clock_time(row["expires_at"])),
    )
    invocation.terminal.listing(
        columns,
        shown,
        result="name",
        empty=f"No key of {_owner(mine, person)} is good.",
    )


@key.command("show")
@api_command("lowtide key show")
def show_key(invocation: Invocation) -> None:
    """Show which key these commands use, and what it opens.

    Its role, the projects that it names, and the project that the commands work in.
    """
    mine = invocation.api.get("/me")
    terminal = invocation.terminal
    if not terminal.to_script(mine, [mine["key"]]):
        whose = "" if mine["person"] is None else f" of {mine['person']}"
        named = _projects(mine)
        alone = f" It opens no projects but {named}." if named else ""
        terminal.line(
            f"Key {mine['key']}{whose}, {mine['role']} of the project {mine['project']}.{alone}"
        )


@key.command("create")
@api_command(
    "lowtide key create ci --role submitter --expires-in 90d",
    "lowtide key create dashboard --role viewer --project vision",
    "lowtide key create ci --role submitter --projects vision,speech",
    "lowtide key create notebook --mine --expires-in 30d --projects vision",
)
def create_key(
    invocation: Invocation,
    name: _Name,
    role: Annotated[
        Role | None,
        typer.Option(
            metavar="ROLE",
            show_choices=False,
            help="viewer, submitter, maintainer, auditor or admin; never more than your own. "
            "Default: submitter; of your own key all that you may.",
        ),
    ] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Until it ends, as 30d; default: it has no end."),
    ] = None,
    projects: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="It works in each of these; your own opens no others. Default: the project's key "
            "works in it alone, your own in all of yours.",
        ),
    ] = None,
    mine: _Mine = False,
) -> None:
    """Make a service key of the project, or your own.

    It is printed once; --mine makes one of your own.
    """
    if expires_in is not None:
        _require_duration(expires_in)
    body: dict[str, Any] = {"name": name, "expires_in": expires_in}
    if role is not None:
        body["role"] = role.value
    if projects is not None:
        body["projects"] = names_in(projects)
    made = invocation.api.post(_keys(mine), body)
    end = made["expires_at"]
    until = "" if end is None else f", until {wording.clock_time(end)} UTC"
    _print_secret(
        invocation.terminal,
        made,
        f"Key {made['name']}, {made['role']} of {_places(made)}{until}. {_ONCE}",
    )


def _require_duration(written: str) -> None:
    """Raises CommandFailed, which names the option; the api only knows its own field."""
    try:
        parse_duration(written)
    except InvalidValue as error:
        raise CommandFailed(
            f"--expires-in: {error.message}; leave it out for a key without an end"
        ) from error


@key.command("rotate")
@api_command(
    "lowtide key rotate ci", "lowtide key rotate ci --overlap 0s", "lowtide key rotate --mine"
)
def rotate_key(
    invocation: Invocation,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="The key's name; with --mine by default the one in use."
        ),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(metavar="TIME", help="For how long the old secret is good, too; at most 7d."),
    ] = "1h",
    mine: _Mine = False,
) -> None:
    """Give a key another secret, and print it once.

    The name, the role and the jobs stay. Browsers that signed in with the key are signed out. Of a
    key that leaked, use `lowtide key revoke`.

    The new secret of the key that these commands use is stored where the old one is: where
    `lowtide login` has put it, or in the admin.key of a `lowtide up`.
    """
    if name is None and not mine:
        raise CommandFailed(
            "name the key to rotate, as `lowtide key` lists it; --mine alone is the one in use"
        )
    named = None if name is None else _path(name, mine)
    in_use = invocation.api.get("/me")
    path = named or _path(in_use["key"], mine)
    made = invocation.api.post(f"{path}/rotate", {"overlap": overlap})
    until = made["former_until_at"]
    old = "ended" if until is None else f"is good until {wording.clock_time(until)} UTC"
    _print_secret(invocation.terminal, made, f"Key {made['name']}: the old secret {old}. {_ONCE}")
    # A former api tells no id.
    if made["id"] == in_use.get("key_id"):
        _use_from_now_on(invocation, made["key"])


def _use_from_now_on(invocation: Invocation, secret: str) -> None:
    """Raises CommandFailed where the secret cannot be stored; it is printed by then."""
    terminal, server = invocation.terminal, invocation.server()
    if server.key_file is None:
        terminal.note("LOWTIDE_API_KEY still has the old secret: put the new one there.")
        return
    try:
        where = store_secret(server, server.key_file, secret)
    except (CommandFailed, OSError) as error:
        raise CommandFailed(
            "the new secret, which is printed above, could not be stored for these commands, which "
            f"still have the old one: {error}"
        ) from error
    if not (terminal.as_json or terminal.quiet):
        terminal.note(f"These commands use the new secret from now on: it is stored in {where}.")


@key.command("revoke")
@api_command("lowtide key revoke ci", "lowtide key revoke laptop-3fa2b1 --person Lea")
def revoke_key(
    invocation: Invocation, name: _Name, mine: _Mine = False, person: _Person = None
) -> None:
    """End a key within two seconds, and sign out its browsers. Its jobs go on."""
    ended = invocation.api.post(f"{_path(name, mine, person)}/revoke")
    terminal = invocation.terminal
    if not terminal.to_script(ended, [ended["name"]]):
        terminal.line(f"Key {ended['name']} is revoked.")


@key.command("recover")
def recover(
    project: Annotated[
        str, typer.Option(metavar="NAME", help="The project that the new key belongs to.")
    ] = "default",
    state_dir: StateDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make a new admin's key without one, on the host of the database.

    For a deployment whose keys are lost. It writes to LOWTIDE_DATABASE_URL, else to
    the database in the state folder: who can do that could write any row. The key is named
    recovered-1, and the list of keys says that it was made so.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from app.adapters.embedded.embedded_errors import EmbeddedServerError, StateFolderBusyError

    terminal = Terminal(as_json=as_json, quiet=quiet)
    with ending_well(terminal):
        settings = settings_with(state_dir=state_dir)
        try:
            with database_of(settings) as url:
                issued = _recovered(url, project)
        except (SQLAlchemyError, EmbeddedServerError, StateFolderBusyError) as error:
            message = f"no key could be made: {first_line(error)}"
            raise CommandFailed(message, UNREACHABLE) from error
        document = {"name": issued.row.name, "project": project, "key": issued.secret}
        _print_secret(
            terminal,
            document,
            f"Key {issued.row.name}, admin of the deployment, in the project {project}. {_ONCE}",
        )


def _keys(mine: bool, person: str | None = None) -> str:
    if mine and person is not None:
        raise CommandFailed("--mine and --person exclude each other: name one of them")
    if person is not None:
        return f"/people/{path_part(person, 'person')}/keys"
    return "/me/keys" if mine else "/keys"


def _owner(mine: bool, person: str | None) -> str:
    return person or ("yours" if mine else "this project")


def _path(name: str, mine: bool, person: str | None = None) -> str:
    return f"{_keys(mine, person)}/{path_part(name, 'key')}"


def _recovered(url: str, project: str) -> IssuedKey:
    from app.bootstrap import NoWakeups
    from app.orchestration.access.manage_keys import recover_admin
    from app.storage.session.engine import make_engine
    from app.storage.session.storage_errors import DatabaseFull, RowsLocked
    from app.storage.unit_of_work import PostgresUnitOfWorkFactory

    engine = make_engine(url, pool_size=1, max_overflow=0, application_name="lowtide-recover")
    try:
        with PostgresUnitOfWorkFactory(engine, NoWakeups())() as uow:
            return recover_admin(uow, SystemEntropy(), project)
    except DomainError as error:
        raise CommandFailed(error.message) from error
    except (DatabaseFull, RowsLocked) as error:
        raise CommandFailed(f"no key could be made: {error}", UNREACHABLE) from error
    finally:
        engine.dispose()


def _print_secret(terminal: Terminal, made: dict[str, Any], sentence: str) -> None:
    """The secret alone on stdout, so that a pipe can take it; what it is on stderr."""
    if terminal.as_json:
        terminal.json(made)
        return
    terminal.raw(f"{made['key']}\n")
    if not terminal.quiet:
        terminal.note(sentence)


def _projects(row: dict[str, Any]) -> str:
    """Those that a key names; "" where it names none, as the keys of a former api."""
    return ", ".join(row.get("projects") or ())


def _places(row: dict[str, Any]) -> str:
    named = _projects(row)
    return f"the projects {named}" if "," in named else f"the project {named or row['project']}"


def _beginning(row: dict[str, Any]) -> str:
    return wording.NOTHING if row["prefix"] is None else f"{row['prefix']}…"


def _state(row: dict[str, Any], now: datetime) -> str:
    if row["revoked_at"] is not None:
        return "revoked"
    expires_at = row["expires_at"]
    over = expires_at is not None and datetime.fromisoformat(expires_at) <= now
    return "expired" if over else "good"
