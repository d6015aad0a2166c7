"""A few real training steps on the machine at hand, to see what a step costs here."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch

from trainer.training.config import TrainConfig
from trainer.training.data import DataSet
from trainer.training.data.loading.batches import MicroBatch, zero_batch
from trainer.training.gang.distributed import Gang
from trainer.training.loop.learner import Learner
from trainer.training.training_errors import StepOutOfMemoryError

WARMUP_STEPS = 3


@dataclass(frozen=True)
class StepMeasurement:
    """What was measured. name: of the device. peak_bytes: of the GPU's memory, None on a CPU.
    micro_batch: samples at once, which may be fewer than were asked for.
    """

    device: torch.device
    name: str
    micro_batch: int
    step_seconds: float
    peak_bytes: int | None

    @property
    def samples_per_second(self) -> float:
        """Of this machine alone."""
        return self.micro_batch / self.step_seconds


def calibrate(config: TrainConfig, data: DataSet, micro_batch: int, steps: int) -> StepMeasurement:
    """Trains ``steps`` steps of ``micro_batch`` random samples: the median step after a warm-up.

    Model, precision, optimizer and compilation are those of the run; reading data is left out.
    Where memory is short the micro-batch is halved. Raises ``StepOutOfMemoryError`` when not even
    one sample fits.
    """
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    while True:
        try:
            seconds = _step_seconds(config, data, device, micro_batch, steps)
        except StepOutOfMemoryError:
            if micro_batch == 1:
                raise
            micro_batch = -(-micro_batch // 2)
            continue
        return StepMeasurement(
            device=device,
            name=torch.cuda.get_device_name(device) if cuda else "this CPU",
            micro_batch=micro_batch,
            step_seconds=seconds,
            peak_bytes=torch.cuda.max_memory_allocated(device) if cuda else None,
        )


def _step_seconds(
    config: TrainConfig, data: DataSet, device: torch.device, micro_batch: int, steps: int
) -> float:
    config = replace(config, batch_size=micro_batch, accumulation=1, on_oom="fail")
    learner = Learner(config, Gang(0, 1, device), data)
    learner.prepare()
    batch = _random_batch(zero_batch(data, micro_batch, device))
    taken = []
    for _ in range(WARMUP_STEPS + steps):
        started = time.perf_counter()
        loss = learner.step([batch], config.peak_learning_rate)
        assert loss is not None
        loss.item()  # waits for the GPU
        taken.append(time.perf_counter() - started)
    return sorted(taken[WARMUP_STEPS:])[steps // 2]


def _random_batch(batch: MicroBatch) -> MicroBatch:
    # A GPU multiplies zeros faster than numbers: it draws less power.
    if batch.inputs.is_floating_point():
        return replace(batch, inputs=torch.randn_like(batch.inputs))
    return batch
