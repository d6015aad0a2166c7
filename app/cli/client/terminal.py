"""What a command writes: tables, lines, JSON and colour, right for a screen and for a pipe.

A pipe gets neither colour nor bars. Not here: how a value is worded (`wording`), bars
(`progress_bar`), or views that redraw themselves (`follow`).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TextIO

_CODES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36",
}  # fmt: skip
_COLOUR_OF_STATE: Final = {
    "succeeded": "green", "running": "green", "failed": "red", "cancelled": "dim",
    "paused": "yellow", "recovering": "yellow", "stopping": "yellow", "interrupting": "yellow",
    "queued": "cyan", "starting": "cyan", "terminated": "dim", "launch_failed": "red",
}  # fmt: skip
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_UNSEEN_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_COLOURED = re.compile("\x1b\\[[0-9;]*m")
_LINE_ENDS = re.compile(r"[\r\n\t]+")
_GAP: Final = "  "
_UNWRAPPED: Final = 100_000
_PROSE_BESIDE_MIN: Final = 40
_PROSE_INDENT: Final = "    "


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, the text of a row's cell, and whether figures line up right.

    prose: of the last column, a sentence that is cut where a screen ends; a pipe gets it whole.
    """

    heading: str
    text: Callable[[Any], str]
    right: bool = False
    style: Callable[[Any], str] | None = None
    prose: bool = False


