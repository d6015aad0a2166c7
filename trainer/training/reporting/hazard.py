"""How often the run's machines are lost, and what they cost, as far as anybody here knows.

Lives here: reading what was told. The configuration's ``checkpoint_hazard_per_hour`` counts
first; else the file that LOWTIDE_HAZARD_FILE names: one JSON object ``{"per_hour": 0.25,
"price_per_hour_usd": 3.6}``, which the agent may replace at any time; else one loss in two hours.
Not here: what follows for the checkpoints (``save_schedule``).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.protocol.checkpoint_interval import DEFAULT_MEAN_SECONDS, mean_seconds_of

FILE_BYTES_MAX = 4096
LOOK_SECONDS = 1.0
"""A look is one stat: cheap, and yet not made after every step."""


class Hazard:
    """Asked at every decision on a checkpoint; never fails."""

    def __init__(self, per_hour: float | None, variables: Mapping[str, str] = os.environ) -> None:
        self._per_hour = per_hour
        self._path = _path(variables)
        self._looked_at = -LOOK_SECONDS
        self._stamp: tuple[int, int] | None = None
        self._mean_seconds: float | None = None

    def mean_seconds(self) -> float:
        """Mean time between losses; infinite where there are none."""
        per_hour = self._per_hour
        if per_hour is None and self._path is not None:
            per_hour = _number(_read(self._path), "per_hour")
        return DEFAULT_MEAN_SECONDS if per_hour is None else mean_seconds_of(per_hour)

    def changed(self) -> bool:
        """Whether another mean time than at the last call was told, looking once a second."""
        now = time.monotonic()
        if self._path is None or self._per_hour is not None or now < self._looked_at + LOOK_SECONDS:
            return False
        self._looked_at = now
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
        except OSError:
            return False
        if stamp == self._stamp:
            return False
        self._stamp, before = stamp, self._mean_seconds
        self._mean_seconds = self.mean_seconds()
        return self._mean_seconds != before


def told_usd_per_hour(variables: Mapping[str, str]) -> float | None:
    """Of all machines of the gang, from the same file; None where it does not say."""
    path = _path(variables)
    return None if path is None else _number(_read(path), "price_per_hour_usd")


def _path(variables: Mapping[str, str]) -> Path | None:
    name = variables.get("LOWTIDE_HAZARD_FILE", "")
    return Path(name) if name else None


def _read(path: Path) -> dict[str, Any]:
    """What the file says; nothing while it is missing or odd: no reason to end a run."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _number(document: Mapping[str, Any], key: str) -> float | None:
    value = document.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1e6:
        return float(value)
    return None
