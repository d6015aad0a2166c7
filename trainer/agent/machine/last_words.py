"""What an agent says of an error that nobody caught, where its own log may be on a full disk.

Not here: the code it ends with (`trainer.protocol.exit_codes`).
"""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from pathlib import Path

LAST_WORDS_MAX = 500


def print_line(text: str) -> None:
    """To standard error, without a buffer: a log on a full disk ends nobody."""
    with suppress(OSError):
        os.write(2, f"lowtide-agent: {text}\n".encode("utf-8", "replace"))


def print_failure(error: BaseException) -> None:
    """The stack, as Python would print it."""
    lines = traceback.format_exception(error)
    with suppress(OSError):
        os.write(2, "".join(lines).encode("utf-8", "replace"))


def last_words(error: BaseException) -> str:
    """One line on an error: its type, its message and where it was raised."""
    place = ""
    with suppress(Exception):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f" ({Path(frame.filename).name}:{frame.lineno})"
    return " ".join(f"{type(error).__name__}: {error}".split())[:LAST_WORDS_MAX] + place
