"""`lowtide secret`: secrets of a project, and on the server the key that they are encrypted under.

A value comes from the prompt, from stdin or from a file, and is never an argument: those are in
every list of processes. Not here: how a job names a secret (`app.domain.spec`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

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
from app.cli.client.terminal import Column, Terminal
from app.cli.server.migrate_command import database_of
from app.domain.deployment.secret_rules import SECRET_BYTES_MAX
from app.domain.units.errors import DomainError
from app.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.orchestration.secrets.check_stored_values import StoredValues
    from app.ports.value_encryption import ValueEncryption
    from app.storage.unit_of_work import UnitOfWorkFactory

secret = CommandList(
    cls=DefaultCommandGroup,
    help="Secrets of a project: list, set, rotate, remove; their key.",
)

UNREADABLE: Final = 1
"""The exit code where a secret cannot be read."""

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The secret's name: the variable that jobs get.")
]
_File = Annotated[
    Path | None,
    typer.Option("--file", metavar="PATH", help="Read the value from a file, byte for byte."),
]


@secret.command("list")
@api_command("lowtide secret", "lowtide secret list --project vision --json")
def list_secrets(invocation: Invocation) -> None:
    """List the project's secrets by name, never their values.

    `lowtide secret` alone does the same. For submitters, who see those that they may name in a
    job, maintainers and admins.
    """
    now = datetime.now(UTC)
    columns = (
        Column("SECRET", lambda row: row["name"]),
        Column("VERSION", lambda row: f"{row['version']:,}", True),
        Column("FOR", lambda row: "maintainers" if row["for_maintainers"] else "submitters"),
        Column("CHANGED", lambda row: wording.ago(row["changed_at"], now)),
        Column("BY", lambda row: row["changed_by"].partition(":")[2]),
        Column("STATE", lambda row: "good" if row["readable"] else "KEY MISSING"),
    )
    rows = invocation.api.get("/secrets")["items"]
    invocation.terminal.listing(
        columns, rows, result="name", empty="This project has no secret that you may use."
    )


@secret.command("set")
@api_command(
    "lowtide secret set WANDB_API_KEY",
    "lowtide secret set WANDB_API_KEY < wandb.key",
    "lowtide secret set GOOGLE_APPLICATION_CREDENTIALS --file gcp.json --for-maintainers",
)
def set_secret(
    invocation: Invocation,
    name: _Name,
    file: _File = None,
    for_maintainers: Annotated[
        bool | None,
        typer.Option(
            "--for-maintainers/--for-submitters",
            help="Who may submit jobs that name it. Default: as it is; submitters for a new one.",
        ),
    ] = None,
) -> None:
    """Make a secret, or give one another value.

    The value is asked for, or read from stdin; the newline that ends a value of one line on stdin
    is left out. Attempts that run keep the value that they were given.
    """
    path, value = f"/secrets/{path_part(name, 'secret')}", _value(name, file)
    made = invocation.api.put(path, {"value": value, "for_maintainers": for_maintainers})
    _say(invocation, made, f"Secret {made['name']} has a value: version {made['version']}.")


@secret.command("rotate")
@api_command("lowtide secret rotate WANDB_API_KEY < wandb.key")
def rotate_secret(invocation: Invocation, name: _Name, file: _File = None) -> None:
    """Give a secret that is there another value.

    A name without a value, as one that was misspelt, is refused.
    """
    path, value = f"/secrets/{path_part(name, 'secret')}/rotate", _value(name, file)
    made = invocation.api.post(path, {"value": value})
    _say(invocation, made, f"Secret {made['name']} has another value: version {made['version']}.")


@secret.command("remove")
@api_command("lowtide secret remove WANDB_API_KEY")
def remove_secret(invocation: Invocation, name: _Name) -> None:
    """Delete a secret's value. Attempts that have it go on; jobs that name it begin no other."""
    gone = invocation.api.post(f"/secrets/{path_part(name, 'secret')}/remove")
    _say(invocation, gone, f"Secret {gone['name']} is removed.")


