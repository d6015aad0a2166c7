"""Starts real gangs of training ranks under torchrun and reads what they leave behind.

One ``Machine`` is one torchrun with folders of its own, as on a rented machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.servers.free_port import free_port

REPOSITORY = Path(__file__).parents[3]
LIMIT_SECONDS = 120.0


class ReachedStep:
    """The last step of a progress file that grows; each look reads only what is new.

    It is asked two hundred times a second, while the ranks need the processor.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._step = 0

    def look(self) -> int:
        """The last finished step that was told; 0 if none was."""
        if not self._path.exists():
            return 0
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        lines = (json.loads(line) for line in whole.splitlines())
        steps = (line["step"] for line in lines if line["type"] == "step")
        self._step = max(steps, default=self._step)
        return self._step


@dataclass
class Machine:
    """One torchrun and its folder."""

    folder: Path
    process: subprocess.Popen[bytes]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """The progress lines of one type, complete ones only."""
        path = self.folder / "progress.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]
        return [line for line in lines if line["type"] == kind]

    def losses(self) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in self.lines("step")}

    def ending(self, rank: int) -> dict[str, Any]:
        marker: dict[str, Any] = json.loads((self.folder / f"ended-rank{rank}.json").read_text())
        return marker

    def rank_pid(self, rank: int) -> int:
        path = self.folder / f"started-rank{rank}.json"
        wait_until(path.exists)
        return int(json.loads(path.read_text())["pid"])

    def checkpoint(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"step-{step:012d}"

    def saved_steps(self) -> list[int]:
        """The steps of its checkpoints, ascending."""
        folders = (self.folder / "checkpoints").glob("step-*")
        return sorted(int(each.name.removeprefix("step-")) for each in folders)

    def saved_from(self, step: int) -> int:
        """The first saved step from this one on.

        One checkpoint is written at a time: where the disk is slow, a due one is taken later.
        """
        return next(each for each in self.saved_steps() if each >= step)

    def log(self) -> str:
        return (self.folder / "output.log").read_text()

    def wait(self) -> int:
        return self.process.wait(LIMIT_SECONDS)

    def wait_for_step(self, step: int) -> None:
        reached = ReachedStep(self.folder / "progress.jsonl")
        wait_until(lambda: self.process.poll() is not None or reached.look() >= step)
        assert reached.look() >= step, self.log()


def ask_for_stacks_in_a_stall(waiting: Machine, waiting_rank: int, held_pid: int) -> None:
    """Stops one rank until the other, which waits for it, has written its stacks.

    Stacks of threads that run cannot be read safely (``drain.dump_stacks_on_signal``), so the
    signal waits until the rank has used no processor time for a while.
    """
    rank = psutil.Process(waiting.rank_pid(waiting_rank))
    os.kill(held_pid, signal.SIGSTOP)
    try:
        wait_until(lambda: _stands_still(rank))
        rank.send_signal(signal.SIGUSR1)
        wait_until(lambda: "Current thread" in waiting.log() or not rank.is_running())
    finally:
        os.kill(held_pid, signal.SIGCONT)


def _stands_still(process: psutil.Process, seconds: float = 0.3) -> bool:
    before = process.cpu_times()
    time.sleep(seconds)
    after = process.cpu_times()
    return (before.user, before.system) == (after.user, after.system)


class GangStarter:
    """Starts gangs under one folder; ``stop_all`` leaves no process behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._machines: list[Machine] = []

    def start(
        self,
        name: str,
        config: dict[str, Any],
        *,
        machines: int = 1,
        ranks_each: int = 2,
        resume: Path | None = None,
        fence: int = 1,
        others: dict[str, Any] | None = None,
        together: bool = False,
    ) -> list[Machine]:
        """``others``: what the machines but the first have in their configuration besides.

        ``together``: as agents start it, every machine saves its share.
        """
        port = free_port()
        gang = []
        for node in range(machines):
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-{node}-", dir=self.folder))
            (folder / "config.json").write_text(
                json.dumps({**config, **(others or {})} if node > 0 else config)
            )
            command = [
                *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={machines}"),
                *(f"--node-rank={node}", f"--nproc-per-node={ranks_each}", "--max-restarts=0"),
                *("--master-addr=127.0.0.1", f"--master-port={port}", "--rdzv-id=attempt"),
                *("-m", "trainer.training.train", "--config", str(folder / "config.json")),
            ]
            variables = rank_variables(folder, resume, fence)
            if together:
                variables["LOWTIDE_CHECKPOINT_SHARES"] = "1"
            with (folder / "output.log").open("wb") as log:
                process = subprocess.Popen(
                    command, cwd=REPOSITORY, env=variables, stdout=log, stderr=subprocess.STDOUT
                )
            gang.append(Machine(folder, process))
        self._machines += gang
        return gang

    def stop_all(self) -> None:
        for machine in self._machines:
            if machine.process.poll() is None:
                machine.process.send_signal(signal.SIGKILL)
            machine.process.wait(LIMIT_SECONDS)


def rank_variables(folder: Path, resume: Path | None, fence: int) -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "LOWTIDE_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "LOWTIDE_RESUME_DIR": str(resume) if resume else "",
        "LOWTIDE_PROGRESS_FILE": str(folder / "progress.jsonl"),
        "LOWTIDE_FENCE": str(fence),
    }


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)
