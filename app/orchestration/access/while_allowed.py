"""An answer that is sent for long goes on only as long as its reader may have it.

Not here: what the reader may (`app.domain.access`), or how a request is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final, TypeVar

from app.ports.clock import Clock

T = TypeVar("T")

ASKED_EVERY: Final = timedelta(seconds=2)


def while_allowed(parts: Iterator[T], ask: Callable[[], object], clock: Clock) -> Iterator[T]:
    """The parts, as long as `ask` raises nothing: asked between two of them, every two seconds.

    What it raises ends the answer, so that its reader sees that it is not whole.
    """
    asked_at = clock.now()
    for part in parts:
        if not asked_at <= clock.now() < asked_at + ASKED_EVERY:
            ask()
            asked_at = clock.now()
        yield part
