"""Messages that EventBridge puts into our SQS queue about EC2 instances.

Source: EC2's event types "EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance
Recommendation" and "EC2 Instance State-change Notification". The instance is read from
`detail.instance-id`: the resource's ARN has another shape in each. Not here: what a message does.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.adapters.providers.aws.clients import AwsClients
from app.adapters.providers.aws.describing import STATES
from app.ports.interruption_feed import Announcement, AnnouncementKind

log = logging.getLogger(__name__)

NOTICE_SECONDS: Final = 120
"""EC2 writes the warning two minutes before it takes a machine."""

_BATCH: Final = 10
_BATCHES_MAX: Final = 5
_WAIT_SECONDS: Final = 1
_HIDDEN_SECONDS: Final = 15
_KINDS: Final = {
    "EC2 Spot Instance Interruption Warning": AnnouncementKind.INTERRUPTION,
    "EC2 Instance Rebalance Recommendation": AnnouncementKind.REBALANCE,
    "EC2 Instance State-change Notification": AnnouncementKind.STATE_CHANGE,
}
_REGION: Final = re.compile(r"https://sqs\.([a-z0-9-]+)\.amazonaws\.com")


class InterruptionQueue:
    """One queue; safe for threads and for several readers."""

    def __init__(self, clients: AwsClients, queue_url: str, region: str) -> None:
        """region: where the queue is, when its address does not say."""
        self._clients = clients
        self._url = queue_url
        found = _REGION.match(queue_url)
        self._region = region if found is None else found.group(1)

    def receive(self) -> tuple[Announcement, ...]:
        """Up to fifty messages; what is none of ours is deleted. Raises ProviderError."""
        found: list[Announcement] = []
        for batch in range(_BATCHES_MAX):
            reply = self._clients.ask(
                "sqs",
                self._region,
                "receive_message",
                QueueUrl=self._url,
                MaxNumberOfMessages=_BATCH,
                WaitTimeSeconds=0 if batch else _WAIT_SECONDS,
                VisibilityTimeout=_HIDDEN_SECONDS,
            )
            messages = reply.get("Messages", [])
            read = [(one["ReceiptHandle"], read_message(one)) for one in messages]
            found += [announcement for _, announcement in read if announcement is not None]
            self.forget(receipt for receipt, announcement in read if announcement is None)
            if len(messages) < _BATCH:
                break
        return tuple(found)

    def forget(self, receipts: Iterable[str]) -> None:
        """Delete messages; one that is gone already is no error. Raises ProviderError."""
        listed = list(receipts)
        for start in range(0, len(listed), _BATCH):
            self._clients.ask(
                "sqs",
                self._region,
                "delete_message_batch",
                QueueUrl=self._url,
                Entries=[
                    {"Id": str(index), "ReceiptHandle": receipt}
                    for index, receipt in enumerate(listed[start : start + _BATCH])
                ],
            )


def read_message(message: dict[str, Any]) -> Announcement | None:
    """The announcement in an SQS message, None when it is about something else."""
    try:
        event = json.loads(message["Body"])
        kind = _KINDS.get(event["detail-type"]) if event["source"] == "aws.ec2" else None
        if kind is None:
            return None
        detail, at = event["detail"], datetime.fromisoformat(event["time"]).astimezone(UTC)
        warned = kind is AnnouncementKind.INTERRUPTION
        return Announcement(
            provider_instance_id=str(detail["instance-id"]),
            kind=kind,
            at=at,
            receipt=message["ReceiptHandle"],
            deadline=at + timedelta(seconds=NOTICE_SECONDS) if warned else None,
            state=STATES.get(detail.get("state", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.warning("a message in the interruption queue cannot be read: %s", error)
        return None
