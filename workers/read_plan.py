"""Reads the plan of worker and beat from the settings; as a program, it prints the plan as JSON.

`python -m workers.read_plan` ends with 2 and prints why where there is no plan. Not here: what the
plan is for (`plan`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from app.bootstrap import controller_schedule, redis_url
from app.settings import SettingsError, load_settings
from workers.plan import USAGE_EXIT, WorkerConfig


def read_plan() -> WorkerConfig:
    """The plan of this program. Raises SettingsError for settings that cannot be used."""
    settings = load_settings()
    return WorkerConfig(
        redis_url(settings),
        settings.log_level,
        {one.name: one.period_seconds for one in controller_schedule(settings)},
    )


def main() -> int:
    """Print the plan, or why there is none; the exit code."""
    try:
        text = json.dumps(asdict(read_plan()))
    except SettingsError as error:
        print(error, end="")
        return USAGE_EXIT
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
