"""On a GPU: how long a periodic checkpoint holds training up, and how much it slows the steps."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from tests.bench.results import Figure
from tests.bench_trainer.around import Around, require_gpu


def measure(around: Around) -> list[Figure]:
    """ResNet-50 with momentum and EMA, and 12 GB of one tensor a block, as of a large model."""
    require_gpu()
    figures = []
    for what, goal, trees in (
        ("ResNet-50 + momentum + EMA", 1.0, _resnet50()),
        ("12 GB", 10.0, _blocks(around.count(12, 2))),
    ):
        stalls, durable = _stalls(around, trees, around.count(20, 5))
        detail = {"durable_s": round(durable, 2)}
        figures.append(
            Figure("gpu-checkpoint", f"stall p50, {what}", median(stalls), "ms", goal, True, detail)
        )
    return figures


def _stalls(around: Around, trees: dict[str, Any], count: int) -> tuple[list[float], float]:
    """Milliseconds until the stream can go on, and seconds until one is durable."""
    import torch

    from trainer.training.checkpoint import CheckpointEngine, CheckpointFolder

    engine = CheckpointEngine(CheckpointFolder(around.new_folder("stalls")))
    engine.prepare(trees, {})
    engine.finish()
    stalls, durable = [], []
    for step in range(1, count + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        engine.save({"step": step, "total_steps": 9, "final": False}, trees, {})
        torch.cuda.current_stream().synchronize()
        stalls.append((time.perf_counter() - began) * 1e3)
        engine.finish()
        (result,) = engine.take_results()
        if result.error is not None:
            raise OSError(result.error)
        durable.append(result.seconds)
    return stalls, median(durable)


def _resnet50() -> dict[str, Any]:
    from tests.bench_trainer.checkpoint.checkpoint_cost import resnet50_state

    trees, _ = resnet50_state()
    return {
        group: {
            name: {key: one.cuda() for key, one in part.items()} if isinstance(part, dict) else part
            for name, part in tree.items()
        }
        if group == "training_state"
        else {key: one.cuda() for key, one in tree.items()}
        for group, tree in trees.items()
    }


def _blocks(gigabytes: int) -> dict[str, Any]:
    import torch

    blocks = {f"block{n}": torch.zeros(250_000_000, device="cuda") for n in range(gigabytes)}
    return {"weights": blocks, "training_state": {}}
