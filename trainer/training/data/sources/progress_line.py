"""One line on a terminal that tells how far a long piece of work is; silent elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

REDRAW_SECONDS = 0.2
WIDTH = 30


class ProgressLine:
    """Counts ``noun``; with ``total`` it shows a bar and the time that is left."""

    def __init__(self, noun: str, total: int | None = None) -> None:
        self._noun, self._total = noun, total
        self._done = 0
        self._started_at = time.monotonic()
        self._drawn_at = 0.0
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown:
            self._draw()
            print(file=sys.stderr)

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if self._shown and time.monotonic() - self._drawn_at > REDRAW_SECONDS:
            self._draw()

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        rate = self._done / max(self._drawn_at - self._started_at, 1e-9)
        text = f"{self._done:,} {self._noun}, {rate:,.0f}/s"
        if self._total:
            filled = WIDTH * self._done // self._total
            left = (self._total - self._done) / max(rate, 1e-9)
            text = f"[{'#' * filled:{WIDTH}}] {text} of {self._total:,}, {left:,.0f} s left"
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
