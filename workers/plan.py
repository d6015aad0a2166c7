"""What worker and beat take from the settings, in plain values: addresses, log level, schedule.

Lives here: reading it, and reading it apart: the library that checks settings would stay in beat,
which never needs it again, with more memory than all the rest of beat. Not here: what settings mean
(`app.settings`), or Celery (`celery_app`).
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

_GOOD, _REFUSED = 0, 2


class PlanRefused(Exception):
    """The settings cannot be used; the text says why."""


@dataclass(frozen=True)
class WorkerConfig:
    """periods: seconds by the name of a controller."""

    redis_url: str
    log_level: str
    periods: dict[str, float]


_plans: list[WorkerConfig] = []


def plan() -> WorkerConfig:
    """The plan of this program. Raises SettingsError for settings that cannot be used."""
    if not _plans:
        _plans.append(_read())
    return _plans[0]


def read_plan_apart() -> None:
    """Have `plan` answer from what a process of its own has read. Raises PlanRefused.

    Call it before there is a second thread.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _read_for_parent(write_end)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != _GOOD:
        raise PlanRefused(text or "the settings could not be read")
    _plans[:] = [WorkerConfig(**json.loads(text))]


def _read() -> WorkerConfig:
    from app.bootstrap import controller_schedule, redis_url
    from app.settings import load_settings

    settings = load_settings()
    return WorkerConfig(
        redis_url(settings),
        settings.log_level,
        {one.name: one.period_seconds for one in controller_schedule(settings)},
    )


def _read_for_parent(write_end: int) -> NoReturn:
    """In the child: write the plan, or why there is none, and end without a trace."""
    status = _REFUSED
    try:
        said: Any = json.dumps(asdict(_read()))
        status = _GOOD
    except Exception as error:
        said = str(error)
    sys.stderr.flush()
    with os.fdopen(write_end, "w", encoding="utf-8") as answer:
        answer.write(said)
    os._exit(status)
