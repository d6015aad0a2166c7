"""Send what is due: at least once, under the same id, eight times within 24 hours.

One delivery of a channel is sent at a time, and a channel that failed rests, so that one that hangs
takes one thread for ten seconds; a worker has threads for these calls alone. Not here: what is
written to be sent (`app.orchestration.frame.tell_channels`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import orjson

from app.domain.notifications.channel_targets import Target, channel_context, read_target
from app.domain.notifications.delivery_rules import (
    CHANNEL_REMOVED,
    KEPT_FOR,
    REST,
    WINDOW,
    DeliveryState,
    wait_after,
)
from app.domain.notifications.message import digest_text, read_text
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.tell_channels import SENDER, deliver
from app.orchestration.secrets.manage_secrets import encryption_of
from app.ports.people.message_sender import MessageNotSent
from app.ports.value_encryption import KeyUnavailable, SealedValueChanged
from app.storage.notifications.channel_repository import StoredChannel
from app.storage.notifications.delivery_repository import DueDelivery
from app.storage.notifications.outbox import ToldChannel
from app.storage.unit_of_work import UnitOfWork

_LEASE: Final = timedelta(seconds=45)
"""Longer than a call: then another worker may send it again."""
_DIGESTS_AT_ONCE: Final = 20


@dataclass(frozen=True)
class DeliveryToSend:
    """A delivery, and where its channel leads."""

    delivery_id: UUID
    due: DueDelivery
    stored: StoredChannel = field(repr=False)


@dataclass(frozen=True)
class SendOutcome:
    """What came of one try."""

    arrived: bool
    answer: str


class SendNotifications(RuntimeController):
    """The controller. Its select phase runs once at a time, which the hourly count rests on."""

    name = SENDER
    # A run lasts as long as its slowest call; a worker makes several at a time.
    limit = 4

    def select(self, uow: UnitOfWork, limit: int) -> list[DeliveryToSend]:
        """Due deliveries, leased; and digests of what was too much, written to be sent next."""
        now = uow.now
        uow.deliveries.admit(now)
        self._digest(uow)
        uow.deliveries.remove_old(now - KEPT_FOR)
        found = []
        for due in uow.deliveries.lease_due(now, now + _LEASE, limit):
            stored = uow.channels.stored(due.channel_id)
            if stored is None:
                # Written while the channel was being removed.
                uow.deliveries.end_of_channel(due.channel_id, now, CHANNEL_REMOVED)
            else:
                found.append(DeliveryToSend(due.id, due, stored))
        return found

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the next delivery is to be looked at."""
        return uow.deliveries.next_due_at()

    def effect(self, work: DeliveryToSend) -> SendOutcome:
        """Call the channel once."""
        sender = self._runtime.sender
        assert sender is not None, "only the worker sends"
        try:
            target, text = self._opened(work.stored), read_text(work.due.message)
        except (KeyUnavailable, SealedValueChanged) as error:
            return SendOutcome(False, error.message)
        except (KeyError, TypeError, ValueError):
            # It counts as a try, or it would be looked at for ever.
            return SendOutcome(False, "This release cannot read it: another one has written it.")
        try:
            return SendOutcome(True, sender.send(target, text, work.delivery_id))
        except MessageNotSent as error:
            return SendOutcome(False, str(error))

    def _opened(self, stored: StoredChannel) -> Target:
        """Where a channel leads. Raises KeyUnavailable, SealedValueChanged, and what `read_target`
        raises.
        """
        row = stored.row
        context = channel_context(row.project_id, row.id, row.version)
        content = encryption_of(self._runtime).open(stored.sealed, context)
        return read_target(row.kind, orjson.loads(content))

    def apply(self, uow: UnitOfWork, work: DeliveryToSend, result: SendOutcome) -> None:
        """Write down what came of it, and when it is tried again."""
        now, due = uow.now, work.due
        if result.arrived:
            state, next_try_at = DeliveryState.DELIVERED, None
        else:
            wait = wait_after(due.tries + 1)
            state = DeliveryState.FAILED if wait is None else DeliveryState.WAITING
            next_try_at = None if wait is None else now + wait
        # The channel before its deliveries, as for its removal.
        uow.channels.rest(due.channel_id, None if result.arrived else now + REST)
        uow.deliveries.record_try(due.id, state, now, result.answer, next_try_at)
        # Others of this channel may have waited for this one.
        uow.notify_after_commit(self.name)

    def _digest(self, uow: UnitOfWork) -> None:
        """One message for each group that was held for an hour."""
        now, entropy = uow.now, self._runtime.entropy
        for group in uow.deliveries.held_groups(now - WINDOW, _DIGESTS_AT_ONCE):
            held = [read_text(one) for one in uow.deliveries.digest(group, now)]
            project = uow.rules.of(group.project_id).project
            told = ToldChannel(group.source_id, group.channel_id, group.project_id, project)
            occasion = f"digest/{group.source_id}/{now.isoformat()}"
            text = digest_text(held, project, now)
            deliver(uow, entropy, told, text, occasion, now, admitted=True)
