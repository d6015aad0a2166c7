"""What the torchrun that is installed really prints, through the filter of the agent's logs.

Not here: the filter's own rules (`tests/unit/agent/test_launcher_report.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.agent.attempt.launcher_report import LauncherReports

SCRIPT = """
import os, pathlib, signal, sys, time
how = sys.argv[1]
rank = os.environ["RANK"]
print(f"rank {rank} trains", flush=True)
if how == "leaves":
    sys.exit(75)
if how == "fails" and rank == "1":
    raise ValueError("boom")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
pathlib.Path(f"up-{rank}").touch()
time.sleep(300)
"""


def output_of(folder: Path, how: str, *, told_to_stop: bool = False) -> tuple[str, str]:
    """(what two ranks and their torchrun print, what of it is shown)."""
    (folder / "script.py").write_text(SCRIPT)
    launcher = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node=2", "script.py", how),
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        while told_to_stop and not all((folder / f"up-{rank}").exists() for rank in range(2)):
            assert launcher.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        if told_to_stop:
            launcher.send_signal(signal.SIGTERM)
        printed, _ = launcher.communicate(timeout=300)
    finally:
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGKILL)
    reports = LauncherReports(lambda: told_to_stop)
    shown = reports.feed(printed) + reports.end()
    return printed.decode(), shown.decode()


@pytest.mark.full
@pytest.mark.parametrize(("how", "told_to_stop"), [("leaves", False), ("waits", True)])
def test_ranks_that_stop_as_they_were_asked_leave_no_stack(
    tmp_path: Path, how: str, told_to_stop: bool
):
    printed, shown = output_of(tmp_path, how, told_to_stop=told_to_stop)
    assert "Traceback" in printed, "torchrun has learnt of other ends: the filter may go"
    assert sorted(line for line in shown.splitlines() if line) == ["rank 0 trains", "rank 1 trains"]


@pytest.mark.full
def test_a_rank_that_fails_is_shown_with_torchruns_report(tmp_path: Path):
    printed, shown = output_of(tmp_path, "fails")
    assert "ValueError: boom" in shown
    assert shown == printed
