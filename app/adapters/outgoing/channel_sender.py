"""Sends a notification the way its channel is spoken to: chat, signed webhook or mail."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import format_datetime
from functools import cached_property
from uuid import UUID

import orjson

from app.adapters.connection_variables import ConnectionVariables
from app.adapters.outgoing.mail_client import MailClient
from app.adapters.outgoing.pinned_connections import PinnedConnections
from app.adapters.outgoing.webhook_client import WebhookClient
from app.adapters.system_clock import SystemClock
from app.domain.notifications.channel_targets import (
    MailTarget,
    Target,
    WebTarget,
    read_web_address,
)
from app.domain.notifications.message import (
    NotificationText,
    mail_subject,
    mail_text,
    signed_headers,
    slack_body,
    webhook_body,
)
from app.ports.clock import Clock


class ChannelSender:
    """Implements `app.ports.people.message_sender.MessageSender`."""

    def __init__(
        self,
        address: str,
        connections: PinnedConnections,
        clock: Clock,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        """address: of Lowtide, as people reach it. trust: which certificates are good."""
        self._address = address
        self._connections = connections
        self._clock = clock
        self._trust = trust

    def send(self, target: Target, message: NotificationText, delivery_id: UUID) -> str:
        """Send it once; what the receiver answered, in a few words. Raises MessageNotSent."""
        if isinstance(target, MailTarget):
            return self._send_mail(target, message, delivery_id)
        return self._post(target, message, delivery_id)

    def _post(self, target: WebTarget, message: NotificationText, delivery_id: UUID) -> str:
        headers = {"Content-Type": "application/json"}
        if target.signing_key is None:
            body = orjson.dumps(slack_body(message, self._address))
        else:
            body = orjson.dumps(webhook_body(message, delivery_id, self._address))
            now = self._clock.now()
            headers |= signed_headers(target.signing_key, delivery_id, now, body)
        answer = self._webhooks.post(read_web_address(target.url), body, headers)
        return str(answer.status)

    def _send_mail(self, target: MailTarget, message: NotificationText, delivery_id: UUID) -> str:
        mail = EmailMessage()
        mail["Subject"] = mail_subject(message)
        mail["From"] = target.sender
        mail["To"] = ", ".join(target.recipients)
        mail["Date"] = format_datetime(self._clock.now())
        # The same with every try, so that a mailbox may drop a second copy.
        mail["Message-ID"] = f"<{delivery_id}@{target.sender.partition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(mail_text(message, self._address))
        refused = self._mails.send(target, mail)
        return f"accepted, but not for {refused}" if refused else "accepted"

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Reading what the system trusts takes a while, and many deployments send nothing."""
        return self._trust()

    @cached_property
    def _webhooks(self) -> WebhookClient:
        return WebhookClient(self._connections, self._tls)

    @cached_property
    def _mails(self) -> MailClient:
        return MailClient(self._connections, self._tls)


def open_sender(settings: ConnectionVariables, address: str) -> ChannelSender:
    """The sender of a program; it calls nobody until there is something to send. address: of
    Lowtide, as people reach it.
    """
    return ChannelSender(address, PinnedConnections(settings.notification_networks), SystemClock())
