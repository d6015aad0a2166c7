"""What the loop costs beside a hand-written one, in processor time per step.

Both train the same small network on the same data with the same optimizer, in processes of their
own that take turns, so that what else the machine does falls on both. Lives here: the CPU's figure.
On a GPU the ratio of throughputs counts: ``gpu_speed.py``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from tests.bench.results import Figure
from tests.bench_trainer.around import Around

GOAL_MICROSECONDS = 60.0
LIMIT_SECONDS = 300
STEPS, WARM_UP = 3_000, 300

HAND_WRITTEN = """
import math, statistics, sys, time, torch
from torch.nn import functional
from trainer.training.data import load_data
from trainer.training.models import build_model
steps, warm_up = int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(0)
data = load_data("digits", 0)
pairs = [data.train.read(index) for index in range(len(data.train))]
images = torch.stack([torch.from_numpy(image) for image, _ in pairs])
labels = torch.tensor([label for _, label in pairs])
model = build_model("mlp", data.shape, data.classes)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002, weight_decay=0.01, fused=True)
order, place, losses = torch.randperm(len(labels)), 0, []
times = []
for step in range(steps):
    if step >= warm_up and step % 100 == 0:
        times.append(time.process_time())
    if place + 64 > len(labels):
        order, place = torch.randperm(len(labels)), 0
    batch = order[place : place + 64]
    place += 64
    for group in optimizer.param_groups:
        group["lr"] = 0.002 * min(1, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / steps))
    loss = functional.cross_entropy(model(images[batch]), labels[batch])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(statistics.median(b - a for a, b in zip(times, times[1:])) / 100 * 1e6)
"""
OURS = """
import os, statistics, sys, time
from pathlib import Path
from trainer.training.config import parse_config
from trainer.training.drain import StopRequest
from trainer.training.reporting.place import Place
from trainer.training.reporting.progress import Progress
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.rank_run import RankTrainer
from trainer.training.rank_loop import train
steps, warm_up = int(sys.argv[2]), int(sys.argv[3])
class Timed(Progress):
    def write(self, kind, /, **values):
        super().write(kind, **values)
        if kind == "step" and values["step"] >= warm_up and values["step"] % 100 == 0:
            times.append(time.process_time())
times = []
config = parse_config({"model": "mlp", "data": "digits", "steps": steps, "eval_every_epochs": 0,
                       "checkpoint_interval_seconds": 3600})
environment = read_rank_environment({}, Path(sys.argv[1]), fresh=True)
progress = Timed(environment.progress_file)
progress.prints = False
train(RankTrainer(config, environment, progress, Place()), StopRequest())
print(statistics.median(b - a for a, b in zip(times, times[1:])) / 100 * 1e6)
sys.stdout.flush()
os._exit(0)
"""


def measure(around: Around) -> list[Figure]:
    """The median difference of interleaved rounds, in CPU-µs per step.

    Of each process the median of every hundred steps: what a machine does besides comes and goes.
    """
    steps = around.count(STEPS, STEPS // 3)
    bare, ours = [], []
    for number in range(around.count(5, 3)):
        bare.append(_microseconds(HAND_WRITTEN, around.new_folder("bare"), steps))
        ours.append(_microseconds(OURS, around.new_folder("ours"), steps))
        around.say(f"round {number + 1}: {bare[-1]:.0f} and {ours[-1]:.0f} CPU-µs per step")
    difference = statistics.median(
        mine - hand_written for mine, hand_written in zip(ours, bare, strict=True)
    )
    detail = {"hand_written": bare, "ours": ours, "steps": steps}
    return [
        Figure(
            "loop", "CPU over a hand-written loop", difference, "µs/step", GOAL_MICROSECONDS,
            detail=detail,
        )
    ]  # fmt: skip


def _microseconds(script: str, folder: Path, steps: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(steps), str(WARM_UP)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    return float(done.stdout.split()[-1])
