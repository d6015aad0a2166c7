"""The processes that read samples: how many, how they are started, asked and let go.

torch's DataLoader has the queues between them and the rank. Here is what a machine that vanishes
needs besides: a stop signal ends no worker, and a worker that hangs in a read holds up no rank.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from trainer.protocol.train_options.data import DataOptions
from trainer.training.data.loading.cores import usable_cores
from trainer.training.data.loading.data_parts import DataSet
from trainer.training.drain import die_with_launcher

MOST_WORKERS = 8
# How long one try takes at most, where samples come from workers.
TRY_SECONDS = 0.1
CLOSING_SECONDS = 1.0
ENDED = object()
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def worker_count(options: DataOptions, data: DataSet) -> int:
    """Worker processes of this rank: as configured, or none for data in memory, or its cores."""
    # A client of a bucket cannot be interrupted: it must not be in the process that trains.
    if options.workers != "auto":
        return max(options.workers, int(data.remote))
    if data.in_memory:
        return 0
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(MOST_WORKERS, usable_cores() // ranks_here))


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """For starting workers: stop signals are blocked in them, from their first instant on.

    torchrun signals whole process groups: a worker that died of it would take the rank along
    before it has saved.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        with warnings.catch_warnings():
            # More workers than cores is the user's choice, and right where reading waits.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            # Python 3.12 warns of every fork beside a thread; ours only read samples.
            warnings.filterwarnings("ignore", message="This process .* is multi-threaded")
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Answers:
    """The answers of workers, taken by a thread of its own, one at a time: none may ever come.

    The workers belong to the thread that made ``answers``, and end when nobody holds it.
    """

    def __init__(self, answers: Iterator[dict[str, Any]]) -> None:
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._is_asked = False
        self._thread = threading.Thread(
            target=_answer, args=(answers, self._asked, self._told), name="samples", daemon=True
        )
        self._thread.start()

    def tried(self) -> Any:
        """As ``tried``."""
        if not self._is_asked:
            self._asked.put(True)
            self._is_asked = True
        try:
            answer, error = self._told.get(timeout=TRY_SECONDS)
        except queue.Empty:
            return None
        self._is_asked = False
        if error is not None:
            raise error
        return answer

    def close(self) -> None:
        """Lets go of the workers; returns when that is done, never where one hangs in a read."""
        self._asked.put(False)
        self._thread.join()

    def __del__(self) -> None:
        self._asked.put(False)


def _answer(
    answers: Iterator[dict[str, Any]],
    asked: queue.SimpleQueue[bool],
    told: queue.SimpleQueue[tuple[Any, BaseException | None]],
) -> None:
    while asked.get():
        try:
            told.put((next(answers, ENDED), None))
        except BaseException as error:  # whoever has asked gets it
            told.put((None, error))


def tried(answers: Answers | Iterator[dict[str, Any]]) -> Any:
    """The next answer, None if it does not come within ``TRY_SECONDS``, ``ENDED`` after the last.

    The next call goes on waiting for the same one. Raises what reading it raised.
    """
    return answers.tried() if isinstance(answers, Answers) else next(answers, ENDED)


def let_go(held: list[Any]) -> None:
    """Ends the workers of what is held, and waits for their end, but not long.

    torch waits for each of them, several seconds if it hangs. They die with this process.
    """

    def end() -> None:
        for each in held:
            if isinstance(each, Answers):
                each.close()
        held.clear()

    ending = threading.Thread(target=end, name="ending-workers", daemon=True)
    ending.start()
    ending.join(CLOSING_SECONDS)


def start_worker(_number: int) -> None:
    """The first thing that a worker does."""
    die_with_launcher()


def as_it_is(answer: object) -> Any:
    """For torch, which would make batches of what is one already."""
    return answer
