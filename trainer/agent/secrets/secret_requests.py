"""What the services of both clouds have in common: a request, why it fails, and a value's form.

Not here: sending it (`cloud_secrets`), or how each service is asked (`aws_secrets`,
`google_secrets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VALUE_BYTES_MAX = 64 << 10
"""As of a project's own secrets. AWS and Google store no larger ones (Secrets Manager quotas)."""
MESSAGE_MAX = 200


class SecretUnreadable(Exception):
    """A secret of a cloud cannot be read; the text says which and why, and holds no value."""


class SecretDelayed(SecretUnreadable):
    """The service did not answer, or not now: worth another try."""


@dataclass(frozen=True)
class SecretRequest:
    """One call. headers: with what signs it."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = b""


def checked_value(value: str | bytes, what: str) -> str:
    """The value as a variable or file has it. what: the secret, for people. Raises
    SecretUnreadable for one that is binary, empty or too large.
    """
    try:
        content = value.encode() if isinstance(value, str) else value
        text = content.decode()
    except UnicodeError:
        content, text = b"\0", ""
    if b"\0" in content:
        raise binary(what)
    if not content:
        raise SecretUnreadable(f"{what} is empty")
    if len(content) > VALUE_BYTES_MAX:
        raise SecretUnreadable(
            f"{what} has {len(content):,} bytes; at most {VALUE_BYTES_MAX:,}. Store what is larger "
            "in a bucket"
        )
    return text


def binary(what: str) -> SecretUnreadable:
    """The refusal of a value that is no text."""
    return SecretUnreadable(
        f"{what} is binary, and no variable holds that: store it as text, for example as Base64, "
        "and let the job decode it"
    )


def unexpected(what: str, status: int, code: str, message: object) -> SecretUnreadable:
    """Of an answer that no rule names: another try may help for an error of the service's own."""
    said = f"{what} cannot be read: its service answered with {status} {code}".rstrip()
    more = f": {str(message)[:MESSAGE_MAX]}" if message else ""
    kind = SecretDelayed if status >= 500 or status == 429 else SecretUnreadable
    return kind(said + more)
