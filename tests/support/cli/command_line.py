"""The `lowtide` command run against a served api, as a person or a script would run it.

Here: a run of the command in this process with what it printed. Not here: the api (`people_api`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from app.cli.main import app

# Made once: typer needs a fiftieth of a second to make the commands of all verbs.
_LOWTIDE = get_command(app)


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    exit_code: int
    out: str
    errors: str

    @property
    def json(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)

    def row(self, *cells: str) -> str:
        """The one line that holds all of these; fails when none or several do."""
        [line] = [line for line in self.out.splitlines() if all(cell in line for cell in cells)]
        return line


@dataclass(frozen=True)
class CommandLine:
    """Runs commands with settings of its own and a home folder of its own."""

    home: Path
    variables: dict[str, str]

    def run(self, *arguments: str, stdin: str | bytes | None = None) -> Ran:
        """One command, ended whatever way."""
        runner = CliRunner(env={"HOME": str(self.home), **self.variables})
        exit_code: Any = 0
        with runner.isolation(input=stdin) as (out, errors, _):
            try:
                _LOWTIDE.main(args=list(arguments), prog_name="lowtide")
            except SystemExit as end:
                exit_code = end.code or 0
            sys.stdout.flush()
            sys.stderr.flush()
            return Ran(exit_code, _text(out), _text(errors))

    def ok(self, *arguments: str, stdin: str | bytes | None = None) -> Ran:
        """One command that must end with 0."""
        ran = self.run(*arguments, stdin=stdin)
        assert ran.exit_code == 0, f"{_shown(arguments)}: {ran}"
        return ran

    def fails(self, exit_code: int, *arguments: str, stdin: str | bytes | None = None) -> Ran:
        """One command that must end with this code, and say why on stderr alone."""
        ran = self.run(*arguments, stdin=stdin)
        assert ran.exit_code == exit_code, f"{_shown(arguments)}: {ran}"
        assert ran.errors.strip(), f"{_shown(arguments)} said nothing"
        assert "Traceback" not in ran.errors
        return ran


def _text(printed: BytesIO) -> str:
    return printed.getvalue().decode("utf-8", "replace").replace("\r\n", "\n")


def _shown(arguments: Sequence[str]) -> str:
    return f"lowtide {' '.join(arguments)}"