class Terminal:
    """Writes to stdout, and says what went wrong on stderr."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        quiet: bool = False,
        no_color: bool = False,
        out: TextIO | None = None,
        errors: TextIO | None = None,
    ) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.out = out or sys.stdout
        self.errors = errors or sys.stderr
        self.interactive = self.out.isatty() and not as_json and not quiet
        self._colour = self.out.isatty() and not no_color

    @property
    def colour(self) -> bool:
        """Whether colour may be written to stdout."""
        return self._colour

    @property
    def width(self) -> int:
        """Columns of the screen; 100 where there is none."""
        return shutil.get_terminal_size((100, 24)).columns

    def on(self, page: TextIO) -> Terminal:
        """The same manners on another page: colour as here, nothing that moves."""
        other = Terminal(out=page, errors=self.errors)
        other._colour = self._colour
        return other

    def line(self, text: str = "") -> None:
        """One line for people; nothing under --json or -q."""
        if not (self.as_json or self.quiet):
            self.raw(f"{text}\n")

    def result(self, text: str) -> None:
        """The one line that scripts want (an id, a name): kept under -q, not under --json."""
        if not self.as_json:
            self.raw(f"{text}\n")

    def to_script(self, document: object, results: Iterable[str]) -> bool:
        """Write for a script: the document under --json, the results under -q; else False."""
        if self.as_json:
            self.json(document)
        elif self.quiet:
            for text in results:
                self.result(text)
        return self.as_json or self.quiet

    def listing(
        self, columns: Sequence[Column], rows: Sequence[Any], *, result: str, empty: str
    ) -> None:
        """Rows as a script or a person wants them. result: the field that -q prints of each."""
        if self.to_script(rows, (str(row[result]) for row in rows)):
            return
        if rows:
            self.table(columns, rows)
        else:
            self.line(empty)

    def raw(self, text: str) -> None:
        """Text as it is, at once."""
        self.out.write(text)
        self.out.flush()

    def json(self, value: object) -> None:
        """One JSON document."""
        self.raw(_harmless_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")

    def json_line(self, value: object) -> None:
        """One JSON value on one line, for streams."""
        self.raw(_harmless_json(json.dumps(value, ensure_ascii=False)) + "\n")

    def complain(self, lines: Iterable[str]) -> None:
        """What went wrong, on stderr: the first line is the sentence."""
        first, *rest = lines
        mark = "Error:"
        if self.errors.isatty() and self._colour:
            mark = f"\x1b[{_CODES['red']}m{mark}\x1b[0m"
        for text in (f"{mark} {printable(first)}", *map(printable, rest)):
            self.errors.write(f"{text}\n")
        self.errors.flush()

    def note(self, text: str) -> None:
        """A remark beside the output, on stderr; nothing under -q."""
        if not self.quiet:
            self.errors.write(f"{printable(text)}\n")
            self.errors.flush()

    def paint(self, text: str, style: str) -> str:
        """`text` in a colour where colour is shown; "" as style leaves it."""
        if not self._colour or not style:
            return text
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m"

    def state(self, state: str) -> str:
        """A state's name in its colour."""
        return self.paint(state, style_of_state(state))

    def table(self, columns: Sequence[Column], rows: Sequence[Any]) -> None:
        """Aligned columns without lines, one row per line; nothing under -q."""
        for line in self.table_lines(columns, rows):
            self.line(line)

    def table_lines(self, columns: Sequence[Column], rows: Sequence[Any]) -> list[str]:
        """The lines of a table: its headings, and one for each row.

        Prose for which a screen has no room beside the row stands below it.
        """
        below: Column | None = None
        if columns[-1].prose and self.out.isatty():
            room = self.width - max(map(cells_of, self._lines(columns[:-1], rows))) - len(_GAP)
            if room >= _PROSE_BESIDE_MIN:
                columns = [*columns[:-1], _cut(columns[-1], room)]
            else:
                below = _cut(columns[-1], self.width - len(_PROSE_INDENT))
                columns = columns[:-1]
        heading, *lines = self._lines(columns, rows)
        shown = [heading]
        for row, line in zip(rows, lines, strict=True):
            shown.append(line)
            if below is not None and (text := printable(below.text(row))):
                shown.append(f"{_PROSE_INDENT}{text}")
        return shown

    def _lines(self, columns: Sequence[Column], rows: Sequence[Any]) -> list[str]:
        """The table as rich lays it out, however wide; cells are text, never rich's markup."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="bold")
        for column in columns:
            side: Literal["left", "right"] = "right" if column.right else "left"
            table.add_column(Text(column.heading), justify=side, no_wrap=True)
        for row in rows:
            styles = [column.style(row) if column.style else "" for column in columns]
            cells = [printable(column.text(row)) for column in columns]
            table.add_row(*map(Text, cells, styles))
        console = Console(
            width=_UNWRAPPED,
            color_system="standard" if self._colour else None,
            force_terminal=self._colour,
        )
        with console.capture() as captured:
            console.print(table)
        return [line.rstrip() for line in captured.get().removesuffix("\n").split("\n")]

    def fields(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and values below each other; an empty value leaves its line out."""
        shown = [(name, value) for name, value in pairs if value]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            self.line(f"{self.paint(name.ljust(width), 'dim')}  {value}")


def style_of_state(state: str) -> str:
    """The colour of a job's, attempt's or instance's state; "" for one without a colour."""
    return _COLOUR_OF_STATE.get(state, "")


def cells_of(line: str) -> int:
    """How many columns of a screen a line takes, colours apart; some characters take two."""
    from rich.cells import cell_len

    return cell_len(_COLOURED.sub("", line))


def cut(text: str, width: int) -> str:
    """`text` in so many characters, cut at a word and marked "…" where it is longer."""
    if len(text) <= width:
        return text
    short = textwrap.shorten(text, width, placeholder="…")
    return short if len(short) > 1 else f"{text[: width - 1]}…"


def _cut(column: Column, width: int) -> Column:
    return replace(column, text=lambda row: cut(printable(column.text(row)), width))


def printable(text: str) -> str:
    """`text` without what could move the cursor or turn the writing direction."""
    return _UNSEEN.sub("�", _LINE_ENDS.sub(" ", text))


def _harmless_json(text: str) -> str:
    """The same values; JSON itself escapes only the first 32 of the control characters."""
    return _UNSEEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
