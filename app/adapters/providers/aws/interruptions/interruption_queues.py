"""The queues of several regions as one feed: one that fails or hangs keeps no other's notices.

A receipt carries its queue's region and address, for a message is forgotten where it came from.
Not here: one queue (`interruption_queue`).
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Final, TypeVar

from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.interruptions.interruption_queue import InterruptionQueue
from app.ports.cloud_provider import ProviderError
from app.ports.interruption_feed import Announcement

log = logging.getLogger(__name__)
T = TypeVar("T")

QUEUES_MAX: Final = 32
PATIENCE_SECONDS: Final = 5.0
"""How long the other queues wait for one of them, whose messages then come with the next turn."""

_NAME: Final = r"[a-z]{2}(?:-[a-z]+)+-\d"
_NAMED: Final = re.compile(rf"({_NAME})=(.+)")
# https://sqs.us-east-1.amazonaws.com/…, an endpoint in a VPC, and the address of older queues.
_IN_ADDRESS: Final = re.compile(rf"https?://(?:[^/]*\.)?(?:sqs\.({_NAME})|({_NAME})\.queue)\.")
_SEPARATOR: Final = " "


def queue_place(entry: str, otherwise: str) -> tuple[str, str]:
    """(region, address) of `REGION=URL`, or of a URL whose region stands in it, or `otherwise`."""
    named = _NAMED.fullmatch(entry)
    if named is not None:
        return named.group(1), named.group(2)
    found = _IN_ADDRESS.match(entry)
    return (otherwise if found is None else found.group(1) or found.group(2)), entry


class InterruptionQueues:
    """All queues of the deployment; safe for threads and for several readers."""

    def __init__(self, clients: AwsClients, entries: Sequence[str], otherwise: str) -> None:
        """entries: as in the settings. otherwise: the region where an address does not say."""
        places = [queue_place(entry, otherwise) for entry in entries[:QUEUES_MAX]]
        self._queues = {
            f"{region}={url}": InterruptionQueue(clients, url, region) for region, url in places
        }
        self._lock = threading.Lock()
        self._asked: dict[str, Future[tuple[Announcement, ...]]] = {}
        self._forgetting: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, len(self._queues)), thread_name_prefix="interruption-queue"
        )
        # Their own, so that a queue that is read slowly is not behind one that forgets slowly.
        self._forgetters = ThreadPoolExecutor(
            max_workers=max(1, len(self._queues)), thread_name_prefix="interruption-forget"
        )

    def __bool__(self) -> bool:
        return bool(self._queues)

    def receive(self) -> tuple[Announcement, ...]:
        """New messages of every queue that answers; raises ProviderError where none does."""
        with self._lock:
            for name, queue in self._queues.items():
                if name not in self._asked:
                    self._asked[name] = self._pool.submit(queue.receive)
            asked = dict(self._asked)
        found: list[Announcement] = []
        failed: list[ProviderError] = []
        for name, told in self._answers(asked, self._asked, "read"):
            if isinstance(told, ProviderError):
                failed.append(told)
            else:
                found += [replace(one, receipt=f"{name}{_SEPARATOR}{one.receipt}") for one in told]
        if failed and len(failed) == len(asked):
            raise failed[0]
        return tuple(found)

    def forget(self, receipts: Iterable[str]) -> None:
        """Delete messages, each in its own queue. Raises the first ProviderError at the end.

        A queue that is slow goes on while the others are read: what it keeps comes again.
        """
        by_queue: dict[str, list[str]] = {}
        for receipt in receipts:
            name, _, handle = receipt.partition(_SEPARATOR)
            by_queue.setdefault(name, []).append(handle)
        with self._lock:
            for name in by_queue.keys() & self._queues.keys():
                if name not in self._forgetting:
                    queue, handles = self._queues[name], by_queue[name]
                    self._forgetting[name] = self._forgetters.submit(queue.forget, handles)
            begun = dict(self._forgetting)
        answers = self._answers(begun, self._forgetting, "cleared")
        failed = [told for _, told in answers if isinstance(told, ProviderError)]
        if failed:
            raise failed[0]

    def _answers(
        self, asked: Mapping[str, Future[T]], under_way: dict[str, Future[T]], done: str
    ) -> Iterator[tuple[str, T | ProviderError]]:
        """What each queue answered in time; one that did not stays under way.

        With a single queue there is none that would have to wait for it.
        """
        wait(asked.values(), timeout=None if len(self._queues) == 1 else PATIENCE_SECONDS)
        for name, answer in asked.items():
            if not answer.done():
                log.warning("the queue %s is not %s yet", name, done)
                continue
            with self._lock:
                if under_way.get(name) is answer:
                    del under_way[name]
            try:
                yield name, answer.result()
            except ProviderError as error:
                log.warning("the queue %s could not be %s: %s", name, done, error)
                yield name, error
