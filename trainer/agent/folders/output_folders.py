"""Outputs: what a finished job leaves in its named folders, brought to its buckets.

Everything goes below `<address>/<job id>/`, on machines of rank 1 and up below `node-<rank>/` in
there: no job can touch another's files. Only plain files are taken, never what a link leads to.
Not here: when (`attempt_ending`).
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trainer.agent.checkpoints.part_upload import part_bytes
from trainer.agent.checkpoints.storage_root import (
    NoSuchKey,
    StorageRoot,
    StoreDenied,
    StoreUnavailable,
)
from trainer.agent.machine.parallel_transfers import run_in_parallel
from trainer.agent.rules.observations import Observation, OutputsFailed, OutputsSaved
from trainer.protocol.run_config import job_folder

TRIES = 5
RETRY_SECONDS = 2.0
RETRY_MOST_SECONDS = 60.0


class _Closed(Exception):
    """The machine is wanted for something else."""


class OutputsUpload:
    """The outputs of one attempt on this machine; begins in the constructor.

    folders: where each lies, by its name in the spec. addresses: where each goes, by the same.
    owner: the trainer's OS user, where it is another than ours: nobody else's files are taken.
    open_at: the store at an address.
    Observed is OutputsSaved or OutputsFailed, unless it is closed first.
    """

    def __init__(
        self,
        fence: int,
        folders: Mapping[str, Path],
        addresses: Mapping[str, str],
        observe: Callable[[Observation], None],
        say: Callable[[str], None],
        owner: int | None = None,
        open_at: Callable[[str], StorageRoot] = StorageRoot,
    ) -> None:
        self._owner = owner
        self._open_at = open_at
        self._fence = fence
        self._folders = folders
        self._addresses = addresses
        self._observe = observe
        self._say = say
        self._closed = threading.Event()
        self._done: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="outputs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End soon and say nothing any more."""
        self._closed.set()

    def _run(self) -> None:
        seen: Observation
        try:
            self._upload_patiently()
            files, size = len(self._done), sum(self._done.values())
            seen = OutputsSaved(self._fence, files, size, tuple(self._addresses.values()))
            self._say(f"all outputs are saved: {_count(files)}, {size:,} bytes")
        except _Closed:
            return
        except Exception as error:  # the end of the attempt waits for a word
            message = self._sentence(error)
            self._say(message)
            seen = OutputsFailed(self._fence, message)
        if not self._closed.is_set():
            self._observe(seen)

    def _upload_patiently(self) -> None:
        """Once more after a failure, with what is not there yet."""
        for tried in range(1, TRIES + 1):
            try:
                for name, folder in self._folders.items():
                    self._upload(name, folder)
                return
            except StoreDenied:
                raise
            except (StoreUnavailable, NoSuchKey) as error:
                if tried == TRIES:
                    raise
                self._say(f"outputs are not saved yet: {error}")
                if self._closed.wait(min(RETRY_SECONDS * 2.0**tried, RETRY_MOST_SECONDS)):
                    raise _Closed from None

    def _upload(self, name: str, folder: Path) -> None:
        files = [path for path in _plain_files(folder) if str(path) not in self._done]
        if not files:
            return
        address = self._addresses[name]
        self._say(f"output {name}: {_count(len(files))} to {address}")
        store, begun = self._open_at(address), time.monotonic()

        def put(path: Path) -> None:
            if self._closed.is_set():
                raise _Closed
            # The trainer owns these files: a link put in their place is not followed.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                facts = os.fstat(descriptor)
                size = facts.st_size
                if self._owner is not None and facts.st_uid != self._owner:
                    # A link on the way here, put there after the look at this folder.
                    raise PermissionError(f"{path} does not belong to the trainer's user")
                store.put_file(path.relative_to(folder).as_posix(), file, part_bytes(size))
                self._done[str(path)] = size

        run_in_parallel(files, put, lambda: None)
        self._say(f"output {name} is saved in {time.monotonic() - begun:.1f} s")

    def _sentence(self, error: Exception) -> str:
        places = " and ".join(sorted(set(self._addresses.values())))
        if isinstance(error, StoreDenied):
            allow = "allow the role of jobs' data"
            return f"the outputs may not be written to {places}: {allow} ({error})"
        reason = str(error) or type(error).__name__
        return f"the outputs could not be saved to {places}: {reason}"


def addresses_of(outputs: Mapping[str, str], job_id: str, node_rank: int) -> dict[str, str]:
    """Where a machine's part of each output goes, by the output's name."""
    below = f"/node-{node_rank}" if node_rank else ""
    return {name: job_folder(uri, job_id) + below for name, uri in outputs.items()}


def _count(files: int) -> str:
    return "1 file" if files == 1 else f"{files} files"


def _plain_files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(root, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path
