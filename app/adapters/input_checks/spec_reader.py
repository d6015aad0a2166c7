"""Parses the text of job specs in a child process, so that no body holds up the api's own thread.

The child is started at the first spec, serves one after the other, and is killed when one takes
too long. Not here: who waits for a turn (`serving.turns`), or the rules of the text (`domain`).
"""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from typing import Final

import orjson

from app.adapters.input_checks.child_process import start_child
from app.adapters.input_checks.spec_reader_child import ANSWER, CODE_OF_TYPE, REQUEST
from app.domain.spec.spec_text import SpecTextType
from app.domain.units.durations import measured_duration
from app.domain.units.errors import SpecError

PARSE_SECONDS_MAX: Final = 15.0
_CHILD: Final = "app.adapters.input_checks.spec_reader_child"
_END_SECONDS: Final = 5.0
# Whoever killed the child meant it, not the spec: that spec gets another child, once.
_TRIES: Final = 2


class SpecUnreadable(Exception):
    """The child ended or was killed before it had parsed the text."""


class SpecReader:
    """One child at most. `parse` blocks, and is called by one thread at a time."""

    def __init__(self, seconds_max: float = PARSE_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def child_pid(self) -> int | None:
        """The child's process id; None while there is none."""
        return None if self._child is None else self._child.pid

    def parse(self, text: bytes, content_type: SpecTextType) -> dict[str, object]:
        """The mapping that `text` writes.

        Raises SpecError for everything wrong in it, and SpecUnreadable when the child ended twice,
        or was killed after `seconds_max` seconds of wall time.
        """
        for _ in range(_TRIES):
            try:
                answer = self._ask(text, content_type)
            except (OSError, EOFError):
                self.close()
                continue
            if "refused" in answer:
                raise SpecError.of(str(answer["refused"]))
            spec: dict[str, object] = answer["spec"]
            return spec
        raise SpecUnreadable("the process that parses job specs ended twice")

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                # What was not sent is flushed at the close, into a pipe that nobody reads.
                with suppress(OSError):
                    pipe.close()
        child.wait(_END_SECONDS)

    def _ask(self, text: bytes, content_type: SpecTextType) -> dict[str, dict[str, object]]:
        if self._child is None:
            self._child = start_child(_CHILD, stdin=subprocess.PIPE)
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        late = threading.Event()

        def kill() -> None:
            late.set()
            child.kill()

        clock = threading.Timer(self._seconds_max, kill)
        clock.daemon = True
        clock.start()
        try:
            child.stdin.write(REQUEST.pack(CODE_OF_TYPE[content_type], len(text)) + text)
            child.stdin.flush()
            head = child.stdout.read(ANSWER.size)
            if len(head) < ANSWER.size:
                raise EOFError
            answer: dict[str, dict[str, object]] = orjson.loads(
                child.stdout.read(*ANSWER.unpack(head))
            )
            return answer
        except (OSError, EOFError, orjson.JSONDecodeError) as error:
            if late.is_set():
                self.close()
                raise SpecUnreadable(
                    f"not parsed within {measured_duration(self._seconds_max)}"
                ) from error
            raise EOFError from error
        finally:
            clock.cancel()
