"""What a start costs: importing and building a run, beside a bare script with the same model.

Processor time of whole processes up to the point where the first step could begin, interleaved.
Not here: restoring a checkpoint, or waiting for other ranks.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from tests.bench.results import Figure
from tests.bench_trainer.around import Around

GOAL_RATIO = 1.15
LIMIT_SECONDS = 300

BARE = """
import time, torch
from trainer.training.models import build_model
torch.manual_seed(0)
model = build_model("resnet50", (3, 224, 224), 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
print(time.process_time())
"""
OURS = """
import os, sys, time
from pathlib import Path
from trainer.training.config import parse_config
from trainer.training.reporting.place import Place
from trainer.training.reporting.progress import Progress
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.rank_run import RankTrainer
config = parse_config({"model": "resnet50", "data": "synthetic", "steps": 1, "batch_size": 2,
                       "synthetic_shape": [3, 224, 224], "synthetic_classes": 1000,
                       "synthetic_samples": 100, "optimizer": "sgd"})
folder = Path(sys.argv[1])
environment = read_rank_environment({}, folder)
run = RankTrainer(config, environment, Progress(folder / "progress.jsonl"), Place())
run.prepare()
print(time.process_time())
run.close()
os._exit(0)
"""


def measure(around: Around) -> list[Figure]:
    """The ratio of the medians of processor time."""
    rounds = around.count(7, 2)
    bare, ours = [], []
    for number in range(rounds):
        bare.append(_seconds(BARE, around.new_folder("bare")))
        ours.append(_seconds(OURS, around.new_folder("ours")))
        around.say(f"start {number + 1} of {rounds}: {bare[-1]:.2f} and {ours[-1]:.2f} CPU-s")
    ratio = statistics.median(ours) / statistics.median(bare)
    detail = {"bare_cpu_seconds": sorted(bare), "ours_cpu_seconds": sorted(ours)}
    return [Figure("start-up", "import and build over bare", ratio, "x", GOAL_RATIO, detail=detail)]


def _seconds(script: str, folder: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    return float(done.stdout.split()[-1])
