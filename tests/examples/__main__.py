"""Runs one example of docs/examples through a SIGTERM and compares it with an undisturbed run.

``python -m tests.examples NAME PYTHON``: PYTHON has the packages of the example. Exit 0 only if it
drained, went on at the very step, and every loss is equal bit for bit. Not here: the examples that
run on machines of the local cloud in every test run (tests/e2e/test_examples.py).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trainer.agent.machine.script_modules import place_script_modules

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CUT_AFTER_LINES = 45
DRAINED = 75
RUN_SECONDS = 300.0


def run(
    root: Path, name: str, python: str, *, resume: Path | None = None, cut: bool = False
) -> tuple[int, dict[int, float], Path]:
    """One process of the example: (exit status, loss by step, its newest checkpoint)."""
    fence = len(list(root.iterdir())) + 1
    folder = root / str(fence)
    shutil.copytree(EXAMPLES / name, folder / "work")
    place_script_modules(folder / "modules")
    progress = folder / "progress.jsonl"
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "modules"),
        "LOWTIDE_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "LOWTIDE_PROGRESS_FILE": str(progress),
        "LOWTIDE_FENCE": str(fence),
        "CUDA_VISIBLE_DEVICES": "",
    }
    if resume is not None:
        environment["LOWTIDE_RESUME_DIR"] = str(resume)
    process = subprocess.Popen([python, "train.py"], cwd=folder / "work", env=environment)
    deadline = time.monotonic() + RUN_SECONDS
    asked = not cut
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit(f"{name}: still running after {RUN_SECONDS:.0f} s")
        if not asked and len(_lines(progress)) >= CUT_AFTER_LINES:
            process.send_signal(signal.SIGTERM)
            asked = True
        time.sleep(0.02)
    losses = {line["step"]: line["loss"] for line in map(json.loads, _lines(progress))}
    return process.returncode, losses, max((folder / "checkpoints").iterdir())


def _lines(path: Path) -> list[str]:
    """Whole lines only."""
    text = path.read_text("utf-8") if path.exists() else ""
    return text.splitlines()[: text.count("\n")]


def main(name: str, python: str) -> int:
    """Three runs; prints what was compared."""
    with tempfile.TemporaryDirectory() as root:
        code, whole, _ = run(Path(root), name, python)
        assert code == 0, f"{name}: exit {code}"
        code, first, saved = run(Path(root), name, python, cut=True)
        assert code == DRAINED, f"{name}: exit {code} after SIGTERM, not {DRAINED}"
        code, second, _ = run(Path(root), name, python, resume=saved)
        assert code == 0, f"{name}: exit {code} after the resume"
    assert not first.keys() & second.keys(), "a step was done twice"
    assert {**first, **second} == whole, "the losses differ after the resume"
    print(f"{name}: drained after step {max(first)}; {len(whole)} of {len(whole)} losses equal")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
