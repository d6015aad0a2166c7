"""Four calls that let your own training script survive losing its machine.

Here: resume, should_drain, save, progress, leaving; no dependency. A rented machine has this as
``lowtide_hooks``; elsewhere copy it beside your script, which runs unchanged (Ctrl-C drains, saves
go to ./checkpoints). Not here: the callbacks for frameworks (``callbacks/``). ::

    hooks = Hooks()
    start = load(hooks.resume())                    # None on a fresh start
    for step in range(start + 1, total + 1):
        loss = train_one(step)
        hooks.progress(step, total_steps=total, loss=loss)
        draining = hooks.should_drain()             # every rank gets the same answer
        if draining or step % 500 == 0 or step == total:
            hooks.save(step, write, final=step == total)  # write(folder) puts your files there
        if draining and step < total:
            hooks.leave_drained(step)               # exit 75: saved, go on elsewhere
    hooks.finish(total)
"""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

EXIT_DRAINED = 75  # os.EX_TEMPFAIL
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LITTLE_BYTES = 1 << 20


class Hooks:
    """One per process. Every method but ``progress`` must be called by all ranks alike.

    ``keep``: newest checkpoint folders kept on this machine; the published ones are elsewhere.
    """

    def __init__(self, keep: int = 3) -> None:
        self.folder = Path(os.environ.get("LOWTIDE_CHECKPOINT_DIR") or "checkpoints").resolve()
        self.rank = int(os.environ.get("RANK", os.environ.get("LOWTIDE_NODE_RANK", "0")))
        self._progress = os.environ.get("LOWTIDE_PROGRESS_FILE")
        self._keep, self._asked = keep, False
        self.listen()
        faulthandler.register(signal.SIGUSR1, all_threads=True)  # a stall shows where it hangs

    def listen(self) -> None:
        """Takes the signals; again after a framework has put its own handlers there."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def resume(self) -> Path | None:
        """The checkpoint to go on from, verified, the same for every rank; None on a fresh start.

        Away from Lowtide: the newest complete one in ``folder``.
        """
        if "LOWTIDE_FENCE" in os.environ:
            given = os.environ.get("LOWTIDE_RESUME_DIR")
            return Path(given) if given else None
        return max(self._saved(), default=None)

    def should_drain(self) -> bool:
        """Whether to save and leave now; a small all-reduce gives every rank the same answer."""
        return self._agree(self._asked)

    def save(
        self,
        step: int,
        write: Callable[[Path], object],
        *,
        final: bool = False,
        every_rank: bool = False,
    ) -> Path:
        """Makes a checkpoint of ``step`` finished steps appear at once or not at all.

        ``write(folder)`` fills it, on rank 0 alone unless ``every_rank``; ``final`` marks the
        finished run's last one. Returns its folder when it is on disk and every rank may go on.
        Raises whatever ``write`` raised, and OSError (disk full): older ones stay as they are.
        """
        target = self.folder / f"step-{step:012d}"
        temporary = self.folder / f"{target.name}.tmp-{os.environ.get('LOWTIDE_FENCE', '0')}"
        if self.rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        self._agree(False)  # here and below a barrier
        if self.rank == 0 or every_rank:
            temporary.mkdir(parents=True, exist_ok=True)
            with self._clearing(temporary, step):
                write(temporary)
        self._agree(False)
        if self.rank == 0:
            with self._clearing(temporary, step):
                (temporary / "manifest.json").write_text(json.dumps({"step": step, "final": final}))
                for path in (*temporary.rglob("*"), temporary):
                    _sync(path)
            shutil.rmtree(target, ignore_errors=True)  # the same step once more
            temporary.rename(target)
            _sync(self.folder)
            for old in sorted(self._saved())[: -self._keep]:
                shutil.rmtree(old, ignore_errors=True)
        self._agree(False)
        return target

    @contextmanager
    def _clearing(self, temporary: Path, step: int) -> Iterator[None]:
        """Gives a full disk its room back, and tells the agent why there is no checkpoint."""
        try:
            yield
        except Exception as error:
            # Libraries do not always say why a write failed, so the disk is asked, too.
            free = shutil.disk_usage(self.folder).free if self.folder.exists() else _LITTLE_BYTES
            shutil.rmtree(temporary, ignore_errors=True)
            if getattr(error, "errno", None) in _NO_ROOM or free < _LITTLE_BYTES:
                self._tell({"type": "checkpoint_failed", "step": step, "disk_full": True})
            raise

    def progress(self, step: int, total_steps: int | None = None, **metrics: Any) -> None:
        """Tells rank 0's step and any numbers (``loss=…, samples=…``): each becomes a chart."""
        if self._progress is None or self.rank != 0:
            return
        line: dict[str, Any] = {"type": "step", "step": step, "total_steps": total_steps}
        line |= {name: float(value) for name, value in metrics.items() if value is not None}
        self._tell({k: v for k, v in line.items() if v is not None})

    def _tell(self, line: dict[str, Any]) -> None:
        if self._progress is None:
            return
        try:
            with open(self._progress, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            if error.errno not in _NO_ROOM:  # a full disk costs lines, not the run
                raise

    def finish(self, step: int) -> NoReturn:
        """The end of a good run, whatever a library's exit handlers do afterwards."""
        self._leave("finished", 0, step)

    def leave_drained(self, step: int) -> NoReturn:
        """Ends this process as drained: ``step`` is saved, and another machine goes on from it."""
        self._leave("drained", EXIT_DRAINED, step)

    def _leave(self, outcome: str, code: int, step: int) -> NoReturn:
        self._agree(False)
        if folder := os.environ.get("LOWTIDE_END_FILE_DIR"):
            path = Path(folder) / f"ended-rank{self.rank}.json"
            temporary = path.with_suffix(".tmp")
            marker = {"outcome": outcome, "step": step, "exit_code": code}
            try:
                temporary.write_text(json.dumps(marker))
                temporary.rename(path)
            except OSError:  # a full disk: the exit code says the same
                temporary.unlink(missing_ok=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # not sys.exit: gloo's threads can abort a good run at exit

    def _on_signal(self, *_: object) -> None:
        self._asked = True

    def _saved(self) -> list[Path]:
        return [path for path in self.folder.glob("step-*") if ".tmp" not in path.name]

    def _agree(self, flag: bool) -> bool:
        """True on every rank as soon as it is true on one; without torch, this rank's own word."""
        torch = sys.modules.get("torch")
        gang = torch.distributed if torch and torch.distributed.is_available() else None
        if gang is None or torch is None or not gang.is_initialized():
            return flag
        votes = torch.tensor(float(flag), device="cuda" if gang.get_backend() == "nccl" else "cpu")
        gang.all_reduce(votes)
        return bool(votes.item())


def _sync(path: Path) -> None:
    os.fsync(descriptor := os.open(path, os.O_RDONLY))
    os.close(descriptor)
