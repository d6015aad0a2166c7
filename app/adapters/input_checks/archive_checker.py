"""Checks an uploaded archive in a child process of its own, which is killed at its limits.

Not here: what an archive may hold (`workdir_check`), or who waits for a turn (`serving.turns`).
"""

from __future__ import annotations

import signal
import subprocess
from typing import IO, Final

import orjson

from app.adapters.input_checks.child_process import start_child
from app.adapters.input_checks.workdir_check import CHECK_SECONDS_MAX
from app.domain.units.durations import format_duration, measured_duration
from app.domain.units.errors import SpecError

_CHILD: Final = "app.adapters.input_checks.workdir_check"
_ADVICE: Final = "pack fewer or smaller files, or bring data as `inputs`"


class CheckFailed(Exception):
    """The child ended before it had judged the archive, and not at one of its limits."""


class ArchiveChecker:
    """A child for each archive. seconds_max: wall time for one."""

    def __init__(self, seconds_max: float = CHECK_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max

    def check(self, file: IO[bytes]) -> None:
        """Judge the archive in a file of the system; blocks until the child has ended.

        Raises SpecError for an archive that is refused or that reaches a limit, and CheckFailed.
        """
        file.seek(0)
        with start_child(_CHILD, stdin=file) as child:
            try:
                answer, _ = child.communicate(timeout=self._seconds_max)
            except subprocess.TimeoutExpired:
                raise _over(
                    f"takes longer than {measured_duration(self._seconds_max)} to check"
                ) from None
            finally:
                child.kill()
        if child.returncode == -signal.SIGXCPU:
            raise _over(
                f"takes more than {format_duration(CHECK_SECONDS_MAX)} of processor time to check"
            )
        try:
            refused = orjson.loads(answer)["refused"]
        except (orjson.JSONDecodeError, KeyError):
            raise CheckFailed(f"the check of the archive ended with {child.returncode}") from None
        if refused is not None:
            raise SpecError.of(refused, "workdir")


def _over(what: str) -> SpecError:
    return SpecError.of(f"workdir: the archive {what}; {_ADVICE}", "workdir")
