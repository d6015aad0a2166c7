"""Do the same with many things, a few at a time; the first failure ends all of it.

Not here: what is done (`input_folders`, `output_folders`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

WORKERS = 8
_LOOK_SECONDS = 0.5

Thing = TypeVar("Thing")


def run_in_parallel(
    things: Iterable[Thing], work: Callable[[Thing], None], meanwhile: Callable[[], None]
) -> None:
    """Call `work` with each thing, on at most eight threads; raises the first error of any.

    meanwhile: called about twice a second; what it raises ends the rest, too. A `work` under way
    is waited for, so it should look itself whether it is still wanted.
    """
    waiting = iter(things)
    taking, failures = threading.Lock(), list[BaseException]()
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            with taking:
                thing = next(waiting, None)
            if thing is None:
                return
            try:
                work(thing)
            except BaseException as error:  # raised again by the caller's thread
                failures.append(error)
                stopped.set()

    threads = [threading.Thread(target=run, name="data", daemon=True) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)
                meanwhile()
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
