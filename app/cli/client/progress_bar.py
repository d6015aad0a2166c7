"""A bar for work of known size, on stderr: on a screen alone, and gone when the work is done.

Not here: views that follow a job (`follow`), or what else a command writes (`terminal`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.cli.client.terminal import Terminal

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID


class ProgressBar:
    """How far the work is; where there is no screen, nobody is told."""

    def __init__(self, drawn: Progress | None = None, task: TaskID | None = None) -> None:
        self._drawn = drawn
        self._task = task

    def advance(self, more: float) -> None:
        """So much more is done."""
        if self._drawn is not None and self._task is not None:
            self._drawn.advance(self._task, more)

    def reach(self, done: float, of: float) -> None:
        """So much is done, of so much in all."""
        if self._drawn is not None and self._task is not None:
            self._drawn.update(self._task, completed=done, total=of)


@contextmanager
def progress_bar(
    terminal: Terminal, what: str, total: int | None = None, *, in_bytes: bool = False
) -> Iterator[ProgressBar]:
    """The bar while work goes on. total: None until `reach` tells it. in_bytes: with a speed."""
    if not (terminal.interactive and terminal.errors.isatty()):
        yield ProgressBar()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TransferSpeedColumn,
    )

    columns: tuple[str | ProgressColumn, ...] = Progress.get_default_columns()
    if in_bytes:
        sizes = DownloadColumn(binary_units=True)
        columns = (TextColumn("{task.description}"), BarColumn(), sizes, TransferSpeedColumn())
    console = Console(stderr=True, no_color=not terminal.colour)
    with Progress(*columns, console=console, transient=True) as drawn:
        yield ProgressBar(drawn, drawn.add_task(what, total=total))
