"""What every command that talks to the api shares: its options, its connection, its ending.

Lives here: `@api_command()`, which gives a command --json, -q, --project and --no-color, hands it
an Invocation, and turns failures into a sentence and an exit code. Not here: any command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Annotated, Any, Final, get_type_hints

import typer

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import INTERRUPTED, CommandFailed
from app.cli.client.server_address import Server, find_server
from app.cli.client.terminal import Terminal
from app.settings import Settings, SettingsError, load_settings

PANEL: Final = "Everywhere"


def _quiet(told: str) -> Any:
    return Annotated[bool, typer.Option("--quiet", "-q", help=told, rich_help_panel=PANEL)]


_SHARED: Final[dict[str, Any]] = {
    "as_json": Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=PANEL)],
    "quiet": _quiet("Print only names, ids or a single figure."),
    "project": Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Project. [default: LOWTIDE_PROJECT, else the key's]",
            rich_help_panel=PANEL,
        ),
    ],
    "no_color": Annotated[
        bool, typer.Option("--no-color", help="Print without colour.", rich_help_panel=PANEL)
    ],
}
_DEFAULTS: Final[dict[str, Any]] = {
    "as_json": False, "quiet": False, "project": None, "no_color": False,
}  # fmt: skip


class Invocation:
    """One run of one command: where it writes and, once asked for, its connection."""

    def __init__(self, terminal: Terminal, project: str | None, closing: ExitStack) -> None:
        self.terminal = terminal
        self.project = project
        self._closing = closing
        self._api: ApiClient | None = None

    @property
    def api(self) -> ApiClient:
        """The connection to the api; opened when first asked for, closed with the command."""
        if self._api is None:
            self._api = self.connect(self.server())
        return self._api

    def connect(self, server: Server) -> ApiClient:
        """A connection to another server than the usual one."""
        api = self._closing.enter_context(ApiClient(server))
        # A spec's own project comes between the two: the option goes over it, the variable below.
        if (project := self.project or self.settings().project) is not None:
            api.enter_project(project)
        return api

    def server(self) -> Server:
        """The server that the environment, `lowtide login` or a local `lowtide up` name."""
        return find_server(self.settings())

    def settings(self) -> Settings:
        """The environment's. Raises CommandFailed."""
        try:
            return load_settings()
        except SettingsError as error:
            raise CommandFailed(str(error)) from error


def api_command(
    *examples: str, quiet: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command for typer of a function whose first parameter is an Invocation.

    `examples` are whole command lines; --help lists them under the docstring. quiet: what --help
    says of -q, where it is not names, ids or a figure that it prints.
    """
    options = _SHARED if quiet is None else {**_SHARED, "quiet": _quiet(quiet)}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**arguments: Any) -> None:
            _run(function, arguments)

        command.__doc__ = _help_text(function, examples)
        _show_to_typer(command, function, options)
        return command

    return decorate


def _run(function: Callable[..., None], arguments: dict[str, Any]) -> None:
    shared = {name: arguments.pop(name) for name in _SHARED}
    terminal = Terminal(
        as_json=shared["as_json"], quiet=shared["quiet"], no_color=shared["no_color"]
    )
    try:
        with ExitStack() as closing:
            function(Invocation(terminal, shared["project"], closing), **arguments)
    except CommandFailed as failure:
        if terminal.as_json:
            terminal.errors.write(_json_text(failure))
        else:
            terminal.complain(failure.lines())
        raise typer.Exit(failure.exit_code) from None
    except (KeyboardInterrupt, typer.Abort):
        raise typer.Exit(INTERRUPTED) from None


def _show_to_typer(
    command: Callable[..., None], function: Callable[..., None], options: dict[str, Any]
) -> None:
    """Give the command the function's own parameters and the shared ones, less the first."""
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    _, *own = signature.parameters.values()
    kept = [one.replace(annotation=hints[one.name]) for one in own]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=annotation
        )
        for name, annotation in options.items()
    ]
    attributes = vars(command)
    # Through it, the original with its first parameter would be found.
    del attributes["__wrapped__"]
    attributes["__signature__"] = signature.replace(parameters=[*kept, *added])
    command.__annotations__ = {one.name: one.annotation for one in (*kept, *added)}


def _help_text(function: Callable[..., None], examples: Sequence[str]) -> str:
    told = inspect.getdoc(function) or ""
    if not examples:
        return told
    # A backspace on a line of its own keeps what follows from being filled into a paragraph.
    listed = "\n".join(f"  {example}" for example in examples)
    return f"{told}\n\n\b\nExamples:\n{listed}"


def _json_text(failure: CommandFailed) -> str:
    import json

    return json.dumps(failure.to_json(), ensure_ascii=False) + "\n"
