"""The job of a trial launch, run as a machine runs it: a file alone, under the trainer contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from app.cli.server.launch_plan import SAYS, SCRIPT, write_script
from tests.support.servers.free_port import free_port

SECONDS = 60.0
GOOD_TORCH = """
__version__ = "2.11.0"
class version: cuda = "12.8"
class _Ones:
    def __matmul__(self, other): return self
    def sum(self): return self
    def item(self): return 256.0 ** 3
def ones(*shape, device): return _Ones()
"""
BAD_TORCH = """
__version__ = "2.11.0"
def ones(*shape, device): raise RuntimeError("CUDA driver version is insufficient\\nmore")
"""


class Machine:
    """A folder with the script, and the environment that the agent gives."""

    def __init__(self, folder: Path, rank: int = 0, machines: int = 1, port: int = 0) -> None:
        self.folder = folder
        for name in ("work", "bin", "packages", "checkpoints"):
            (folder / name).mkdir(parents=True)
        write_script(folder / "work")
        self.environment = {
            "PATH": str(folder / "bin"),
            "PYTHONPATH": str(folder / "packages"),
            "LOWTIDE_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "LOWTIDE_PROGRESS_FILE": str(folder / "progress"),
            "LOWTIDE_NODE_RANK": str(rank),
            "LOWTIDE_NUM_NODES": str(machines),
            "LOWTIDE_MASTER_ADDR": "127.0.0.1",
            "LOWTIDE_MASTER_PORT": str(port),
        }

    def with_gpu(self, torch: str) -> None:
        """A driver that answers, and a PyTorch of this text."""
        driver = self.folder / "bin" / "nvidia-smi"
        driver.write_text("#!/bin/sh\necho 'Tesla T4, 570.86.15, 15360 MiB'\n")
        driver.chmod(0o755)
        (self.folder / "packages" / "torch.py").write_text(torch)

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, SCRIPT],
            cwd=self.folder / "work",
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self) -> tuple[int, str]:
        process = self.start()
        said, _ = process.communicate(timeout=SECONDS)
        return process.returncode, said

    def steps(self) -> list[str]:
        return sorted(os.listdir(self.folder / "checkpoints"))


def test_one_step_and_its_final_checkpoint(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m")
    code, said = machine.run()
    assert code == 0, said
    assert all(line.startswith(SAYS) for line in said.splitlines())
    assert "no GPU answers here" in said
    assert machine.steps() == ["step-000000000001"]
    saved = machine.folder / "checkpoints" / "step-000000000001"
    assert json.loads((saved / "manifest.json").read_text())["final"] is True
    told = json.loads((machine.folder / "progress").read_text())
    assert (told["type"], told["step"], told["total_steps"]) == ("step", 1, 1)
    # After an interruption it goes on from what it saved.
    machine.environment["LOWTIDE_RESUME_DIR"] = str(saved)
    assert machine.run()[0] == 0
    assert machine.steps() == ["step-000000000001", "step-000000000002"]


def test_a_gpu_that_computes_is_told_with_its_driver(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m")
    machine.with_gpu(GOOD_TORCH)
    code, said = machine.run()
    assert code == 0, said
    assert "GPU Tesla T4, 570.86.15, 15360 MiB" in said
    assert "PyTorch 2.11.0, CUDA 12.8, computes on the GPU" in said


def test_a_gpu_that_pytorch_cannot_use_fails_with_one_line(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m")
    machine.with_gpu(BAD_TORCH)
    code, said = machine.run()
    assert code == 1
    last = said.splitlines()[-1]
    assert last == f"{SAYS}PyTorch 2.11.0 cannot use the GPU: CUDA driver version is insufficient"
    assert machine.steps() == []


def test_an_image_without_pytorch_is_no_failure(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m")
    machine.with_gpu("raise ImportError('none here')")
    code, said = machine.run()
    assert code == 0, said
    assert "warning: this image has no PyTorch; jobs with `trainer` install it" in said


def test_machines_meet_before_the_step(tmp_path: Path) -> None:
    port = free_port()
    gang = [Machine(tmp_path / str(rank), rank, 3, port) for rank in range(3)]
    running = [machine.start() for machine in reversed(gang)]
    for process in running:
        said, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, said
        assert "3 machines reach each other" in said
    assert [len(machine.steps()) for machine in gang] == [1, 0, 0], "rank 0 saves for all"
