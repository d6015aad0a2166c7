"""What takes a notification to a channel: a webhook, or people behind a mail server."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from app.domain.notifications.channel_targets import Target
from app.domain.notifications.message import NotificationText


class MessageNotSent(Exception):
    """It did not arrive, as far as we know; the message says why in a sentence without secrets."""


class MessageSender(Protocol):
    """Thread-safe; every call ends within ten seconds."""

    def send(self, target: Target, message: NotificationText, delivery_id: UUID) -> str:
        """Send it once; what the receiver answered, in a few words. Raises MessageNotSent."""
        ...
