"""One save of a script's gang: all ranks' files become one checkpoint, or none appears.

Each machine's folder is written under a temporary name, flushed and renamed. Where several machines
have files, each folder is a share that its machine's agent uploads, and the manifests say what
belongs together (`trainer.protocol.checkpoint_shares` has the agents' side).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .gang import Ranks

MANIFEST = "manifest.json"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LITTLE_BYTES = 1 << 20


class SaveFailed(Exception):
    """A save failed on some rank; raised on all ranks alike, and older checkpoints stay.

    The script may catch it and go on. ``problems``: what went wrong, by rank. On a rank that
    failed, ``__cause__`` is the exception itself.
    """

    def __init__(self, step: int, problems: Mapping[int, str]) -> None:
        told = "; ".join(f"rank {rank}: {problem}" for rank, problem in problems.items())
        super().__init__(f"the checkpoint of step {step:,} was not saved: {told}")
        self.step, self.problems = step, dict(problems)


class SaveRefused(Exception):
    """This save can never become a checkpoint that all machines can read; raised on all ranks."""


class Save:
    """One save under way. Every stage ends with all ranks knowing how it went on each of them.

    ``leads``: this rank answers for the folder of its machine. ``machine``: whose share the folder
    is, of ``machines``; one where rank 0's folder has everything. ``disk_full``: this rank's part
    failed for want of room.
    """

    def __init__(self, folder: Path, gang: Ranks | None, rank: int, step: int, final: bool) -> None:
        self.target = folder / f"step-{step:012d}"
        self.leads = rank == 0
        self.disk_full = False
        self._folder, self._gang, self._rank = folder, gang, rank
        self._step, self._final = step, final
        self._temporary = folder
        self._machine, self._machines, self._number = 0, 1, 0
        self._leaders = [0]
        self._appeared, self._held = False, -1

    def run(self, write: Callable[[Path], object], every_rank: bool, last: int) -> int:
        """Raises SaveFailed and SaveRefused. Returns the save's number, larger than ``last``."""
        try:
            name, self._number = self._together(self.leads, lambda: self._begin(last))[0]
            self._temporary = self._folder / name
            if every_rank:
                self._divide()
            self._together(self._rank == 0 or every_rank, lambda: write(self._temporary))
            if self._machines > 1:
                self._unite_files()
            if self._machines > 1:  # machine 0 last: where its share is complete, all are
                self._together(self.leads, lambda: self._seal(appear=self._machine > 0))
                self._together(self.leads and self._machine == 0, self._appear)
            else:
                self._together(self.leads, lambda: self._seal(appear=True))
        except BaseException:
            self._undo()
            raise
        finally:
            self._release()
        return self._number

    @property
    def is_shared(self) -> bool:
        """Whether several machines' folders make up the checkpoint."""
        return self._machines > 1

    def _begin(self, last: int) -> tuple[str, int]:
        """Rank 0's folder, under a name that no other save has; and the save's number.

        By the clock, so that a script which is started again within its attempt counts on.
        """
        fence = os.environ.get("LOWTIDE_FENCE", "0")
        name = f"{self.target.name}.tmp-{fence}-{uuid.uuid4().hex[:8]}"
        self._make_folder(self._folder / name)
        return name, max(last + 1, int(time.time()))

    def _divide(self) -> None:
        """Finds out which ranks write into one folder, and makes those of the other machines."""
        places = self._together(True, self._place)
        if (refusal := _refusal(places)) is not None:
            raise SaveRefused(refusal)
        if all(place.sees_first for place in places):
            return
        nodes = [place.node for place in places]
        self._machine, self._machines = nodes[self._rank], len(set(nodes))
        self._leaders = [nodes.index(each) for each in range(self._machines)]
        self.leads = self._rank == self._leaders[self._machine]
        strange = self.leads and not places[self._rank].sees_first
        self._together(strange, lambda: self._make_folder(self._temporary))

    def _place(self) -> _Place:
        return _Place(
            self._temporary.is_dir(),
            int(os.environ.get("LOWTIDE_NODE_RANK", "0")),
            machines_of_job(),
            os.environ.get("LOWTIDE_CHECKPOINT_SHARES") == "1",
            str(self._folder),
        )

    def _make_folder(self, path: Path) -> None:
        remove_unfinished(self._folder)
        self._temporary = path
        path.mkdir(parents=True)
        self._held = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._held, fcntl.LOCK_EX)

    def _unite_files(self) -> None:
        """One file of each name in all; where only machine 0 has any, its folder is the whole."""
        told = self._together(self.leads, lambda: _names_in(self._temporary))
        names = [told[leader] for leader in self._leaders]
        owners = Counter(name for each in names for name in each)
        doubled = {name for name, count in owners.items() if count > 1}
        if doubled:
            mine = [self._temporary / name for name in names[self._machine] & doubled]
            told = self._together(self.leads, lambda: self._hashes(mine))
            again = self._doubled_again([told[leader] for leader in self._leaders])
            self._together(self.leads, lambda: self._remove(again))
        if not any(each - names[0] for each in names[1:]):
            if self.leads and self._machine > 0:
                shutil.rmtree(self._temporary, ignore_errors=True)
            self.leads = self._rank == self._leaders[0]
            self._machines = 1

    def _hashes(self, paths: list[Path]) -> dict[str, str]:
        return {path.relative_to(self._temporary).as_posix(): _hash(path) for path in paths}

    def _doubled_again(self, hashes: list[dict[str, str]]) -> list[str]:
        """Of this machine's files those that a machine before it has as well."""
        for name in sorted(set().union(*hashes)):
            owners = [machine for machine, each in enumerate(hashes) if name in each]
            if len({hashes[machine][name] for machine in owners}) > 1:
                raise SaveRefused(
                    f"machines {owners[0]} and {owners[1]} have written {name} with different"
                    " content: give what only one rank has a name with its rank in it"
                )
        before = set().union(*hashes[: self._machine])
        return [name for name in hashes[self._machine] if name in before]

    def _remove(self, names: list[str]) -> None:
        for name in names:
            (self._temporary / name).unlink()

    def _seal(self, appear: bool) -> None:
        """Everything of this machine's folder is on disk afterwards."""
        manifest: dict[str, Any] = {"step": self._step, "final": self._final}
        name = MANIFEST
        if self._machines > 1:
            share = {"machine": self._machine, "machines": self._machines}
            manifest["share"] = {**share, "save": self._number}
            if self._machine > 0:
                (self._temporary / MANIFEST).unlink(missing_ok=True)
                name = f"manifest-{self._machine + 1:05d}-of-{self._machines:05d}.json"
        (self._temporary / name).write_text(json.dumps(manifest))
        for path in (*self._temporary.rglob("*"), self._temporary):
            if not path.is_symlink() and (path.is_file() or path.is_dir()):
                _sync(path)
        if appear:
            self._appear()

    def _appear(self) -> None:
        if self.target.exists():  # the same step once more
            self.target.rename(self._replaced)
        self._temporary.rename(self.target)
        self._appeared = True
        _sync(self._folder)

    def _undo(self) -> None:
        """Older checkpoints are as they were; one of the same step, too."""
        if not self.leads:
            return
        if self._appeared:
            shutil.rmtree(self.target, ignore_errors=True)
        if self._temporary != self._folder:
            shutil.rmtree(self._temporary, ignore_errors=True)
            with suppress(OSError):
                self._replaced.rename(self.target)

    def _release(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            shutil.rmtree(self._replaced, ignore_errors=True)

    @property
    def _replaced(self) -> Path:
        return self._temporary.with_name(f"{self._temporary.name}-replaced")

    def _together(self, does: bool, work: Callable[[], Any]) -> list[Any]:
        """Has ``work`` done where ``does``; its results by rank. Raises SaveFailed on all ranks."""
        answer, problem, error = None, None, None
        if does:
            try:
                answer = work()
            except BaseException as raised:
                error, problem = raised, f"{type(raised).__name__}: {raised}"
                self.disk_full |= self._no_room(raised)
        mine = (problem, answer)
        told = [mine] if self._gang is None else self._gang.gather(mine)
        if error is not None and not isinstance(error, Exception):
            raise error
        problems = {rank: each for rank, (each, _) in enumerate(told) if each is not None}
        if problems:
            raise SaveFailed(self._step, problems) from error
        return [each for _, each in told]

    def _no_room(self, error: BaseException) -> bool:
        """Libraries do not always say why a write failed, so the disk is asked, too."""
        if getattr(error, "errno", None) in NO_ROOM:
            return True
        return self._folder.exists() and shutil.disk_usage(self._folder).free < _LITTLE_BYTES


@dataclass(frozen=True)
class _Place:
    """Where a rank writes. ``sees_first``: rank 0's folder is its, too."""

    sees_first: bool
    node: int
    machines: int
    shares: bool
    folder: str


def _refusal(places: list[_Place]) -> str | None:
    """Why what all ranks write cannot become one checkpoint; None where it can."""
    machines, nodes = places[0].machines, {place.node for place in places}
    if nodes != set(range(machines)) and machines > 1:
        return (
            f"every rank writes, but this process group has ranks of {len(nodes)} of the job's"
            f" {machines} machines: only a group of all of them can save together"
        )
    if all(place.sees_first for place in places):
        return None
    stranger = next(rank for rank, place in enumerate(places) if not place.sees_first)
    if any(place.sees_first != (place.node == places[0].node) for place in places):
        return (
            f"every rank writes, but {places[stranger].folder} of rank {stranger} is not the folder"
            " of rank 0, and nothing puts them together: save on rank 0 alone, or set"
            " LOWTIDE_CHECKPOINT_DIR to a folder that all machines share"
        )
    if not all(place.shares for place in places):
        return (
            "every rank writes, but the agent of some machine cannot publish its part"
            " (LOWTIDE_CHECKPOINT_SHARES is not 1 there): save on rank 0 alone"
        )
    return None


def remove_unfinished(folder: Path) -> None:
    """Removes what was being saved in ``folder`` when its process ended; not what still is."""
    for path in folder.glob("step-*.tmp*"):
        with suppress(FileNotFoundError):
            if not _is_held(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_held(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def machines_of_job() -> int:
    """How many machines train together; one where nobody has said."""
    return int(os.environ.get("LOWTIDE_NUM_NODES", "1"))


def _names_in(folder: Path) -> set[str]:
    """Of all files below the folder, but the manifest that is ours to write."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix() for path in files} - {MANIFEST}


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
