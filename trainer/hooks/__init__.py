"""Calls that let your own training script survive losing its machine.

Resume, drain, save and progress live here; it needs nothing besides Python, and torch only where
the script has it. A rented machine has this as ``lowtide_hooks``; elsewhere copy it beside your
script, which runs unchanged (Ctrl-C drains, saves go to ./checkpoints). ::

    hooks = Hooks()
    device = hooks.device()                         # this rank's GPU, or the CPU
    start = load(hooks.resume())                    # None on a fresh start
    for step in range(start + 1, total + 1):
        loss = train_one(step)
        hooks.progress(step, total_steps=total, loss=loss)
        draining = hooks.should_drain()             # every rank gets the same answer
        if draining or step % 500 == 0 or step == total:
            hooks.save(step, write, final=step == total)  # write(folder) puts your files there
        if draining and step < total:
            hooks.leave_drained(step)               # exit 75: saved, go on elsewhere
    export()                                        # here, because finish() does not return
    hooks.finish(total)
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from .gang import Ranks, initialized
from .gang_save import NO_ROOM, Save, SaveFailed, SaveRefused, machines_of_job, remove_unfinished
from .notice import seconds_left

__all__ = ["EXIT_DRAINED", "Hooks", "SaveFailed", "SaveRefused"]

EXIT_DRAINED = 75  # os.EX_TEMPFAIL
_COMPLETE = re.compile(r"^step-\d+$")


class Hooks:
    """One per process. All ranks must call every method alike, but ``progress`` and ``device``.

    ``keep``: newest checkpoint folders kept on this machine; the published ones are elsewhere.
    """

    def __init__(self, keep: int = 3) -> None:
        self.folder = Path(os.environ.get("LOWTIDE_CHECKPOINT_DIR") or "checkpoints").resolve()
        self._progress = os.environ.get("LOWTIDE_PROGRESS_FILE")
        self._keep, self._asked = keep, False
        self._gang: Ranks | None = None
        self._last_save, self._shared_step, self._is_torn = 0, -1, False
        self.listen()
        faulthandler.register(signal.SIGUSR1, all_threads=True)  # a stall shows where it hangs

    def listen(self) -> None:
        """Takes the signals; again after a framework has put its own handlers there."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    @property
    def rank(self) -> int:
        """This process's rank in the gang."""
        if (dist := initialized()) is not None:
            return int(dist.get_rank())
        return int(os.environ.get("RANK", os.environ.get("LOWTIDE_NODE_RANK", "0")))

    def device(self) -> Any:
        """This rank's ``torch.device``: its GPU where there is one, else the CPU.

        The GPU becomes the current one, so that plain ``"cuda"`` means this rank's, too.
        """
        import torch

        if not torch.cuda.is_available():
            return torch.device("cpu")
        # One alone is this rank's, whatever its number: each rank may see only its own.
        several = torch.cuda.device_count() > 1
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) if several else 0)
        torch.cuda.set_device(device)
        return device

    def resume(self) -> Path | None:
        """The checkpoint to go on from, verified, the same for every rank; None on a fresh start.

        Away from Lowtide: the newest complete one in ``folder``. What an earlier process was
        saving when it was killed is removed.
        """
        if os.environ.get("LOCAL_RANK", "0") == "0":
            remove_unfinished(self.folder)
        if "LOWTIDE_FENCE" in os.environ:
            given = os.environ.get("LOWTIDE_RESUME_DIR")
            return Path(given) if given else None
        return max(self._saved(), default=None)

    def should_drain(self) -> bool:
        """Whether to save and leave now; every rank gets the same answer.

        It never waits for a GPU: the processors agree among themselves. Where the calls are less
        than a second apart, the answer is the one that was asked for in the call before.
        """
        gang = self._met()
        return self._asked if gang is None else gang.vote(self._asked)

    def seconds_left(self) -> float | None:
        """How long this machine has, once it was asked to stop; None before that, or if unknown.

        Each machine has its own answer: let rank 0 decide for all where it changes what ranks do.
        """
        return seconds_left() if self._asked else None

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
        finished run's last one. With ``every_rank`` on several machines each has a folder of its
        own; what they write becomes one checkpoint, so that a file has the same name on two
        machines only if it has the same content; the same step again changes nothing unless it is
        ``final``. Returns its folder on this machine when it is on
        disk and every rank may go on.

        Raises, on all ranks alike: ``SaveFailed`` where a rank could not write (a full disk, an
        error of ``write``), and ``SaveRefused`` where the files of several machines cannot become
        one checkpoint.
        """
        gang = self._met()
        if gang is None and every_rank and machines_of_job() > 1:
            raise SaveRefused(
                "every rank of several machines writes, and only torch.distributed can bring them"
                " together: initialise it first, or save on rank 0 alone"
            )
        if every_rank and step == self._shared_step and not final:
            return self.folder / f"step-{step:012d}"  # its shares may be on their way already
        saving = Save(self.folder, gang, self.rank, step, final)
        if gang is not None or self.rank == 0:
            try:
                self._last_save = saving.run(write, every_rank, self._last_save)
            except SaveFailed:
                if saving.disk_full:
                    self._tell({"type": "checkpoint_failed", "step": step, "disk_full": True})
                raise
            self._shared_step = step if saving.is_shared else -1
            for old in self._saved()[: -self._keep] if saving.leads else ():
                shutil.rmtree(old, ignore_errors=True)
            if gang is not None:
                gang.gather(None)
        return saving.target

    def try_save(
        self,
        step: int,
        write: Callable[[Path], object],
        *,
        every_rank: bool = False,
    ) -> bool:
        """As ``save``, for a checkpoint that the run can do without, as after a full disk.

        False where it failed, which is a line in the log; the next one is tried as ever.
        """
        try:
            self.save(step, write, every_rank=every_rank)
        except SaveFailed as failed:
            if self.rank == 0:
                print(f"[lowtide] {failed}; training goes on", file=sys.stderr, flush=True)
            return False
        return True

    def progress(self, step: int, total_steps: int | None = None, **metrics: Any) -> None:
        """Tells rank 0's step and any numbers (``loss=…, samples=…``): each becomes a chart."""
        if self._progress is None or self.rank != 0:
            return
        line: dict[str, Any] = {"type": "step", "step": step, "total_steps": total_steps}
        line |= {name: float(value) for name, value in metrics.items() if value is not None}
        self._tell({k: v for k, v in line.items() if v is not None})

    def finish(self, step: int) -> NoReturn:
        """Ends this process as finished, with exit code 0. Never returns.

        Export, upload and close your loggers before it: no line after it runs, and no ``finally``,
        end of a ``with`` or exit handler does.
        """
        self._leave("finished", 0, step)

    def leave_drained(self, step: int) -> NoReturn:
        """Ends this process as drained, with exit code 75. Never returns, as ``finish``.

        ``step`` is saved, and another machine goes on from it.
        """
        self._leave("drained", EXIT_DRAINED, step)

    def _leave(self, outcome: str, code: int, step: int) -> NoReturn:
        if (gang := self._met()) is not None:
            gang.gather(None)
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

    def _tell(self, line: dict[str, Any]) -> None:
        if self._progress is None:
            return
        content = f"{json.dumps(line)}\n".encode()
        if self._is_torn:  # a full disk has cut the line before: this one is whole again
            content = b"\n" + content
        try:
            with Path(self._progress).open("ab", buffering=0) as file:
                self._is_torn = file.write(content) < len(content)
        except OSError as error:
            if error.errno not in NO_ROOM:  # a full disk costs lines, not the run
                raise

    def _on_signal(self, *_: object) -> None:
        self._asked = True

    def _saved(self) -> list[Path]:
        found = self.folder.glob("step-*")
        return sorted(path for path in found if _COMPLETE.match(path.name))

    def _met(self) -> Ranks | None:
        """The other ranks; None without any. The first call meets them, so all ranks make it."""
        dist = initialized()
        if dist is None or dist.get_world_size() == 1:
            return None
        if self._gang is None or self._gang.world is not dist.group.WORLD:
            self._gang = Ranks(dist)
        return self._gang
