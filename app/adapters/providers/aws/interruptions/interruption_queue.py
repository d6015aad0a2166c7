"""One SQS queue into which EventBridge puts what happens to a region's instances.

Not here: what a message says (`interruption_events`), queues of several regions
(`interruption_queues`), or what an announcement does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.interruptions.interruption_events import read_message
from app.ports.cloud_provider import ProviderError
from app.ports.interruption_feed import Announcement

log = logging.getLogger(__name__)

_BATCH: Final = 10
_BATCHES_MAX: Final = 5
_WAIT_SECONDS: Final = 1
_HIDDEN_SECONDS: Final = 15


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
