"""The local folder of checkpoints: names, the commit by rename, pruning, quarantine, the newest.

Layout::

    step-000000000412/            appears by rename, complete or not at all
        weights.safetensors       model.state_dict(), for anybody who only wants the model
        training_state.safetensors   optimizer, EMA, each rank's random state, ...
        tree.json                 how tensors and plain values hang together
        manifest.json             written last
    step-000000000413.tmp-1-7/    being written by attempt 1; left behind only by killed ones
    corrupt-step-000000000411/    failed verification; kept for whoever wants to look

With several ranks each writes its part of the tensors, on several machines into its own machine's
folder (``manifest-00002-of-00003.json`` is the second one's manifest), and the files are called
``weights-00001-of-00002.safetensors`` and so on.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from trainer.training.checkpoint.files import sync_folder

_COMPLETE = re.compile(r"^step-(\d{12})$")


@dataclass(frozen=True)
class KeepRule:
    """What is kept of the checkpoints that this process wrote: the newest ones, and every
    ``every``-th beside them (0: none). The best one is kept too where it is marked.
    """

    newest: int = 2
    every: int = 0


class CheckpointFolder:
    """One machine's folder. Only the first rank of the machine changes it."""

    def __init__(self, folder: Path, keep: KeepRule = KeepRule()) -> None:
        self.folder = folder
        self._keep = keep
        self._written: list[Path] = []
        self._count = 0
        self._count_removed = 0
        self._best: Path | None = None
        self._forever: set[Path] = set()

    def sweep(self, besides: Path | None = None) -> None:
        """Creates the folder and removes what killed processes left half-written in it, or what a
        rank was still writing of a checkpoint that another one had given up.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("step-*.tmp-*"):
            if path != besides:
                shutil.rmtree(path, ignore_errors=True)

    def target(self, step: int) -> Path:
        """Where the complete checkpoint of a step lies."""
        return self.folder / f"step-{step:012d}"

    def temporary(self, step: int, fence: int, number: int) -> Path:
        """Where it is written: alike on all ranks, and never twice in an attempt."""
        return self.folder / f"step-{step:012d}.tmp-{fence}-{number}"

    def commit(self, temporary: Path, step: int, best: bool = False) -> Path:
        """Lets a completely written folder appear, durably, and prunes. Raises ``OSError``."""
        sync_folder(temporary)
        target = self.target(step)
        replaced = temporary.with_name(f"{temporary.name}-replaced")
        again = target.exists()  # after an earlier attempt, or as the final checkpoint
        if again:
            target.rename(replaced)
        temporary.rename(target)
        try:
            sync_folder(self.folder)
        except OSError:
            # What is told as failed must not lie there, in the place of one that was good.
            target.rename(temporary)
            if again:
                replaced.rename(target)
            raise
        if again:
            shutil.rmtree(replaced, ignore_errors=True)
        self._prune(target, best)
        return target

    def complete(self) -> list[Path]:
        """The complete checkpoints that lie here, newest step first."""
        try:
            found = [path for path in self.folder.iterdir() if _COMPLETE.match(path.name)]
        except OSError:
            return []
        return sorted(found, key=lambda path: path.name, reverse=True)

    def quarantine(self, path: Path) -> Path:
        """Moves a checkpoint out of the way that is not what was written; never deletes it."""
        number, target = 0, path.with_name(f"corrupt-{path.name}")
        while target.exists():
            number += 1
            target = path.with_name(f"corrupt-{path.name}-{number}")
        path.rename(target)
        return target

    def _prune(self, newest: Path, best: bool) -> None:
        """Of what this process wrote; what earlier attempts left is not ours to remove."""
        self._written = [path for path in self._written if path != newest] + [newest]
        self._count += 1
        if best:
            self._best = newest
        if self._keep.every and self._count % self._keep.every == 0:
            self._forever.add(newest)
        for path in self._written[: -self._keep.newest]:
            if path != self._best and path not in self._forever:
                self._remove(path)
                self._written.remove(path)

    def _remove(self, path: Path) -> None:
        """Under another name first: a complete one never holds only a part of its files, not even
        for whoever looks on or after a death half-way (the next attempt sweeps it up).
        """
        self._count_removed += 1
        gone = path.with_name(f"{path.name}.tmp-gone-{self._count_removed}")
        try:
            path.rename(gone)
        except OSError:  # somebody else has taken it away: then it is not here
            return
        shutil.rmtree(gone, ignore_errors=True)
