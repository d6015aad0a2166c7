"""The steps as a person sees them: one moving line on a terminal, a line now and then elsewhere.

Everything but the steps is printed by ``progress.py``.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, TextIO

from trainer.training.reporting.progress import ProgressLog

BAR_WIDTH = 24
# A log that is kept wants one line a minute, a screen wants movement.
LINE_SECONDS = 60.0
BAR_SECONDS = 0.2


class ProgressScreen:
    """A sink of ``ProgressLog``. ``live``: ``out`` is a screen, and one line moves on it."""

    def __init__(self, out: TextIO, live: bool, columns: int = 100) -> None:
        self._out = out
        self._live = live
        self._columns = columns
        self._seconds = BAR_SECONDS if live else LINE_SECONDS
        self._shown_at = time.monotonic()
        self._bar_is_open = False

    def tell(self, kind: str, values: dict[str, Any]) -> None:
        """Shows a step when it is time for one; makes room for the line of any other type."""
        if kind != "step":
            if self._bar_is_open:
                self._out.write("\r\x1b[K")
                self._bar_is_open = False
            return
        now = time.monotonic()
        if now - self._shown_at < self._seconds and values["step"] < values["total_steps"]:
            return
        self._shown_at = now
        text = step_line(values)
        if self._live:
            self._out.write(f"\r{bar(values)} {text}\x1b[K"[: self._columns + 8])
            self._bar_is_open = True
        else:
            self._out.write(f"{text}\n")
        self._out.flush()


def step_line(values: dict[str, Any]) -> str:
    """`step 40/1000  loss 0.6931  2,048 samples/s  2m 10s left`."""
    step, total = values["step"], values["total_steps"]
    left = (total - step) * values["seconds"]
    minutes, seconds = divmod(round(left), 60)
    hours, minutes = divmod(minutes, 60)
    shown = f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds}s"
    return (
        f"step {step:,}/{total:,}  loss {values['loss']:.4g}"
        f"  {values['samples_per_second']:,.0f} samples/s  {shown} left"
    )


def bar(values: dict[str, Any]) -> str:
    """How much of the run is done, ``BAR_WIDTH`` characters wide."""
    done: int = BAR_WIDTH * values["step"] // max(1, values["total_steps"])
    return "█" * done + "░" * (BAR_WIDTH - done)


def show_on_terminal(progress: ProgressLog) -> None:
    """Shows the steps of ``progress`` on standard output."""
    live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    columns = os.get_terminal_size().columns if live else 100
    progress.also_tell(ProgressScreen(sys.stdout, live, columns).tell)
