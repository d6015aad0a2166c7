"""Keeps torchrun's report of a failure out of the log where ranks only stopped as they were asked.

torchrun knows no end but success and failure: of a rank that saved and left with exit code 75 it
prints a line, a stack and a framed list of failures. Lives here: the filter over a machine's
output. Real failures, and whatever is not understood, pass through as they are. Not here: what an
end means (`end_files`).

Source: torch/distributed/elastic/multiprocessing/errors/__init__.py (ChildFailedError.format_msg)
and api.py (SignalException, PContext), PyTorch 2.9 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Callable

HELD_BYTES_MAX = 256 << 10
"""A report is shorter; what is longer is something else, and is let go."""

_STACK = b"Traceback (most recent call last):"
_CHILD_FAILED = b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
_SIGNALLED = b"torch.distributed.elastic.multiprocessing.api.SignalException:"
_FRAME = re.compile(rb"={10,}\s*")
_EXIT_CODE = re.compile(rb"^\s*exitcode\s*: (-?\d+)\b", re.MULTILINE)
_RANK_LEFT = re.compile(rb"[EW]\d{4} .*torch/distributed/elastic/.*\] failed \(exitcode: 75\)")
_WARNED = re.compile(
    rb"W\d{4} .*torch/distributed/elastic/.*\] "
    rb"(?:Received .* death signal|Sending process \d+ closing signal)"
)
_DRAINED = 75
_TOLD_TO_STOP = -15
_BEGINNINGS = (_STACK, b"E", b"W")


class LauncherReports:
    """Everything that is printed goes through `feed`, and `end` gives what was still held back."""

    def __init__(self, is_draining: Callable[[], bool]) -> None:
        """is_draining: whether this machine was asked to stop."""
        self._is_draining = is_draining
        self._partial = b""
        self._at_line_start = True
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._frames = 0
        self._in_report = False

    def feed(self, content: bytes) -> bytes:
        """What of the output may be shown now."""
        *lines, rest = (self._partial + content).split(b"\n")
        shown = [self._line(line + b"\n") for line in lines]
        self._partial = rest
        if rest and not self._held and not self._may_be_ours(rest):
            # A line that is still being written, such as a bar of progress, is not held up.
            shown.append(rest)
            self._partial, self._at_line_start = b"", False
        return b"".join(shown)

    def end(self) -> bytes:
        """The rest, at the end of the output."""
        held, self._held = b"".join(self._held), []
        partial, self._partial = self._partial, b""
        return held + partial

    def _may_be_ours(self, rest: bytes) -> bool:
        if not self._at_line_start:
            return False
        return any(one.startswith(rest) or rest.startswith(one) for one in _BEGINNINGS)

    def _line(self, line: bytes) -> bytes:
        whole, self._at_line_start = self._at_line_start, True
        if self._held:
            return self._of_stack(line)
        if whole and line.rstrip() == _STACK:
            self._hold(line)
            return b""
        if whole and (_RANK_LEFT.match(line) or (_WARNED.match(line) and self._is_draining())):
            return b""
        return line

    def _of_stack(self, line: bytes) -> bytes:
        """One more line while a stack is held back."""
        self._hold(line)
        if self._in_report:
            self._frames += bool(_FRAME.fullmatch(line))
            if self._frames == 2:
                return self._judge(_is_of_a_drain(b"".join(self._held)))
        elif line.startswith(_CHILD_FAILED):
            self._in_report = True
        elif line.startswith(_SIGNALLED):
            return self._judge(self._is_draining())
        elif line.strip() and not line.startswith(b" "):
            return self._judge(False)
        return self._judge(False) if self._held_bytes > HELD_BYTES_MAX else b""

    def _hold(self, line: bytes) -> None:
        self._held.append(line)
        self._held_bytes += len(line)

    def _judge(self, drop: bool) -> bytes:
        held = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        self._frames, self._in_report = 0, False
        return b"" if drop else held


def _is_of_a_drain(report: bytes) -> bool:
    codes = {int(code) for code in _EXIT_CODE.findall(report)}
    return _DRAINED in codes and codes <= {_DRAINED, _TOLD_TO_STOP}
