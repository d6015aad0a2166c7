"""Where things lie on the machine's own disk, and the agent's memory across its own restarts.

agent/identity.json      the nonce this machine registers with (mode 0600)
agent/trainer.json       the running trainer, for a restarted agent to find
agent/power-off-at       deadline of the independent power-off
agent/last-words         what an agent that failed ended with, for the next one to tell
workdir/                 the user's unpacked working folder, where commands run
inputs/                  what was brought from the job's buckets, kept between attempts
scratch/                 LOWTIDE_SCRATCH_DIR: the job's own, kept between attempts
home/                    HOME of a trainer whose OS user is only a number
paths/                   the job's named folders, where the machine's own root is not the job's
attempts/<fence>/        checkpoints/ resume/ progress/ outbox/ outputs/ of one attempt
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer.agent.machine.small_files import replace_file

LAST_WORDS_BYTES_MAX = 2_000


@dataclass(frozen=True)
class Identity:
    """Kept across restarts of the agent: the same nonce gets the same credential again."""

    nonce: str


@dataclass(frozen=True)
class AttemptFolders:
    """The folders of one attempt; everything in them may be deleted when the next one begins."""

    root: Path

    @property
    def checkpoints(self) -> Path:
        """LOWTIDE_CHECKPOINT_DIR: complete folders named `step-<12 digits>` appear here."""
        return self.root / "checkpoints"

    @property
    def resume(self) -> Path:
        """The restored checkpoint's folder appears in here."""
        return self.root / "resume"

    @property
    def progress_file(self) -> Path:
        """LOWTIDE_PROGRESS_FILE; end markers lie beside it."""
        return self.root / "progress" / "progress.jsonl"

    @property
    def outbox(self) -> Path:
        """Hard links to checkpoints that wait to be published."""
        return self.root / "outbox"

    def output(self, number: int) -> Path:
        """What lies here when the work is finished goes to the job's bucket, one for each."""
        return self.root / "outputs" / str(number)

    @property
    def config_file(self) -> Path:
        """Configuration of the bundled trainer."""
        return self.root / "trainer-config.json"

    @property
    def hazard_file(self) -> Path:
        """LOWTIDE_HAZARD_FILE: how often such machines are lost and what they cost, if known."""
        return self.root / "hazard.json"

    @property
    def notice_file(self) -> Path:
        """LOWTIDE_NOTICE_FILE: by when a trainer that was asked to stop must have saved."""
        return self.root / "notice.json"

    @property
    def script_modules(self) -> Path:
        """On the PYTHONPATH of a user's command: lowtide_hooks and lowtide_callbacks."""
        return self.root / "modules"

    @property
    def error_file(self) -> Path:
        """Where torchrun copies the error of the rank that failed first."""
        return self.root / "progress" / "torchrun-error.json"


class MachineFolders:
    """All paths below the machine's folder; creating one makes the folders of the agent."""

    LAST_WORDS = "last-words"

    def __init__(self, root: Path, owner: tuple[int, int] | None = None) -> None:
        self.root = root
        self._owner = owner
        self._unkept: Identity | None = None
        self.agent = root / "agent"
        self.workdir = root / "workdir"
        self.attempts = root / "attempts"
        self.inputs = root / "inputs"
        self.scratch = root / "scratch"
        self.trainer_file = self.agent / "trainer.json"
        self.power_off_file = self.agent / "power-off-at"
        self.setup_mark = self.agent / "setup-done"
        root.mkdir(parents=True, exist_ok=True)
        self.agent.mkdir(mode=0o700, exist_ok=True)
        self.workdir.mkdir(exist_ok=True)
        self.attempts.mkdir(exist_ok=True)
        self.scratch.mkdir(exist_ok=True)
        self.give_away(self.workdir, self.scratch)

    def take_last_words(self) -> str:
        """What the agent before this one failed with, told once; "" where it did not say."""
        path = self.agent / self.LAST_WORDS
        try:
            words = path.read_bytes()[:LAST_WORDS_BYTES_MAX].decode("utf-8", "replace")
            path.unlink()
        except OSError:
            return ""
        return words

    def attempt(self, fence: int) -> AttemptFolders:
        """Folders of an attempt, not created yet."""
        return AttemptFolders(self.attempts / f"{fence:04d}")

    def begin_attempt(self, fence: int) -> AttemptFolders:
        """Empty folders for an attempt; those of every other attempt are removed."""
        for path in self.attempts.iterdir():
            shutil.rmtree(path, ignore_errors=True)
        folders = self.attempt(fence)
        for folder in (folders.checkpoints, folders.resume, folders.progress_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        folders.outbox.mkdir(mode=0o700, exist_ok=True)
        self.give_away(folders.checkpoints, folders.resume, folders.progress_file.parent)
        return folders

    def give_away(self, *paths: Path) -> None:
        """Make the trainer's OS user the owner, where it is another one than the agent's."""
        if self._owner is not None:
            for path in paths:
                os.chown(path, *self._owner, follow_symlinks=False)

    @property
    def trainer_uid(self) -> int | None:
        """The trainer's OS user, None where it is the agent's own."""
        return None if self._owner is None else self._owner[0]

    def make_home(self) -> Path:
        """A home that only the trainer's OS user may enter."""
        home = self.root / "home"
        home.mkdir(mode=0o700, exist_ok=True)
        self.give_away(home)
        return home

    def load_identity(self, new_nonce: str) -> Identity:
        """The identity of this machine's agents; the first one keeps `new_nonce`.

        On a disk that is full it is in memory alone, until `keep_identity` finds room.
        """
        path = self.agent / "identity.json"
        try:
            return Identity(nonce=str(json.loads(path.read_bytes())["nonce"]))
        except (OSError, ValueError, KeyError, TypeError):
            self._unkept = Identity(nonce=new_nonce)
            self.keep_identity()
            return Identity(nonce=new_nonce)

    def keep_identity(self) -> None:
        """Write it down for the agents after this one, where a full disk has prevented that."""
        if self._unkept is None:
            return
        path, content = self.agent / "identity.json", json.dumps(asdict(self._unkept))
        if replace_file(path, content, mode=0o600, durable=True):
            self._unkept = None
