"""Calls of one kind side by side, as many at a time as the client keeps connections for.

Compute Engine takes one machine or disk a call, so its own pace is that of parallel calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

CALLS_AT_ONCE: Final = 10
"""The size of the client's pool of connections (`requests.adapters.DEFAULT_POOLSIZE`)."""


def in_parallel(ask: Callable[[T], R], of: Sequence[T], at_once: int = CALLS_AT_ONCE) -> list[R]:
    """The answers of `ask`, in order. `ask` returns the errors it expects: one must not end all."""
    if len(of) <= 1 or at_once <= 1:
        return [ask(one) for one in of]
    with ThreadPoolExecutor(min(at_once, len(of)), thread_name_prefix="gcp") as pool:
        return list(pool.map(ask, of))
