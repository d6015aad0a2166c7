"""One run of the bundled trainer in a process of its own, and how fast its steps were.

Lives here: starting it by command line, alone or under torchrun, and reading its progress file.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 900


def samples_per_second(
    folder: Path, config: dict[str, Any], *, ranks: int = 1, warm_up: int = 5
) -> float:
    """The median over the steps after ``warm_up``; of the global batch."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    arguments = ["-m", "trainer.training.train", "--config", str(path), "--folder", str(folder)]
    variables = {name: value for name, value in os.environ.items() if "LOWTIDE_" not in name}
    # One thread a rank: on a CPU, ranks stand for devices of equal strength.
    subprocess.run(
        [sys.executable, *(launcher if ranks > 1 else []), *arguments],
        env={**variables, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["type"] == "step" and line["step"] > warm_up]
    return float(statistics.median(line["samples_per_second"] for line in steps))
