"""What saving 307 MB takes from training: ours, torch.save, and PyTorch's distributed checkpoint.

The state is that of ResNet-50 with momentum and EMA: 801 tensors with their buffers. All are
measured in turn, in this one process, and the medians told. Processor time is what counts on a
machine that others use too: of the blocked part it is that of the calling thread, beside one copy
of as many bytes by the same thread.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from trainer.protocol.checkpoint_interval import (
    DEFAULT_MEAN_SECONDS,
    checkpoint_interval_seconds,
)

GOAL_CPU_MS = 170.0
GOAL_OVERHEAD_PERCENT = 0.3


@dataclass
class Cost:
    """Milliseconds: of the clock and the processor while blocked, of the processor in all."""

    blocked: float
    blocked_cpu: float
    cpu: float
    durable: float


def measure(around: Around) -> list[Figure]:
    """Interleaved rounds; the checkpoint is read back once, to time verification beside it."""
    import torch

    torch.set_num_threads(1)
    trees, size = resnet50_state()
    folder = around.new_folder("checkpoints")
    rounds = around.count(7, 3)
    ours = _ours(folder / "ours", trees)
    ways: dict[str, Callable[[], Cost]] = {
        "ours": ours,
        "torch.save": lambda: _torch_save(folder / "plain.pt", trees),
        "dcp.save": lambda: _distributed(folder / "dcp", trees),
    }
    ours()
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    copies: list[tuple[float, float]] = []
    for _ in range(rounds):
        copies.append(_memcpy_ms(size))
        for name, way in ways.items():
            costs[name].append(way())
    around.say(f"{size / 1e6:.0f} MB, {rounds} rounds")
    return [*_figures(costs, copies, size), *_restore(folder / "ours", around)]


def resnet50_state() -> tuple[dict[str, Any], int]:
    """(trees, bytes): the weights of ResNet-50, and momentum and EMA of the same shapes."""
    from trainer.training.models import build_model

    model = build_model("resnet50", (3, 224, 224), 1000)
    weights = model.state_dict()
    copies = [{name: one.detach().clone() for name, one in weights.items()} for _ in range(2)]
    trees = {"weights": weights, "training_state": {"momentum": copies[0], "ema": copies[1]}}
    size = 3 * sum(one.numel() * one.element_size() for one in weights.values())
    return trees, size


def _ours(folder: Path, trees: dict[str, Any]) -> Callable[[], Cost]:
    from trainer.training.checkpoint import CheckpointEngine, CheckpointFolder

    engine = CheckpointEngine(CheckpointFolder(folder))
    engine.prepare(trees, {})
    engine.finish()
    steps = iter(range(1, 1_000_000))

    def save() -> Cost:
        header = {"step": next(steps), "total_steps": 9, "final": False}
        began, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
        engine.save(header, trees, {})
        blocked, blocked_cpu = time.perf_counter() - began, time.thread_time() - thread
        engine.finish()
        (result,) = engine.take_results()
        if result.error is not None:
            raise OSError(result.error)
        spent, durable = time.process_time() - process, time.perf_counter() - began
        return Cost(blocked * 1e3, blocked_cpu * 1e3, spent * 1e3, durable * 1e3)

    return save


def _torch_save(path: Path, trees: dict[str, Any]) -> Cost:
    import torch

    def save() -> None:
        with path.with_suffix(".tmp").open("wb") as file:
            torch.save(trees, file)
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".tmp").replace(path)

    return _synchronous(save)


def _distributed(folder: Path, trees: dict[str, Any]) -> Cost:
    import warnings

    from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

    shutil.rmtree(folder, ignore_errors=True)

    def save() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save_distributed(trees, checkpoint_id=folder, no_dist=True)

    return _synchronous(save)


def _synchronous(save: Callable[[], None]) -> Cost:
    began, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
    save()
    wall, cpu = (time.perf_counter() - began) * 1e3, (time.process_time() - process) * 1e3
    return Cost(wall, (time.thread_time() - thread) * 1e3, cpu, wall)


def _memcpy_ms(size: int) -> tuple[float, float]:
    """(clock, processor) of one copy between two buffers that are in memory already."""
    import torch

    source, target = (torch.ones(size, dtype=torch.uint8) for _ in range(2))
    began, thread = time.perf_counter(), time.thread_time()
    target.copy_(source)
    return (time.perf_counter() - began) * 1e3, (time.thread_time() - thread) * 1e3


def _figures(
    costs: dict[str, list[Cost]], copies: list[tuple[float, float]], size: int
) -> list[Figure]:
    copy, copy_cpu = (median(one[place] for one in copies) for place in (0, 1))
    ours = costs["ours"]
    blocked_cpu = median(one.blocked_cpu for one in ours)
    detail = {
        "megabytes": round(size / 1e6),
        "memcpy_ms": round(copy, 1),
        "memcpy_cpu_ms": round(copy_cpu, 1),
        "blocked_ms": round(median(one.blocked for one in ours), 1),
        "durable_ms": round(median(one.durable for one in ours), 1),
    }
    ratio, cpu = blocked_cpu / copy_cpu, median(one.cpu for one in ours)
    figures = [
        Figure("checkpoint", "blocked, in copies of the state", ratio, "×", 1.2, True, detail),
        Figure("checkpoint", "CPU of one of 307 MB, in all", cpu, "ms", GOAL_CPU_MS),
    ]
    for name in ("torch.save", "dcp.save"):
        cpu = median(one.cpu for one in costs[name])
        wall = median(one.blocked for one in costs[name])
        figures.append(Figure("checkpoint", f"CPU of {name} + fsync", cpu, "ms"))
        figures.append(Figure("checkpoint", f"blocked by {name}", wall, "ms"))
    figures.append(Figure("checkpoint", "blocked by ours", float(detail["blocked_ms"]), "ms"))
    return [*figures, *_overheads(ours)]


def _overheads(ours: list[Cost]) -> list[Figure]:
    """What checkpoints and losses take at the automatic interval, losses being two hours apart.

    Between two bounds: writing takes nothing from the steps, as beside a GPU; or all its processor
    time, as where steps keep every core busy.
    """
    durable = median(one.durable for one in ours) / 1e3
    stall = median(one.blocked for one in ours) / 1e3
    writing = median(one.cpu - one.blocked_cpu for one in ours) / 1e3
    figures = []
    for name, cost, goal in (
        ("stall alone", stall, GOAL_OVERHEAD_PERCENT),
        ("stall and all of the writing", stall + writing, None),
    ):
        interval, share = _automatic_overhead(cost, durable)
        detail = {"cost_ms": round(cost * 1e3, 1), "interval_seconds": round(interval, 1)}
        told = f"overhead at the automatic interval, {name}"
        figures.append(Figure("checkpoint", told, share * 100, "%", goal, True, detail))
    return figures


def _automatic_overhead(cost_seconds: float, durable_seconds: float) -> tuple[float, float]:
    """(interval, time over the useful time - 1) at Poisson losses, restarts not counted.

    Source: the complete model of Daly 2006 (`checkpoint_interval`), without its restart.
    """
    from trainer.training.saving.save_schedule import AUTO_LEAST_SECONDS, AUTO_MOST_SECONDS

    mean = DEFAULT_MEAN_SECONDS
    interval = checkpoint_interval_seconds(
        cost_seconds, durable_seconds, mean, AUTO_LEAST_SECONDS, AUTO_MOST_SECONDS
    )
    return interval, mean * math.expm1((interval + cost_seconds) / mean) / interval - 1


def _restore(folder: Path, around: Around) -> list[Figure]:
    """The share of verification in a restore that ends with every byte in memory of its own."""
    from trainer.training.checkpoint import CheckpointFolder, CheckpointReader, own_tensors

    newest = CheckpointFolder(folder).complete()[0]
    readings = []
    for _ in range(around.count(5, 2)):
        _drop_from_memory(newest)
        began = time.perf_counter()
        reader = CheckpointReader(newest)
        process = time.process_time()
        reader.verify()
        verified = time.process_time() - process
        own_tensors(reader.read())
        readings.append((verified, time.perf_counter() - began))
    verified, wall = (median(one[place] for one in readings) for place in (0, 1))
    detail = {"verification_cpu_ms": round(verified * 1e3, 1)}
    return [
        Figure("checkpoint", "verify + restore, from disk", wall * 1e3, "ms"),
        Figure("checkpoint", "verification of that", verified / wall * 100, "%", 10, True, detail),
    ]


def _drop_from_memory(folder: Path) -> None:
    """So that a restore reads the disk, as on a new machine."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
