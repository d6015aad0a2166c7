"""What is known of each step once its loss is: the lines of progress, and whether it is a number.

On a CPU a step's loss is read at once. On a GPU it is read when the next step's work is queued, so
that the processor never waits for the step it has just begun; ``settle`` reads the one that is
still out, before anything is saved, scored or ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.training.config import TrainConfig
from trainer.training.data import SampleOrder
from trainer.training.reporting.place import Place
from trainer.training.reporting.progress import ProgressLog
from trainer.training.training_errors import LossNotFiniteError


@dataclass
class _Step:
    """A finished step: ``number`` counts from 1, ``started`` is of the clock ``perf_counter``.
    ``ready`` is None where ``loss`` can be read.
    """

    number: int
    loss: Tensor
    learning_rate: float
    started: float
    ready: torch.cuda.Event | None = None

    def read(self) -> float:
        if self.ready is not None:
            self.ready.synchronize()
        return float(self.loss.item())


class StepNotes:
    """Of one rank, used alike on all: ``take`` after each step, then ``write`` with what the ranks
    summed. ``further`` gives more numbers for the line of a step that took so many seconds.
    """

    def __init__(
        self,
        config: TrainConfig,
        order: SampleOrder,
        total_steps: int,
        place: Place,
        progress: ProgressLog,
        further: Callable[[float], dict[str, Any]],
    ) -> None:
        self._config = config
        self._order = order
        self._total_steps = total_steps
        self._place = place
        self._progress = progress
        self._further = further
        self._newest: _Step | None = None
        self._due: _Step | None = None
        self._last_end = 0.0
        delay = config.step_delay_seconds
        self._delay = {"step_delay_seconds": delay} if delay else {}

    def take(self, loss: Tensor, learning_rate: float, started: float) -> float:
        """Notes the step that ``place`` has just counted, begun at ``started``.

        Returns this rank's summed loss of the step whose turn it is to be written, 0 if there is
        none yet.
        """
        step = _Step(self._place.step, loss, learning_rate, started)
        if loss.device.type == "cuda":
            step.loss = torch.empty((), dtype=loss.dtype, pin_memory=True)
            step.loss.copy_(loss, non_blocking=True)
            step.ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            step.ready.record()
            self._due, self._newest = self._newest, step
        else:
            self._due = step
        return self._due.read() if self._due is not None else 0.0

    def write(self, loss_sum: float, saving: bool = False) -> None:
        """Writes the step that ``take`` gave the loss of, and the epoch if it ended one.

        ``saving``: a checkpoint was on its way to the disk meanwhile. Raises
        ``LossNotFiniteError``: no later step mends a loss that is not a number.
        """
        step, self._due = self._due, None
        if step is not None:
            self._progress.ledger.step_took(self._write(step, loss_sum), saving)

    def settle(self, gang_sum: Callable[[float], list[float]]) -> None:
        """A collective: reads, sums and writes the step that is still out, if one is."""
        step, self._newest = self._newest, None
        if step is not None:
            self._write(step, gang_sum(step.read())[0])

    def _write(self, step: _Step, loss_sum: float) -> float:
        """Returns the step's seconds: to now, but not before the last one's end."""
        now = time.perf_counter()
        seconds = now - max(step.started, self._last_end)
        self._last_end = now
        config, place = self._config, self._place
        loss = loss_sum / config.batch_size
        if not math.isfinite(loss):
            raise LossNotFiniteError(
                f"the loss is {loss} at step {step.number:,}; lower learning_rate or use another"
                " precision"
            )
        place.epoch_loss_sum += loss_sum
        place.epoch_samples += config.batch_size
        self._progress.write(
            "step",
            step=step.number,
            total_steps=self._total_steps,
            loss=loss,
            samples=step.number * config.batch_size,
            phase="train",
            seconds=seconds,
            learning_rate=step.learning_rate,
            samples_per_second=config.batch_size / seconds,
            **self._delay,
            **self._further(seconds),
        )
        epochs = self._order.finished_epochs(step.number)
        if epochs > self._order.finished_epochs(step.number - 1):
            mean = place.epoch_loss_sum / place.epoch_samples
            self._progress.write("epoch", step=step.number, epoch=epochs, mean_loss=mean)
            place.epoch_loss_sum, place.epoch_samples = 0.0, 0
        return seconds
