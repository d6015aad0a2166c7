"""`lowtide demo` as a stranger runs it: every line earned, and nothing left running."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.deployment.control_plane import LOWTIDE, clean_environment, left_running
from tests.support.servers.finished_commands import run_command

_LIMIT_SECONDS = 480.0


# Four ranks of PyTorch and a deployment: seventy CPU-seconds, a thirteenth of `make test`. There
# are a notice and its exact resume in test_interruptions.py, a gang of PyTorch that drains in
# tests/training/loop/test_training_runs.py, closed books after each module of tests/e2e, and what
# is said of losses in tests/unit/cli/test_demo_losses.py.
@pytest.mark.full
@pytest.mark.parametrize("prove", [(), ("--prove",)])
def test_the_demo_ends_well_and_leaves_nothing_running(prove: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix="lowtide-demo-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        done = run_command(
            [LOWTIDE, "demo", *prove, "--state-dir", str(folder / "state"), "--port", "0"],
            timeout=_LIMIT_SECONDS,
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
        )
        said = done.stdout
        assert done.returncode == 0, said + done.stderr
        assert re.search(r"resumed at step \d+ · 0 steps redone", said), said
        assert "ledger = local cloud's bill to the micro-dollar ✓" in said
        assert "leaked machines 0 ✓" in said
        joined = re.search(r"(\d+):\d\d  ↺ m3 joined", said)
        assert joined is not None, said
        # A second is a minute of the bill: on a slow machine m2 lives beyond its first hour.
        assert "waived" in said or int(joined[1]) >= 1, said
        assert not prove or re.search(
            r"from the resume on: \d+ losses compared, steps \d+ to 1,000: equal bit for bit ✓",
            said,
        ), said
        report = (folder / "demo-report.html").read_text("utf-8")
        assert "the survivor was kept" in report
        assert "✗" not in report
        assert (folder / "state" / "admin.key").stat().st_mode & 0o777 == 0o600
        assert left_running(folder) == {}
