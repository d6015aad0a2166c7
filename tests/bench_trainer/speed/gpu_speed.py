"""Images per second on a GPU, and beside a hand-written loop that does the same.

bf16, channels last, one synthetic batch that stays on the GPU. Both take turns, each in a process
of its own; CUDA is waited for at the first and the last counted step only.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from tests.bench.results import Figure
from tests.bench_trainer.around import Around, require_gpu
from tests.bench_trainer.speed.timed_run import samples_per_second

WARM_UP, STEPS, PIXELS = 50, 200, 224
GOAL_RATIO = 0.99
# (model, batch, images per second eager, compiled): the goals on one H200.
MODELS = (("resnet50", 256, 4_500, 5_500), ("vit_base", 256, None, 2_700))
LIMIT_SECONDS = 900

HAND_WRITTEN = """
import sys, time, torch
from torch.nn import functional
from trainer.training.models import build_model
name, batch, compiled, warm_up, steps = sys.argv[1], *map(int, sys.argv[2:])
torch.manual_seed(0)
model = build_model(name, (3, 224, 224), 1000).cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
call = torch.compile(model, dynamic=False) if compiled else model
images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
labels = torch.randint(1000, (batch,), device="cuda")
for step in range(warm_up + steps):
    if step == warm_up:
        torch.cuda.synchronize()
        began = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        loss = functional.cross_entropy(call(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
print(batch * steps / (time.perf_counter() - began))
"""


def measure(around: Around) -> list[Figure]:
    """Throughput and ratio of each model, eager and compiled."""
    require_gpu()
    figures = []
    for name, batch, eager_goal, compiled_goal in MODELS:
        for compiled, goal in ((False, eager_goal), (True, compiled_goal)):
            figures += _compared(around, name, batch, compiled, goal)
    return figures


def _compared(
    around: Around, name: str, batch: int, compiled: bool, goal: float | None
) -> list[Figure]:
    hand_written, ours = [], []
    for _ in range(around.count(3, 1)):
        hand_written.append(_hand_written(name, batch, compiled))
        config = {
            "model": name,
            "data": "synthetic",
            "synthetic_fixed": True,
            "synthetic_shape": [3, PIXELS, PIXELS],
            "synthetic_classes": 1000,
            "optimizer": "sgd",
            "precision": "bf16",
            "compile": "on" if compiled else "off",
            "batch_size": batch,
            "steps": WARM_UP + STEPS,
            "eval_every_epochs": 0,
            "checkpoint_interval_seconds": 3600,
        }
        folder = around.new_folder("gpu")
        ours.append(samples_per_second(folder, config, warm_up=WARM_UP))
        around.say(f"{name}: {json.dumps([hand_written[-1], ours[-1]])} images/s")
    kind = f"{name} {'compiled' if compiled else 'eager'}"
    speed = statistics.median(ours)
    ratio = statistics.median(
        mine / theirs for mine, theirs in zip(ours, hand_written, strict=True)
    )
    detail = {"hand_written": hand_written, "ours": ours, "batch": batch}
    return [
        Figure("gpu", f"{kind}", speed, "images/s", goal, at_most=False, detail=detail),
        Figure("gpu", f"{kind} over a hand-written loop", ratio, "x", GOAL_RATIO, at_most=False),
    ]


def _hand_written(name: str, batch: int, compiled: bool) -> float:
    numbers = [str(batch), str(int(compiled)), str(WARM_UP), str(STEPS)]
    done = subprocess.run(
        [sys.executable, "-c", HAND_WRITTEN, name, *numbers],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    return float(done.stdout.split()[-1])
