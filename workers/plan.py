"""What worker and beat take from the settings, in plain values: addresses, log level, schedule.

Lives here: the values, and reading them in a process of their own: the library that checks settings
would stay in beat, which never needs it again, with more memory than all the rest of beat. Not
here: what settings mean (`app.settings`), or reading them in this process (`read_plan`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

USAGE_EXIT: Final = 2
"""The exit code of a program whose arguments or settings cannot be used."""

_READER: Final = "workers.read_plan"


class PlanRefused(Exception):
    """The settings cannot be used; the text says why."""


@dataclass(frozen=True)
class WorkerConfig:
    """periods: seconds by the name of a controller."""

    redis_url: str
    log_level: str
    periods: dict[str, float]


def read_plan_apart() -> WorkerConfig:
    """The plan, as another process reads it. Raises PlanRefused for settings that do not work."""
    safe_path = ["-P"] if sys.flags.safe_path else []
    done = subprocess.run(
        [sys.executable, *safe_path, "-m", _READER],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PlanRefused(done.stdout or "the settings could not be read")
    return WorkerConfig(**json.loads(done.stdout))
