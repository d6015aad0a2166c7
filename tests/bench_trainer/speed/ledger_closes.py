"""Whether the goodput ledger accounts for all of a run's time, held against a clock outside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from tests.bench.results import Figure
from tests.bench_trainer.around import Around

GOAL_PERCENT = 1.0
LIMIT_SECONDS = 600


def measure(around: Around) -> list[Figure]:
    """The part of a whole process's life that is in no bucket, the largest of some runs."""
    worst, details = 0.0, []
    for number in range(around.count(3, 1)):
        folder = around.new_folder("ledger")
        config = {"model": "cnn", "data": "digits", "epochs": 40, "checkpoint_interval_steps": 50}
        (folder / "config.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", "trainer.training.train"]
        command += ["--config", str(folder / "config.json"), "--folder", str(folder)]
        started = time.monotonic()
        subprocess.run(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=True,
        )
        lived = time.monotonic() - started
        last = json.loads((folder / "progress.jsonl").read_text().splitlines()[-1])
        missing = 100 * abs(lived - sum(last["buckets"].values())) / lived
        around.say(f"run {number + 1}: {missing:.2f} % of {lived:.1f} s are in no bucket")
        worst = max(worst, missing)
        details.append({"lived_seconds": lived, "buckets": last["buckets"]})
    detail = {"runs": details}
    return [Figure("ledger", "time in no bucket", worst, "%", GOAL_PERCENT, detail=detail)]
