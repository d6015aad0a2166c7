"""A bench as a command: its rows one after the other, each within a limit, the table, the JSON.

A missed goal is a figure, not a failure: the command ends with 1 only when a row could not be
carried out. Not here: which rows there are, or what they measure.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.bench.results import Failure, Figure, load_average, machine, table, write_json


class OverTime(Exception):
    """A row took longer than it may."""


class NotHere(Exception):
    """This machine lacks what the row needs; the message says what. Not a failure."""


class RowsCommand:
    """What was asked for on the command line, and what has been measured of it so far."""

    def __init__(
        self, program: str, description: str | None, rows: Iterable[str], results: str
    ) -> None:
        self._rows = list(rows)
        self._parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
        self._parser.add_argument(
            "--only", action="append", choices=self._rows, help="only this one; repeatable"
        )
        self._parser.add_argument("--quick", action="store_true", help="shorter and rougher")
        self._parser.add_argument(
            "--json", type=Path, default=Path(results), help=f"default: {results}"
        )
        self._figures: list[Figure] = []
        self._failures: list[Failure] = []
        self._absent: list[Failure] = []
        self._loads: dict[str, float] = {}

    def begin(self, arguments: list[str]) -> None:
        """Read the command line."""
        chosen = self._parser.parse_args(arguments)
        self.quick: bool = chosen.quick
        self._json: Path = chosen.json
        self._only: list[str] = chosen.only or self._rows
        self._began = time.monotonic()

    def say(self, line: str) -> None:
        """One line of progress, for who watches."""
        print(f"[{time.monotonic() - self._began:5.0f} s] {line}", file=sys.stderr, flush=True)

    def measure(self, limit_seconds: int, row: Callable[[str], list[Figure]]) -> None:
        """Carry out the rows that are asked for, in their order."""
        for name in (name for name in self._rows if name in self._only):
            self._loads[name] = load_average()
            self.say(f"{name} (load average {self._loads[name]})")
            try:
                with _limited(limit_seconds):
                    self._figures += row(name)
            except NotHere as error:
                self._absent.append(Failure(name, str(error)))
            except Exception as error:
                traceback.print_exc()
                self._failures.append(Failure(name, f"{type(error).__name__}: {error}"))

    def report(self) -> int:
        """Print the table and write the JSON; the exit code for the shell."""
        seconds = round(time.monotonic() - self._began)
        about, busiest = machine(), max(self._loads.values(), default=0.0)
        told = {"machine": about, "load_average_before": self._loads, "quick": self.quick}
        missing = self._failures + self._absent
        write_json(self._json, self._figures, missing, {**told, "wall_seconds": seconds})
        print(
            f"\n{about['cores']} cores ({about['processor']}), {about['memory_gib']} GiB, "
            f"Python {about['python']}; load average before each row at most {busiest}; "
            f"{seconds} s in all\n"
        )
        print(table(self._figures, missing))
        print(f"\nAll details: {self._json}")
        return 1 if self._failures else 0


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Interrupt what takes longer."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise OverTime(f"stopped after {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
