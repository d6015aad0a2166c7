"""The processes that read samples: how many, how they are started, asked and let go.

torch's DataLoader has the queues between them and the rank. Here is what a machine that vanishes
needs besides: a stop signal ends no worker, and a worker that hangs in a read holds up no rank.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from trainer.protocol.train_options.data import DataOptions
from trainer.training.data.cores import usable_cores
from trainer.training.data.parts import DataSet
from trainer.training.drain import die_with_launcher

MOST_WORKERS = 8
# How long one try takes at most, where samples come from workers.
TRY_SECONDS = 0.1
CLOSING_SECONDS = 1.0
ENDED = object()
_TRY_FAILED = "DataLoader timed out"
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


def tried(answers: Iterator[dict[str, Any]]) -> Any:
    """The next answer, None if it does not come within ``TRY_SECONDS``, ``ENDED`` after the last.

    torch says that it was late in the text only; the next call goes on waiting for the same one.
    """
    try:
        return next(answers, ENDED)
    except RuntimeError as error:
        if _TRY_FAILED not in str(error):
            raise
        return None


def let_go(held: list[Any]) -> None:
    """Ends the workers of what is held, and waits for their end, but not long.

    torch waits for each of them, several seconds if it hangs. They die with this process.
    """
    ending = threading.Thread(target=held.clear, name="ending-workers", daemon=True)
    ending.start()
    ending.join(CLOSING_SECONDS)


def start_worker(_number: int) -> None:
    """The first thing that a worker does."""
    die_with_launcher()


def as_it_is(answer: Any) -> Any:
    """For torch, which would make batches of what is one already."""
    return answer
