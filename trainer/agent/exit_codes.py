"""How an agent ends, for whoever starts it again: the boot script, systemd, the local cloud.

Python itself ends with 1 for an error that nobody caught and with 2 for a bad command line, so the
agent's own words are others: what is not listed here is a failure, and another try may do better.
Lives here: the codes, and the last words of a failure. Not here: the counting of failures, which is
the starter's.
"""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from typing import Final

LEFT: Final = 0
"""The machine is being given back."""
FAILED: Final = 70
"""An error that nobody caught; EX_SOFTWARE of sysexits.h. Start it again."""
REFUSED: Final = 77
"""The control plane will not have this machine; EX_NOPERM. Another try gets the same answer."""
SETTINGS: Final = 78
"""Its environment is unusable; EX_CONFIG."""

FAILURES_MAX: Final = 5
"""After more failures in a row than this, the agent only says so and gives the machine back."""
LAST_WORDS_MAX: Final = 500


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
        place = f" ({os.path.basename(frame.filename)}:{frame.lineno})"
    return " ".join(f"{type(error).__name__}: {error}".split())[:LAST_WORDS_MAX] + place
