"""What the commands that run or inspect programs on this machine share: an option, their ending.

Not here: commands that talk to the api (`invocation`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.client.failures import CommandFailed
from app.cli.client.terminal import Terminal
from app.settings import Settings, SettingsError, load_settings

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        show_default=False,
        help="Folder with databases, logs and keys. [default: LOWTIDE_STATE_DIR, or ./.lowtide]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]


@contextmanager
def ending_well(terminal: Terminal) -> Iterator[None]:
    """Turn a CommandFailed into its sentence on stderr and its exit code."""
    try:
        yield
    except CommandFailed as failure:
        if terminal.as_json:
            terminal.errors.write(json.dumps(failure.to_json(), ensure_ascii=False) + "\n")
        else:
            terminal.complain(failure.lines())
        raise typer.Exit(failure.exit_code) from None


def settings_with(**given: Any) -> Settings:
    """Settings with the options that were given. Raises CommandFailed for one of no use."""
    try:
        return load_settings(**{name: value for name, value in given.items() if value is not None})
    except SettingsError as error:
        raise CommandFailed(str(error)) from error


def require_folder(state_dir: Path) -> None:
    """Raises CommandFailed for a state folder that is not there and cannot be made."""
    from app.adapters.embedded.embedded_errors import StateFolderUnusableError
    from app.adapters.embedded.processes.state_folder import require_possible_folder

    try:
        require_possible_folder(state_dir)
    except StateFolderUnusableError as error:
        raise CommandFailed(str(error)) from error


def first_line(error: Exception) -> str:
    """The part of an error's text that a person can use."""
    return str(getattr(error, "orig", None) or error).strip().split("\n", 1)[0]
