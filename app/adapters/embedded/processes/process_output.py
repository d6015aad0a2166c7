"""What supervised processes print: each line prefixed on one stream and kept in a log file.

Not here: starting the processes.
"""

from __future__ import annotations

import errno
import re
import threading
import time
from pathlib import Path
from typing import IO, TextIO

from app.adapters.embedded.processes import log_files

_PREFIX_WIDTH = 8
_MAX_LINE_BYTES = 64 * 1024
_TRACEBACK = b"Traceback (most recent call last):"
# How our programs and uvicorn begin an entry of their logs; other lines belong to the one before.
_ENTRY = re.compile(rb"\d\d:\d\d:\d\d |\d{4}-\d\d-\d\d |(DEBUG|INFO|WARNING|ERROR|CRITICAL): ")
# What is to be expected: its one line says enough, and its traceback is for the log alone.
_EXPECTED = re.compile(rb"\d\d:\d\d:\d\d (DEBUG|INFO|WARNING) ")
_TOLD_AGAIN_SECONDS = 60.0
_RESET = "\x1b[0m"
# Cyan, magenta, green, blue, yellow: readable on dark and light; red stays free for errors.
_COLOURS = ("\x1b[36m", "\x1b[35m", "\x1b[32m", "\x1b[34m", "\x1b[33m")


class ProcessOutput:
    """Where the lines of all processes meet; safe to use from several threads."""

    def __init__(self, state_dir: Path, stream: TextIO, *, colour: bool) -> None:
        self._state_dir = state_dir
        self._stream: TextIO | None = stream
        self._colour = colour
        self._colours: dict[str, str] = {}
        self.is_quiet = False
        """While it is, what processes print goes to their logs alone."""
        self._lock = threading.Lock()

    def say(self, name: str, text: str) -> None:
        """Write one line under the prefix `name`."""
        self.line(f"{self._prefix(name)}{text}")

    def line(self, text: str) -> None:
        """Write one line as it is."""
        with self._lock:
            if self._stream is None:
                return
            try:
                self._stream.write(f"{text}\n")
                self._stream.flush()
            except (OSError, ValueError) as error:
                # The terminal is gone: the processes and their log files go on. A file on a full
                # disk will have room again.
                if getattr(error, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
                    self._stream = None

    def follow(
        self,
        name: str,
        pipe: IO[bytes],
        *,
        echo: bool,
        unechoed: re.Pattern[bytes] | None = None,
    ) -> threading.Thread:
        """Read `pipe` to its end in a thread, line by line, into the log and onto the stream.

        Of a traceback the stream gets one line that names the log; of one below a warning, and of
        entries that match `unechoed`, nothing.
        """
        thread = threading.Thread(
            target=self._read,
            args=(name, pipe, echo, unechoed),
            name=f"output-{name}",
            daemon=True,
        )
        thread.start()
        return thread

    def _read(
        self, name: str, pipe: IO[bytes], echo: bool, unechoed: re.Pattern[bytes] | None
    ) -> None:
        path = log_files.log_path(self._state_dir, name)
        log = log_files.LogFile(path)
        in_traceback = is_hidden = is_expected = False
        next_told_seconds = 0.0
        with pipe:
            # Whatever becomes of the log, the pipe is emptied: its writer must not be held up.
            while line := pipe.readline(_MAX_LINE_BYTES):
                text = line.rstrip(b"\r\n")
                log.append(text)
                begins = _TRACEBACK in text
                if _ENTRY.match(text):
                    in_traceback, is_expected = False, _EXPECTED.match(text) is not None
                    is_hidden = unechoed is not None and unechoed.match(text) is not None
                in_traceback = in_traceback or begins
                if not echo or is_hidden or self.is_quiet:
                    continue
                if not in_traceback:
                    self.say(name, text.decode("utf-8", "replace"))
                elif begins and not is_expected and time.monotonic() >= next_told_seconds:
                    self.say(name, f"an error with its traceback is in {path}")
                    next_told_seconds = time.monotonic() + _TOLD_AGAIN_SECONDS

    def _prefix(self, name: str) -> str:
        padded = f"{name:<{_PREFIX_WIDTH}} | "
        if not self._colour:
            return padded
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        return f"{colour}{padded}{_RESET}"
