"""How much of the GPU's peak a run uses, as its own progress lines say: MFU, and what NVML reads.

Not here: images a second against a bare loop.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

from tests.bench.results import Figure
from tests.bench_trainer.around import Around, require_gpu

LIMIT_SECONDS = 900
RUNS: dict[str, dict[str, Any]] = {
    "resnet50": {"optimizer": "sgd"},
    "vit_base": {"optimizer": "adamw"},
}


def measure(around: Around) -> list[Figure]:
    """Medians over the second half of a run in bf16 on fixed synthetic images."""
    require_gpu()
    figures = []
    for model, options in RUNS.items():
        lines = _run(around, {"model": model, **options})
        steps = [line for line in lines if line["type"] == "step"]
        steps = steps[len(steps) // 2 :]
        readings = [line for line in lines if line["type"] == "gpu"]
        detail = {"last_reading": readings[-1] if readings else None}
        shares = [100 * line["mfu"] for line in steps if "mfu" in line]
        speeds = [line["samples_per_second"] for line in steps]
        if shares:
            figures.append(Figure("gpu-use", f"MFU, {model}", statistics.median(shares), "%"))
        speed = statistics.median(speeds)
        figures.append(Figure("gpu-use", f"images a second, {model}", speed, "/s", detail=detail))
    return figures


def _run(around: Around, options: dict[str, Any]) -> list[dict[str, Any]]:
    folder = around.new_folder("gpu-use")
    config = {
        "data": "synthetic",
        "synthetic_shape": [3, 224, 224],
        "synthetic_classes": 1000,
        "synthetic_fixed": True,
        "batch_size": 256,
        "precision": "bf16",
        "steps": around.count(400, 60),
        "eval_every_epochs": 0,
        "gpu_readings_seconds": 1,
        **options,
    }
    (folder / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "trainer.training.train"]
    command += ["--config", str(folder / "config.json"), "--folder", str(folder)]
    subprocess.run(command, env=os.environ, capture_output=True, timeout=LIMIT_SECONDS, check=True)
    return [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
