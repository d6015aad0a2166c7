"""When a periodic checkpoint is due. Pure of files; the clock is the monotonic one."""

from __future__ import annotations

import time

from trainer.training.config import TrainConfig

AUTO_LEAST_SECONDS = 10.0
AUTO_MOST_SECONDS = 300.0
# A save may cost one hundredth of the time between saves.
AUTO_SAVES_APART = 100.0


class SaveSchedule:
    """Due after so many steps, or after so many seconds, since the last checkpoint.

    "auto" is 100 times what the last save took, within 10 s and 300 s. Seconds are counted on one
    rank (0) and agreed with the others; steps are alike everywhere.
    """

    def __init__(self, config: TrainConfig, step: int) -> None:
        self._steps = config.checkpoint_interval_steps
        seconds = config.checkpoint_interval_seconds
        self._auto = seconds in (None, "auto")
        self._seconds = seconds if isinstance(seconds, float) else AUTO_LEAST_SECONDS
        self._last_step = step
        self._last_at = time.monotonic()

    def due(self, step: int) -> bool:
        """Whether a checkpoint should be written after ``step`` finished steps."""
        if self._steps is not None:
            return step - self._last_step >= self._steps
        return time.monotonic() - self._last_at >= self._seconds

    def saved(self, step: int, seconds: float) -> None:
        """Notes a checkpoint of ``step`` that took ``seconds``."""
        self._last_step, self._last_at = step, time.monotonic()
        if self._auto:
            wanted = AUTO_SAVES_APART * seconds
            self._seconds = min(max(wanted, AUTO_LEAST_SECONDS), AUTO_MOST_SECONDS)
