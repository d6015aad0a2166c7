"""Where a channel leads: the address of a webhook, or a mail server and people; and what is shown.

The grammar of addresses is narrow, so that whatever checks one and whatever calls it read the same
host. Not here: which IP addresses may be called (`outgoing_addresses`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID

from app.domain.units.errors import InvalidValue

ADDRESS_MAX: Final = 2_000
RECIPIENTS_MAX: Final = 20
_TEXT_MAX: Final = 254
_PASSWORD_MAX: Final = 1_000
_PORTS: Final = range(1, 65_536)
_SHOWN: Final = "…"

_WEB: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}))"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<target>[/?][!-~]*)?",
    re.ASCII,
)
_HOST: Final = re.compile(r"\[?[A-Za-z0-9:][A-Za-z0-9.:-]{0,252}\]?", re.ASCII)
_MAIL: Final = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?",
    re.ASCII,
)
_HOW_WEB: Final = "write an address like https://hooks.example.com/services/T0/B0/key"


class ChannelKind(StrEnum):
    """How a channel is spoken to. Values are stored; never reuse or rename one."""

    SLACK = "slack"
    """A webhook that takes `{"text": …}`: Slack, Mattermost, Rocket.Chat, Discord's `/slack`."""
    WEBHOOK = "webhook"
    """A webhook that takes our JSON, signed."""
    SMTP = "smtp"


WEBHOOKS: Final = frozenset({ChannelKind.SLACK, ChannelKind.WEBHOOK})


class MailSecurity(StrEnum):
    """How the way to a mail server is encrypted."""

    TLS = "tls"
    """From the first byte, as on port 465."""
    STARTTLS = "starttls"
    """Before anything is said that matters, as on port 587."""
    NONE = "none"
    """Not at all: on loopback alone."""


@dataclass(frozen=True, slots=True)
class WebTarget:
    """A webhook. url, signing_key: secrets. signing_key: None for a Slack-compatible one."""

    url: str = field(repr=False)
    signing_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MailTarget:
    """A mail server and who is written to. username: None where it asks for no sign-in."""

    host: str
    port: int
    security: MailSecurity
    sender: str
    recipients: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)


Target = WebTarget | MailTarget


@dataclass(frozen=True, slots=True)
class WebAddress:
    """The parts of a webhook's address. host: a name, or an IP address without brackets. target:
    path and query, which begin with a slash.
    """

    host: str
    port: int
    encrypted: bool
    target: str = field(repr=False)


def read_web_address(written: str) -> WebAddress:
    """The parts of an address. Raises InvalidValue, which does not repeat what may be a secret."""
    found = _WEB.fullmatch(written) if len(written) <= ADDRESS_MAX else None
    if found is None:
        raise InvalidValue(
            f"url: is not an address that can be called: {_HOW_WEB}, without a name and password "
            "before the host, in at most 2,000 characters of ASCII (a host in its xn-- form)",
            "url",
        )
    encrypted = found["scheme"] == "https"
    port = int(found["port"] or (443 if encrypted else 80))
    if port not in _PORTS:
        raise InvalidValue("url: has no port of 1 to 65535", "url")
    target = found["target"] or "/"
    host = found["host"].strip("[]").rstrip(".").lower()
    return WebAddress(host, port, encrypted, target if target[0] == "/" else f"/{target}")


def mail_target(
    host: str,
    port: int | None,
    security: MailSecurity,
    sender: str,
    recipients: Sequence[str],
    username: str | None,
    password: str | None,
) -> MailTarget:
    """A mail target from what a person wrote; port: None for the usual one.

    Raises InvalidValue, which names the field.
    """
    if _HOST.fullmatch(host) is None:
        raise InvalidValue(
            f"host: {host[:80]!r} is no name of a mail server; write one like smtp.example.com",
            "host",
        )
    usual = {MailSecurity.TLS: 465, MailSecurity.STARTTLS: 587, MailSecurity.NONE: 25}
    port = usual[security] if port is None else port
    if port not in _PORTS:
        raise InvalidValue(f"port: {port} is none; use 1 to 65535, or leave it out", "port")
    if not 1 <= len(recipients) <= RECIPIENTS_MAX:
        raise InvalidValue(f"to: name 1 to {RECIPIENTS_MAX} mail addresses", "to")
    if (username is None) != (password is None):
        raise InvalidValue(
            "username: give it together with the password, or neither for a server that asks for "
            "no sign-in",
            "username",
        )
    for name, value, longest in (
        ("username", username, _TEXT_MAX),
        ("password", password, _PASSWORD_MAX),
    ):
        if value is not None and not (1 <= len(value) <= longest and _is_plain(value)):
            raise InvalidValue(
                f"{name}: must have 1 to {longest:,} characters and no line breaks", name
            )
    return MailTarget(
        host.strip("[]").rstrip(".").lower(),
        port,
        security,
        _mail_address(sender, "from"),
        tuple(_mail_address(one, "to") for one in recipients),
        username,
        password,
    )


def shown_destination(target: Target) -> str:
    """Where a target leads, for everyone who reads the project: nothing that opens it."""
    if isinstance(target, MailTarget):
        return f"{', '.join(target.recipients)} by {target.host}"
    address = read_web_address(target.url)
    scheme = "https" if address.encrypted else "http"
    host = f"[{address.host}]" if ":" in address.host else address.host
    usual = 443 if address.encrypted else 80
    port = "" if address.port == usual else f":{address.port}"
    return f"{scheme}://{host}{port}/{_SHOWN}"


def channel_context(project_id: UUID, channel_id: UUID, version: int) -> tuple[str, ...]:
    """What a target is encrypted for: it opens nowhere else."""
    return ("notification channel", str(project_id), str(channel_id), str(version))


def target_document(target: Target) -> dict[str, object]:
    """A target as JSON, secrets included: to be encrypted."""
    return asdict(target)


def read_target(kind: ChannelKind, document: Mapping[str, object]) -> Target:
    """The target of its document. Raises TypeError and ValueError for one of another form."""
    if kind in WEBHOOKS:
        key = document["signing_key"]
        return WebTarget(str(document["url"]), None if key is None else str(key))
    recipients, port = document["recipients"], document["port"]
    if not isinstance(recipients, list) or not isinstance(port, int):
        raise TypeError("a mail target of another form")
    username, password = document["username"], document["password"]
    return MailTarget(
        str(document["host"]),
        port,
        MailSecurity(str(document["security"])),
        str(document["sender"]),
        tuple(map(str, recipients)),
        None if username is None else str(username),
        None if password is None else str(password),
    )


def _mail_address(written: str, name: str) -> str:
    if len(written) > _TEXT_MAX or _MAIL.fullmatch(written) is None:
        raise InvalidValue(
            f"{name}: {written[:80]!r} is no mail address; write it like ops@example.com, without "
            "a person's name",
            name,
        )
    return written


def _is_plain(text: str) -> bool:
    return text.isprintable()
