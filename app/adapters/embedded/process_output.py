"""What supervised processes print: each line prefixed on one stream and kept in a log file.

Not here: starting the processes.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import IO, TextIO

from app.adapters.embedded import log_files

_PREFIX_WIDTH = 8
_MAX_LINE_BYTES = 64 * 1024
_LINES_BETWEEN_SIZE_CHECKS = 1000
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
        self._lock = threading.Lock()

    def say(self, name: str, text: str) -> None:
        """Write one line under the prefix `name`."""
        with self._lock:
            if self._stream is None:
                return
            try:
                self._stream.write(f"{self._prefix(name)}{text}\n")
                self._stream.flush()
            except (OSError, ValueError):
                # The terminal is gone; the processes and their log files go on.
                self._stream = None

    def follow(self, name: str, pipe: IO[bytes], *, echo: bool) -> threading.Thread:
        """Read `pipe` to its end in a thread, line by line, into the log and onto the stream."""
        thread = threading.Thread(
            target=self._read, args=(name, pipe, echo), name=f"output-{name}", daemon=True
        )
        thread.start()
        return thread

    def _read(self, name: str, pipe: IO[bytes], echo: bool) -> None:
        path = log_files.log_path(self._state_dir, name)
        with pipe:
            ended = False
            while not ended:
                log_files.roll_over(path)
                ended = self._read_some(name, pipe, path, echo)

    def _read_some(self, name: str, pipe: IO[bytes], path: Path, echo: bool) -> bool:
        with open(path, "ab") as log:
            for _ in range(_LINES_BETWEEN_SIZE_CHECKS):
                line = pipe.readline(_MAX_LINE_BYTES)
                if not line:
                    return True
                text = line.rstrip(b"\r\n")
                log.write(text + b"\n")
                log.flush()
                if echo:
                    self.say(name, text.decode("utf-8", "replace"))
        return False

    def _prefix(self, name: str) -> str:
        padded = f"{name:<{_PREFIX_WIDTH}} | "
        if not self._colour:
            return padded
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        return f"{colour}{padded}{_RESET}"
