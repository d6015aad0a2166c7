"""A run started by a person: no variables, no launcher, and what the terminal shows."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.gang.torchrun_gang import LIMIT_SECONDS, REPOSITORY, wait_until
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.reporting.step_lines import ProgressScreen

CONFIG = {
    "model": "mlp",
    "data": "digits",
    "steps": 300,
    "eval_every_epochs": 0,
    "step_delay_seconds": 0.01,
}


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    variables = {name: value for name, value in os.environ.items() if "LOWTIDE_" not in name}
    return subprocess.Popen(
        [sys.executable, "-m", "trainer.training.train", "--config", "mine.json", *arguments],
        cwd=folder,
        env={**variables, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )


def steps(folder: Path) -> list[int]:
    path = folder / "runs" / "mine" / "progress.jsonl"
    lines = path.read_text().splitlines(True) if path.exists() else []
    documents = [json.loads(line) for line in lines if line.endswith("\n")]
    return [each["step"] for each in documents if each["type"] == "step"]


@pytest.mark.full
def test_a_run_by_command_line_alone_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(CONFIG))
    first = start(tmp_path)
    wait_until(lambda: len(steps(tmp_path)) >= 20)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=LIMIT_SECONDS)
    assert first.returncode == 75
    last = steps(tmp_path)[-1]
    assert f"end outcome=drained step={last}" in said

    second = start(tmp_path)
    said, _ = second.communicate(timeout=LIMIT_SECONDS)
    assert second.returncode == 0
    assert "step 300/300  loss " in said
    assert steps(tmp_path) == list(range(1, 301))
    assert (tmp_path / "runs" / "mine" / "checkpoints" / "step-000000000300").is_dir()


@pytest.mark.parametrize(
    ("variables", "fresh", "resume"),
    [
        ({}, False, "runs/x/checkpoints"),
        ({}, True, None),
        ({"LOWTIDE_RESUME_DIR": ""}, False, None),
        ({"LOWTIDE_RESUME_DIR": "/there"}, False, "/there"),
        ({"LOWTIDE_CHECKPOINT_DIR": "/c"}, False, None),
    ],
)
def test_only_a_run_in_its_own_folder_resumes_by_itself(
    variables: dict[str, str], fresh: bool, resume: str | None
) -> None:
    found = read_rank_environment(variables, Path("runs/x"), fresh=fresh)
    assert found.resume_dir == (Path(resume) if resume else None)


STEP = {"total_steps": 40, "loss": 0.69314718, "samples_per_second": 2048.4, "seconds": 13.0}


def test_a_terminal_shows_one_line_that_moves_and_makes_room_for_others() -> None:
    out = io.StringIO()
    terminal = ProgressScreen(out, live=True)
    terminal.tell("step", {**STEP, "step": 1})  # too soon after the start
    assert out.getvalue() == ""
    terminal.tell("step", {**STEP, "step": 40})
    bar = "█" * 24
    assert out.getvalue() == (f"\r{bar} step 40/40  loss 0.6931  2,048 samples/s  0m 0s left\x1b[K")
    terminal.tell("eval", {})
    assert out.getvalue().endswith("\r\x1b[K")


def test_a_log_gets_whole_lines() -> None:
    out = io.StringIO()
    terminal = ProgressScreen(out, live=False)
    terminal.tell("step", {**STEP, "step": 40})
    terminal.tell("eval", {})
    assert out.getvalue() == "step 40/40  loss 0.6931  2,048 samples/s  0m 0s left\n"
