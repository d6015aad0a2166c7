"""One run in one folder, interrupted and resumed as often as one likes, as on machines that vanish.

Each ``Attempt`` is a process of its own (several ranks: torchrun with its ranks) that goes on from
the newest checkpoint of the folder. What its lines of progress say is kept apart from the others'.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.servers.free_port import free_port
from tests.training.gang.torchrun_gang import LIMIT_SECONDS, REPOSITORY, ReachedStep, wait_until

Lines = list[dict[str, Any]]


class Attempt:
    """One start of the trainer; its lines begin at ``offset`` of the progress file."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], offset: int) -> None:
        self.folder = folder
        self.process = process
        self._offset = offset
        self._end: int | None = None

    def lines(self, kind: str) -> Lines:
        """This attempt's progress lines of one type, complete ones only."""
        path = self.folder / "progress.jsonl"
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._offset)
            text = file.read() if self._end is None else file.read(self._end - self._offset)
        whole = (json.loads(line) for line in text.splitlines(True) if line.endswith(b"\n"))
        return [line for line in whole if line["type"] == kind]

    def losses(self) -> dict[int, float]:
        """Loss by step."""
        return {line["step"]: line["loss"] for line in self.lines("step")}

    def last_step(self) -> int:
        """The last finished step that was told; 0 if none was."""
        return max(self.losses(), default=0)

    def wait_for_step(self, step: int) -> bool:
        """Whether it came to the step; False when it ended before."""
        reached = ReachedStep(self.folder / "progress.jsonl", self._offset)
        wait_until(lambda: self.process.poll() is not None or reached.look() >= step)
        return reached.look() >= step

    def ending(self, rank: int = 0) -> dict[str, Any] | None:
        """What the rank wrote last, if it was in this attempt."""
        path = self.folder / f"ended-rank{rank}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def log(self) -> str:
        """Everything the folder's attempts have printed."""
        return (self.folder / "output.log").read_text(errors="replace")

    def wait(self) -> int:
        return self.process.wait(LIMIT_SECONDS)

    def close(self) -> None:
        """Nothing of it is left running; lines that come later are another attempt's."""
        if self.process.poll() is None:
            self.kill()
        path = self.folder / "progress.jsonl"
        self._end = path.stat().st_size if path.exists() else 0

    def kill(self) -> None:
        """SIGKILL to the process and, under torchrun, its ranks (they die with it)."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT_SECONDS)


class InterruptedRun:
    """The folder and the configuration that all attempts share."""

    def __init__(self, folder: Path, config: dict[str, Any], ranks: int = 1) -> None:
        self.folder = folder
        self.ranks = ranks
        self.attempts: list[Attempt] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        """What the next attempts run with."""
        self.config = config
        (self.folder / "config.json").write_text(json.dumps(config))

    @contextmanager
    def attempt(
        self, ranks: int | None = None, variables: dict[str, str] | None = None
    ) -> Iterator[Attempt]:
        """Starts the next attempt; nothing of it is left running afterwards."""
        count = self.ranks if ranks is None else ranks
        for path in self.folder.glob("*-rank*.json"):
            path.unlink()
        progress = self.folder / "progress.jsonl"
        offset = progress.stat().st_size if progress.exists() else 0
        trainer = ["-m", "trainer.training.train", "--config", str(self.folder / "config.json")]
        if count > 1:
            launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={count}"]
            launcher += ["--max-restarts=0", f"--master-port={free_port()}", "--nnodes=1"]
            trainer = [*launcher, "--node-rank=0", "--master-addr=127.0.0.1", *trainer]
        with (self.folder / "output.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *trainer],
                cwd=REPOSITORY,
                env={**self._environment(), **(variables or {})},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        attempt = Attempt(self.folder, process, offset)
        self.attempts.append(attempt)
        try:
            yield attempt
        finally:
            attempt.close()

    def finish(self, ranks: int | None = None) -> Attempt:
        """One more attempt, to the end."""
        with self.attempt(ranks) as attempt:
            assert attempt.wait() == 0, attempt.log()[-3000:]
        return attempt

    def told_losses(self) -> list[tuple[int, float]]:
        """(step, loss) of every step of every attempt, those done twice included."""
        return [pair for attempt in self.attempts for pair in attempt.losses().items()]

    def _environment(self) -> dict[str, str]:
        fence = len(self.attempts) + 1
        return {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "LOWTIDE_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
            "LOWTIDE_RESUME_DIR": str(self.folder / "checkpoints"),
            "LOWTIDE_PROGRESS_FILE": str(self.folder / "progress.jsonl"),
            "LOWTIDE_FENCE": str(fence),
        }
