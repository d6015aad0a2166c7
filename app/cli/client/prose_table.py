"""Rows of figures that each end in a sentence, in the widest form that the screen has room for.

Not here: the cells (the commands), or plain tables and colour (`terminal`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from app.cli.client.terminal import Column, Terminal, cells_of, printable

_INDENT: Final = "    "


def prose(terminal: Terminal, text: str, indent: str = "") -> None:
    """A sentence for people, wrapped on a screen; a pipe gets it as one line."""
    for line in _wrapped(terminal, printable(text), indent):
        terminal.line(line)


def prose_table(
    terminal: Terminal, columns: Sequence[Column], sentence: Column, rows: Sequence[Any]
) -> None:
    """A table whose last column is prose. `columns` begin with what names a row.

    Beside the figures where it fits, and in a pipe; else beneath its row; on a screen that is too
    narrow even for the figures, each row is a name with labelled figures below it.
    """
    whole = terminal.table_lines([*columns, sentence], rows)
    if _fits(terminal, whole):
        lines = whole
    else:
        heading, *figures = terminal.table_lines(columns, rows)
        lines = [heading] if _fits(terminal, [heading, *figures]) else []
        for row, line in zip(rows, figures, strict=True):
            lines += [line] if lines[:1] == [heading] else _stacked(terminal, columns, row)
            lines += _wrapped(terminal, printable(sentence.text(row)), _INDENT)
    for line in lines:
        terminal.line(line)


def _stacked(terminal: Terminal, columns: Sequence[Column], row: Any) -> list[str]:
    """The first two columns are a mark and a name; the rest follow below, each with its heading."""
    mark, name, *figures = columns
    style = name.style(row) if name.style else ""
    title = terminal.paint(printable(f"{mark.text(row)} {name.text(row)}"), style)
    # What belongs together stays on one line.
    told = "  ".join(
        f"{column.heading.lower()} {printable(column.text(row))}".replace(" ", "\xa0")
        for column in figures
    )
    return [title, *_wrapped(terminal, told, _INDENT)]


def _wrapped(terminal: Terminal, text: str, indent: str) -> list[str]:
    if not terminal.out.isatty():
        return [f"{indent}{text}".replace("\xa0", " ")]
    width = max(terminal.width, 2 * len(indent) + 20)
    lines = textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return [line.replace("\xa0", " ") for line in lines]


def _fits(terminal: Terminal, lines: Sequence[str]) -> bool:
    if not terminal.out.isatty():
        return True
    return max(map(cells_of, lines)) <= terminal.width
