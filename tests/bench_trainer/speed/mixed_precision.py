"""What bf16 gives over fp32: speed, and memory that is not needed.

On a GPU: ResNet-152 at 224 pixels, wall time of steps and the peak that the allocator saw. On a
CPU: ResNet-18 at 32 pixels and the bytes of activations, counted instead of measured; whether bf16
is faster there depends on the processor's instructions and says nothing of a GPU.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch.nn import functional

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from trainer.training.kernels.flops import count_model
from trainer.training.kernels.number_formats import autocast, autocast_type
from trainer.training.models import build_model

Passes = dict[str, list[float]]


def measure(around: Around) -> list[Figure]:
    """Speed-up and the part of the memory that is saved."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    name, pixels, batch = ("resnet152", 224, 128) if on_gpu else ("resnet18", 32, 16)
    where = f"{name} {pixels} x {pixels}, {'GPU' if on_gpu else 'CPU'}"
    seconds: Passes = {"fp32": [], "bf16": []}
    peaks: dict[str, float] = {}
    for _ in range(around.count(5, 2)):
        for precision, found in seconds.items():
            found.append(_seconds(name, pixels, batch, precision, device, around.count(20, 4)))
            peaks[precision] = (
                torch.cuda.max_memory_allocated() if on_gpu else _counted(name, pixels, precision)
            )
    speed_up = statistics.median(seconds["fp32"]) / statistics.median(seconds["bf16"])
    saved = 100 * (1 - peaks["bf16"] / peaks["fp32"])
    detail = {
        "seconds": seconds,
        "bytes": peaks,
        "batch": batch,
        "threads": torch.get_num_threads(),
    }
    kind = "peak memory" if on_gpu else "activation memory (counted)"
    return [
        Figure("precision", f"bf16 speed over fp32, {where}", speed_up, "x", detail=detail),
        Figure("precision", f"{kind} saved by bf16, {where}", saved, "%"),
    ]


def _seconds(
    name: str, pixels: int, batch: int, precision: str, device: torch.device, steps: int
) -> float:
    """Median seconds of a step after two to warm up."""
    torch.manual_seed(0)
    model = build_model(name, (3, pixels, pixels), 1000).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    images = torch.randn(batch, 3, pixels, pixels, device=device)
    labels = torch.zeros(batch, dtype=torch.long, device=device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    taken = []
    for _ in range(steps + 2):
        began = time.perf_counter()
        with autocast(precision, device):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch has no types for it
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[2:])


def _counted(name: str, pixels: int, precision: str) -> float:
    """Bytes of activations of one sample."""

    def loss_of(scores: Any) -> torch.Tensor:
        loss: torch.Tensor = scores.float().sum()
        return loss

    model = build_model(name, (3, pixels, pixels), 1000)
    counted = count_model(
        model, torch.zeros(2, 3, pixels, pixels), loss_of, autocast_type(precision)
    )
    assert counted is not None
    assert counted.activation_bytes is not None
    return counted.activation_bytes