@secret.command("verify")
def verify(state_dir: StateDir = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Say which secrets cannot be read, on the server.

    Reads every value with the keys of LOWTIDE_SECRETS_KEY_FILE, and changes nothing. Exit code 1 if
    a key is missing or a row was changed. For after restoring a backup.
    """
    from app.orchestration.secrets.check_stored_values import verify_secrets

    _on_server(state_dir, Terminal(as_json=as_json, quiet=quiet), verify_secrets)


@secret.command("rekey")
def rekey(
    keep_key: Annotated[
        bool,
        typer.Option(
            "--keep-key", help="Make no key: use the first of the file, as one put there by hand."
        ),
    ] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make another key, and put every secret under it, on the server.

    The key is written before the others in LOWTIDE_SECRETS_KEY_FILE; those that no secret needs any
    more are removed at the end. Nothing has to be stopped; a run that was ended is repeated with
    --keep-key. Secrets that cannot be read are listed and stay as they are, for their key to come
    back. Afterwards, copy the file anew.
    """
    from app.orchestration.secrets.check_stored_values import rewrap_secrets

    def under_new_key(begin: UnitOfWorkFactory, encryption: ValueEncryption) -> StoredValues:
        if not keep_key or not encryption.key_ids():
            encryption.make_key()
        return rewrap_secrets(begin, encryption)

    _on_server(state_dir, Terminal(as_json=as_json, quiet=quiet), under_new_key)


def _value(name: str, file: Path | None) -> str:
    """Raises CommandFailed for a file that cannot be read, and for what is no text."""
    if file is not None:
        try:
            with file.open("rb") as opened:
                return _text(opened.read(SECRET_BYTES_MAX + 1))
        except OSError as error:
            raise CommandFailed(f"{file} cannot be read: {error.strerror or error}") from error
    if sys.stdin.isatty():
        return str(typer.prompt(f"Value of {name}", hide_input=True))
    content = sys.stdin.buffer.read(SECRET_BYTES_MAX + 2)
    line = content.removesuffix(b"\n").removesuffix(b"\r")
    return _text(content if b"\n" in line else line)


def _text(content: bytes) -> str:
    if len(content) > SECRET_BYTES_MAX:
        raise CommandFailed(f"the value has more than {SECRET_BYTES_MAX:,} bytes, the most")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CommandFailed(
            "the value is not UTF-8 text; encode it, for example with `base64`, and let the job "
            "decode it"
        ) from None


def _say(invocation: Invocation, row: dict[str, Any], sentence: str) -> None:
    if not invocation.terminal.to_script(row, [row["name"]]):
        invocation.terminal.line(sentence)


def _on_server(
    state_dir: Path | None,
    terminal: Terminal,
    work: Callable[[UnitOfWorkFactory, ValueEncryption], StoredValues],
) -> None:
    from app.adapters.encryption.envelope_encryption import open_encryption

    with ending_well(terminal):
        settings = settings_with(state_dir=state_dir)
        encryption = open_encryption(settings.secrets_key_file, settings.state_dir)
        with _database(settings) as begin:
            try:
                found = work(begin, encryption)
            except DomainError as error:
                raise CommandFailed(error.message) from error
        _print_found(terminal, found)
        if found.unreadable:
            raise typer.Exit(UNREADABLE)


@contextmanager
def _database(settings: Settings) -> Iterator[UnitOfWorkFactory]:
    """Transactions in the deployment's database. Raises CommandFailed where it does not answer."""
    import psycopg
    from sqlalchemy.exc import SQLAlchemyError

    from app.adapters.embedded.embedded_errors import EmbeddedServerError, StateFolderBusyError
    from app.bootstrap import NoWakeups
    from app.storage.session.engine import make_engine
    from app.storage.session.storage_errors import DatabaseFull, RowsLocked
    from app.storage.unit_of_work import PostgresUnitOfWorkFactory

    try:
        with database_of(settings) as url:
            engine = make_engine(
                url, pool_size=1, max_overflow=0, application_name="lowtide-secrets"
            )
            try:
                yield PostgresUnitOfWorkFactory(engine, NoWakeups())
            finally:
                engine.dispose()
    except (
        SQLAlchemyError,
        psycopg.Error,
        EmbeddedServerError,
        StateFolderBusyError,
        DatabaseFull,
        RowsLocked,
    ) as error:
        message = f"the secrets could not be read: {first_line(error)}"
        raise CommandFailed(message, UNREACHABLE) from error


def _print_found(terminal: Terminal, found: StoredValues) -> None:
    lost = [
        {"project": one.project, "name": one.name, "key_id": one.key_id} for one in found.unreadable
    ]
    if terminal.as_json:
        told = {"readable": found.readable, "rewrapped": found.rewrapped, "unreadable": lost}
        terminal.json(told)
        return
    moved = (
        f", {found.rewrapped:,} of them under another key than before" if found.rewrapped else ""
    )
    if not terminal.quiet:
        terminal.line(f"{wording.plural(found.readable, 'secret')} can be read{moved}.")
    for one in found.unreadable:
        why = "its row was changed in the database: set the secret anew"
        if one.key_id is not None:
            why = f"its key {one.key_id} is missing: put it back into the key file, or set it anew"
        terminal.line(f"{one.project}: {one.name} cannot be read: {why}.")
