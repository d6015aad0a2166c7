"""The `lowtide` command: a list of commands, each from its own module.

Not here: any command.
"""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

import typer

from app.cli.api_commands import add_api_commands
from app.cli.client.command_groups import CommandList, ProgramGroup
from app.cli.demo import demo
from app.cli.fleet import catalog_commands
from app.cli.jobs import init
from app.cli.server import backtest_command, doctor_command, migrate_command, server_status, up

app = CommandList(
    name="lowtide",
    cls=ProgramGroup,
    help="Train models on spot GPUs at the lowest cost that is expected to meet the deadline and "
    "the budget.\n\nBegin with `lowtide up`, then `lowtide submit job.yaml`.",
    no_args_is_help=True,
    # Plain help: paragraphs are filled to the width, and brackets stay.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lowtide {importlib.metadata.version('lowtide')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options of the program itself."""


for module in (demo, up, server_status, doctor_command, init):
    module.register(app)
add_api_commands(app)
for module in (catalog_commands, backtest_command, migrate_command):
    module.register(app)


def main() -> None:
    """Entry point of the installed command."""
    app()
