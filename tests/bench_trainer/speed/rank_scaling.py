"""How much faster two ranks are than one, each with the work that one had: weak scaling.

On a CPU each rank has one thread and gloo carries the gradients, so the figure says what the loop
and DistributedDataParallel cost on this machine, not what two GPUs would do.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

import torch

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from tests.bench_trainer.speed.timed_run import samples_per_second

SAMPLES_A_RANK = 16


def measure(around: Around) -> list[Figure]:
    """The ratio of the medians of interleaved runs."""
    gpus = torch.cuda.device_count()
    speeds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(around.count(3, 1)):
        for ranks, found in speeds.items():
            config = _config(ranks, around.count(40, 12), on_gpu=gpus > 1)
            found.append(samples_per_second(around.new_folder("ranks"), config, ranks=ranks))
            around.say(f"{ranks} ranks: {found[-1]:.1f} samples/s")
    ratio = statistics.median(speeds[2]) / statistics.median(speeds[1])
    what = "2 GPUs over 1" if gpus > 1 else "2 ranks over 1, on CPU cores, resnet18 32 x 32"
    detail = {"one": speeds[1], "two": speeds[2], "cores": os.cpu_count(), "gpus": gpus}
    return [Figure("ranks", what, ratio, "x", detail=detail)]


def _config(ranks: int, steps: int, *, on_gpu: bool) -> dict[str, Any]:
    return {
        "model": "resnet50" if on_gpu else "resnet18",
        "data": "synthetic",
        "synthetic_fixed": True,
        "synthetic_shape": [3, 224, 224] if on_gpu else [3, 32, 32],
        "steps": steps,
        "batch_size": ranks * (256 if on_gpu else SAMPLES_A_RANK),
        "precision": "bf16" if on_gpu else "fp32",
        "compile": "off",
        "eval_every_epochs": 0,
        "checkpoint_interval_seconds": 3600,
    }
