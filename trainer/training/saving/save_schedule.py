"""When a periodic checkpoint is due. Pure of files; the clock is the monotonic one."""

from __future__ import annotations

import time

from trainer.protocol.checkpoint_interval import checkpoint_interval_seconds
from trainer.training.config import TrainConfig
from trainer.training.reporting.hazard import Hazard

# More often is not worth the requests that each checkpoint costs at the object store.
AUTO_LEAST_SECONDS = 10.0
AUTO_MOST_SECONDS = 300.0


class SaveSchedule:
    """Due after so many steps, or after so many seconds, since the last checkpoint was asked for.

    "auto" is the optimum for what the last one cost (``trainer.protocol.checkpoint_interval``),
    worked out anew as soon as another hazard is told.
    Seconds are counted on one rank (0) and agreed with the others; steps are alike everywhere.
    """

    def __init__(self, config: TrainConfig, step: int, hazard: Hazard | None = None) -> None:
        self._steps = config.checkpoint_interval_steps
        seconds = config.checkpoint_interval_seconds
        self._auto = seconds in (None, "auto")
        self._seconds = seconds if isinstance(seconds, float) else AUTO_LEAST_SECONDS
        self._hazard = hazard or Hazard(config.checkpoint_hazard_per_hour)
        self._cost: tuple[float, float] | None = None
        self._last_step = step
        self._last_at = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time between checkpoints as it stands, where it is counted in seconds."""
        return self._seconds

    def due(self, step: int) -> bool:
        """Whether a checkpoint should be written after ``step`` finished steps."""
        if self._steps is not None:
            return step - self._last_step >= self._steps
        if self._auto and self._hazard.changed():
            self._estimate_times()
        return time.monotonic() - self._last_at >= self._seconds

    def asked(self, step: int) -> None:
        """Notes that the state of ``step`` was taken. One that fails is tried again in its turn."""
        self._last_step, self._last_at = step, time.monotonic()

    def cost(self, stall_seconds: float, inflation_seconds: float, durable_seconds: float) -> None:
        """Notes what a checkpoint took from training, and how long it took to be durable."""
        self._cost = (stall_seconds + inflation_seconds, durable_seconds)
        if self._auto:
            self._estimate_times()

    def _estimate_times(self) -> None:
        """Before the first checkpoint nobody knows what one costs, and the shortest one holds."""
        if self._cost is not None:
            self._seconds = checkpoint_interval_seconds(
                *self._cost,
                self._hazard.mean_seconds(),
                AUTO_LEAST_SECONDS,
                AUTO_MOST_SECONDS,
            )
