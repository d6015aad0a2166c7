"""Machine 0's side of a checkpoint that a gang saves together: asks for the shares, awaits them.

Lives here: the orders, and the waiting with its bounds. Not here: the manifest that is written
afterwards (`checkpoint_sync`), or the other machines' side (`send_share`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainer.agent.checkpoints.checkpoint_sync import Abandoned, PlaceTaken
from trainer.agent.checkpoints.storage_root import (
    KeyExists,
    NoSuchKey,
    StorageRoot,
    StoreUnavailable,
)
from trainer.protocol.checkpoint_manifest import FileEntry, data_prefix
from trainer.protocol.checkpoint_shares import (
    ShareOrder,
    ShareRecord,
    life_key,
    order_key,
    record_key,
)
from trainer.protocol.wire import WireError, decode, encode

ORDERS_TRIED_MAX = 64
LOOK_FIRST_SECONDS = 0.1
LOOK_MOST_SECONDS = 1.0
SILENT_SECONDS = 30.0
"""A machine that uploads says so every five seconds."""
SILENT_AGAIN = 0.3
"""A machine that was silent the last time gets this part of it, until it is heard again."""
WAIT_SECONDS_MAX = 3_600.0


class ShareMissing(Exception):
    """A machine was not heard of; another try may find its share."""


class ShareLost(Exception):
    """A machine has said that it will never have this share."""


@dataclass
class _Awaited:
    machine: int
    heard_at: float
    lives: int = 0


class ShareGatherer:
    """For one attempt of `machines` machines, of which this one is number 0."""

    def __init__(
        self,
        fence: int,
        machines: int,
        silent_seconds: float = SILENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fence = fence
        self._machines = machines
        self._silent_seconds = silent_seconds
        self._clock = clock
        self._number = 0
        self._order: ShareOrder | None = None
        self._silent: set[int] = set()
        self.size_bytes = 0
        """Of the shares that were gathered last."""

    def ask(self, store: StorageRoot, step: int, save: int, leave_out: bool) -> None:
        """Tell the others which save is wanted, and where; a repetition is not told again.

        Raises StoreUnavailable.
        """
        order = ShareOrder(self._fence, step, save, leave_out)
        if order == self._order:
            return
        content = json.dumps(encode(order), sort_keys=True).encode()
        for _ in range(ORDERS_TRIED_MAX):
            # Without a gap, whatever the store answers: the others read one after the other.
            try:
                store.put_new(order_key(self._fence, self._number + 1), content)
            except KeyExists:
                # The answer to an earlier try was lost: whoever reads on finds the newest.
                self._number += 1
                continue
            self._number += 1
            self._order = order
            return
        raise StoreUnavailable("no free key for an order of this attempt")

    def collect(self, store: StorageRoot, is_abandoned: Callable[[], bool]) -> list[FileEntry]:
        """The files of all the others' shares of what was asked last, once all are in the store.

        Raises Abandoned, PlaceTaken, ShareMissing, ShareLost and StoreUnavailable.
        """
        order = self._order
        assert order is not None, "asked before"
        began = self._clock()
        awaited = [_Awaited(machine, began) for machine in range(1, self._machines)]
        entries: list[FileEntry] = []
        pause, is_first_look = LOOK_FIRST_SECONDS, True
        while True:
            present = set(store.list_keys(data_prefix(order.fence, order.step).rstrip("/")))
            for one in list(awaited):
                record = _record_of(store, order, one.machine, present)
                if record is not None:
                    self._silent.discard(one.machine)
                    entries += _files_of(record, order)
                    awaited.remove(one)
                else:
                    self._require_life(order, one, present, is_first_look)
            if not awaited:
                self.size_bytes = sum(entry.size_bytes for entry in entries)
                return entries
            if self._clock() > began + WAIT_SECONDS_MAX:
                raise ShareMissing(_late(order, awaited[0], WAIT_SECONDS_MAX))
            if is_abandoned():
                raise Abandoned
            time.sleep(pause)
            pause, is_first_look = min(pause * 1.3, LOOK_MOST_SECONDS), False

    def _require_life(
        self, order: ShareOrder, one: _Awaited, present: set[str], is_first_look: bool
    ) -> None:
        """Signs that are there at the first look may be old; those that come are not."""
        now, before = self._clock(), one.lives
        while life_key(order, one.machine, one.lives + 1) in present:
            one.lives += 1
        if one.lives > before and not is_first_look:
            one.heard_at = now
            self._silent.discard(one.machine)
        seconds = self._silent_seconds
        if one.machine in self._silent:
            seconds *= SILENT_AGAIN
        if now > one.heard_at + seconds:
            self._silent.add(one.machine)
            raise ShareMissing(_late(order, one, seconds))


def _record_of(
    store: StorageRoot, order: ShareOrder, machine: int, present: set[str]
) -> ShareRecord | None:
    """The record that suffices for the order. Raises ShareLost and PlaceTaken for one that says
    that there is none.
    """
    keys = [record_key(order, machine)]
    if order.leave_out:
        keys.append(record_key(order, machine, required_only=True))
    key = next((each for each in keys if each in present), None)
    if key is None:
        return None
    try:
        record = decode(ShareRecord, json.loads(store.get(key)))
    except (NoSuchKey, WireError, ValueError) as error:
        raise PlaceTaken(f"{key}: {error}") from error
    told = (record.fence, record.step, record.save, record.machine)
    if told != (order.fence, order.step, order.save, machine) or record.place_taken:
        raise PlaceTaken(key)
    if record.problem:
        raise ShareLost(f"node {machine} has no share of step {order.step:,}: {record.problem}")
    return record


def _files_of(record: ShareRecord, order: ShareOrder) -> list[FileEntry]:
    left_out = record.optional if order.leave_out else ()
    return [entry for entry in record.files if entry.name not in left_out]


def _late(order: ShareOrder, one: _Awaited, seconds: float) -> str:
    return (
        f"node {one.machine} did not upload its share of step {order.step:,}:"
        f" nothing was heard of it for {seconds:.0f} s"
    )
