"""How often machines like this one are lost without a word, as far as anybody here knows.

The configuration's ``checkpoint_hazard_per_hour`` counts first. Else the file that
LOWTIDE_HAZARD_FILE names: one JSON object ``{"per_hour": 0.25}``, which the agent may replace at
any time. Else one loss in two hours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from trainer.protocol.checkpoint_interval import DEFAULT_MEAN_SECONDS, mean_seconds_of

FILE_BYTES_MAX = 4096


class Hazard:
    """Asked once for every checkpoint; never fails."""

    def __init__(self, per_hour: float | None, variables: Mapping[str, str] = os.environ) -> None:
        self._per_hour = per_hour
        name = variables.get("LOWTIDE_HAZARD_FILE", "")
        self._path = Path(name) if name else None

    def mean_seconds(self) -> float:
        """Mean time between losses; infinite where there are none."""
        per_hour = self._per_hour
        if per_hour is None and self._path is not None:
            per_hour = _read(self._path)
        return DEFAULT_MEAN_SECONDS if per_hour is None else mean_seconds_of(per_hour)


def _read(path: Path) -> float | None:
    """What the file says; None while it is missing or odd: an interval is no reason to end."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    value = document.get("per_hour") if isinstance(document, dict) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1e6:
        return float(value)
    return None
