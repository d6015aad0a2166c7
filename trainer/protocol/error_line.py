"""The line of a log that names what went wrong, and lines of logs as people can read them.

The agent sends it with the end of a command; pages look for it in the stored log. Not here: what
else an agent reports of an end (`agent_report`), or reading logs.
"""

from __future__ import annotations

import re
import signal
from typing import Final

_LENGTH_MAX: Final = 300
_ERROR: Final = re.compile(
    r"(?:\[?rank ?\d+\]?:? *)?"
    r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Expired)\b(?:: .*)?)"
)
# What a launcher says of the end of its children names no cause.
_LAUNCHERS: Final = ("ChildFailedError", "SignalException", "CalledProcessError")
_OURS: Final = "[lowtide]"
# Fields of torchrun's framed list of failed ranks; the exit code is the one that says something.
_REPORT_EXIT: Final = re.compile(r"exitcode\s*: (-?\d+) \(pid: \d+\)")
_REPORT_FIELD: Final = re.compile(r"(?:time|host|rank|error_file|traceback)\s+?: .*|error_file: .*")
# Colours and cursor movements of terminals; control characters but tab and new line, of C1 too, and
# marks that turn the direction of writing.
_TERMINAL_CODES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def readable_line(line: str) -> str:
    """The line without terminal codes.

    Of one that was written over with carriage returns, as progress bars do, the last state.
    """
    return _CONTROLS.sub("", _TERMINAL_CODES.sub("", line.rstrip("\r").rpartition("\r")[2]))


def error_line(log: str) -> str | None:
    """The last line that begins with the name of an exception, else the last one with words.

    At most 300 characters. Lines of Lowtide itself and of torchrun's summary do not count, but
    how a rank ended is taken from there; None where nothing else was written.
    """
    last = None
    for line in reversed(log.split("\n")):
        text = readable_line(line).strip()
        if not re.search(r"\w", text) or text.startswith(_OURS):
            continue
        found = _ERROR.fullmatch(text)
        if found is not None and not any(one in found[1] for one in _LAUNCHERS):
            return _cut(found[1])
        if last is None and _REPORT_FIELD.fullmatch(text) is None:
            ended = _REPORT_EXIT.fullmatch(text)
            last = text if ended is None else _rank_ended(int(ended[1]))
    return None if last is None else _cut(last)


def _rank_ended(exit_code: int) -> str:
    """How a process of the program ended that itself said nothing of an error."""
    if exit_code >= 0:
        return f"a rank of torchrun ended with exit code {exit_code} and named no error"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"a rank of torchrun was killed by {name}"


def one_line(text: str) -> str:
    """All lines of a text as one, without terminal codes; at most 300 characters."""
    return _cut(" ".join(" ".join(map(readable_line, text.split("\n"))).split()))


def _cut(text: str) -> str:
    return text if len(text) <= _LENGTH_MAX else f"{text[: _LENGTH_MAX - 1]}…"
