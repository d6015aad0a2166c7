"""Interruption notices of EC2, from the SQS queues into which EventBridge puts them.

The queues of several regions are one feed: one that fails or hangs delays no other's notices. A
receipt carries its queue's region and address, because a message is deleted where it came from.
Sources: EC2's event types "EC2 Spot Instance Interruption Warning", "EC2 Capacity Reservation
Instance Interruption Warning" (it has its own time), "EC2 Instance Rebalance Recommendation" and
"EC2 Instance State-change Notification"; "AWS Health events Amazon EventBridge schema". An
instance is read from `detail`: the resource's ARN has another shape in each.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.describing import STATES
from app.ports.cloud_provider import ProviderError
from app.ports.interruption_feed import Announcement, AnnouncementKind

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

_BATCH: Final = 10
_BATCHES_MAX: Final = 5
_WAIT_SECONDS: Final = 1
_HIDDEN_SECONDS: Final = 15
NOTICE_SECONDS: Final = 120
"""EC2 writes a spot warning two minutes before it takes a machine."""
_KINDS: Final = {
    "EC2 Spot Instance Interruption Warning": AnnouncementKind.INTERRUPTION,
    "EC2 Capacity Reservation Instance Interruption Warning": AnnouncementKind.INTERRUPTION,
    "EC2 Instance Rebalance Recommendation": AnnouncementKind.REBALANCE,
    "EC2 Instance State-change Notification": AnnouncementKind.STATE_CHANGE,
}
_HEALTH: Final = ("aws.health", "AWS Health Event")
_INSTANCE: Final = "i-"


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


class InterruptionQueue:
    """One queue; safe for threads and for several readers."""

    def __init__(self, clients: AwsClients, url: str, region: str) -> None:
        self._clients = clients
        self.url = url
        self.region = region

    def receive(self) -> tuple[Announcement, ...]:
        """Up to fifty messages; what is none of ours is deleted. Raises ProviderError.

        Not where it cannot be deleted: the notices that were read beside it are urgent.
        """
        found: list[Announcement] = []
        for batch in range(_BATCHES_MAX):
            reply = self._clients.ask(
                "sqs",
                self.region,
                "receive_message",
                QueueUrl=self.url,
                MaxNumberOfMessages=_BATCH,
                WaitTimeSeconds=0 if batch else _WAIT_SECONDS,
                VisibilityTimeout=_HIDDEN_SECONDS,
            )
            messages = reply.get("Messages", [])
            read = [(one["ReceiptHandle"], read_message(one)) for one in messages]
            found += [announcement for _, told in read for announcement in told]
            try:
                self.forget(receipt for receipt, told in read if not told)
            except ProviderError as error:
                log.warning("messages of the queue %s stay in it: %s", self.url, error)
            if len(messages) < _BATCH:
                break
        return tuple(found)

    def forget(self, receipts: Iterable[str]) -> None:
        """Delete messages; one that is gone already is no error. Raises ProviderError."""
        listed = list(receipts)
        for start in range(0, len(listed), _BATCH):
            self._clients.ask(
                "sqs",
                self.region,
                "delete_message_batch",
                QueueUrl=self.url,
                Entries=[
                    {"Id": str(index), "ReceiptHandle": receipt}
                    for index, receipt in enumerate(listed[start : start + _BATCH])
                ],
            )


def read_message(message: Mapping[str, Any]) -> tuple[Announcement, ...]:
    """The announcements in an SQS message, none when it is about something else."""
    try:
        event, receipt = json.loads(message["Body"]), str(message["ReceiptHandle"])
        if (event["source"], event["detail-type"]) == _HEALTH:
            return _maintenance(event, receipt)
        kind = _KINDS.get(event["detail-type"]) if event["source"] == "aws.ec2" else None
        return () if kind is None else (_about_instance(kind, event, receipt),)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.warning("a message in the interruption queue cannot be read: %s", error)
        return ()


def _about_instance(kind: AnnouncementKind, event: Mapping[str, Any], receipt: str) -> Announcement:
    detail, at = event["detail"], _instant(event["time"])
    deadline = None
    if kind is AnnouncementKind.INTERRUPTION:
        told = detail.get("instance-termination-time")
        deadline = at + timedelta(seconds=NOTICE_SECONDS) if told is None else _instant(told)
    return Announcement(
        provider_instance_id=str(detail["instance-id"]),
        kind=kind,
        at=at,
        receipt=receipt,
        deadline=deadline,
        state=STATES.get(detail.get("state", "")),
        region=str(event.get("region", "")),
    )


def _maintenance(event: Mapping[str, Any], receipt: str) -> tuple[Announcement, ...]:
    """A reboot, retirement or other change that AWS plans for instances, days ahead.

    Told as a recommendation to leave: the machine goes on until then.
    """
    detail = event["detail"]
    planned = detail.get("eventTypeCategory") == "scheduledChange"
    if detail.get("service") != "EC2" or not planned or detail.get("statusCode") == "closed":
        return ()
    named = [str(one["entityValue"]) for one in detail.get("affectedEntities", [])]
    at = _instant(event["time"])
    return tuple(
        Announcement(one, AnnouncementKind.REBALANCE, at, receipt)
        for one in dict.fromkeys(named)
        if one.startswith(_INSTANCE)
    )


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
