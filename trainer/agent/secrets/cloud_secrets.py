"""Reads the secrets that a job names in a cloud's own service, with what the control plane issued.

The credentials are in this process's memory for these calls, and nowhere else; the values go where
the project's own go (`attempt_secrets`). Nothing asks the machine's metadata service: what the
machine itself may do does not count. Not here: how each service is asked (`aws_secrets`,
`google_secrets`).
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from trainer.agent.machine.boot_clock import boot_seconds
from trainer.agent.secrets import aws_secrets, google_secrets
from trainer.agent.secrets.secret_requests import SecretDelayed, SecretRequest, SecretUnreadable
from trainer.protocol.run_config import AWS_SECRETS, GOOGLE_SECRETS, CloudSecrets

SOCKET_SECONDS = 5.0
CALL_SECONDS = 10.0
PAUSES_SECONDS = (0.5, 1.5, 4.0)
"""Before each further try."""
ALL_SECONDS = 120.0
"""For every secret of a job: less than is left of a credential."""
ANSWER_BYTES_MAX = 1 << 20
"""A value of 64 KiB, of which JSON may write each character as six bytes, and what is around it."""
_PIECE_BYTES = 1 << 16
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class CloudSecretReader:
    """now: seconds of a clock that no correction of the time of day moves. wait: sleeps so long."""

    def __init__(
        self,
        now: Callable[[], float] = boot_seconds,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._now = now
        self._wait = wait

    def read(self, asked: Iterable[CloudSecrets]) -> dict[str, str]:
        """Values by the names in the job. Raises SecretUnreadable, for the first that fails."""
        deadline = self._now() + ALL_SECONDS
        return {
            name: self._value(secrets, there, name, deadline)
            for secrets in asked
            for name, there in secrets.names.items()
        }

    def _value(self, secrets: CloudSecrets, there: str, name: str, deadline: float) -> str:
        what = f"{name}: the secret {there} of {_service(secrets)}"
        for pause in (*PAUSES_SECONDS, None):
            try:
                return self._ask(secrets, there, what)
            except SecretDelayed:
                if pause is None or self._now() + pause > deadline:
                    raise
                self._wait(pause)
        raise AssertionError("unreachable")

    def _ask(self, secrets: CloudSecrets, there: str, what: str) -> str:
        if secrets.service == AWS_SECRETS:
            request = aws_secrets.secret_request(secrets, there, datetime.now(UTC))
            read = aws_secrets.secret_value
        elif secrets.service == GOOGLE_SECRETS:
            request, read = (
                google_secrets.secret_request(secrets, there),
                google_secrets.secret_value,
            )
        else:
            raise SecretUnreadable(f"{what} cannot be read by this agent; start a newer one")
        status, document = self._call(request, what)
        return read(status, document, what)

    def _call(self, request: SecretRequest, what: str) -> tuple[int, Any]:
        """Status, and the answer's document; None where it has none. Follows no redirect."""
        address = urlsplit(request.url)
        host, began = address.hostname or "", self._now()
        if address.scheme != "https" and host not in _LOOPBACK:
            raise SecretUnreadable(f"{what} is read by https alone, not at {address.netloc}")
        secure = address.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(host, address.port, timeout=SOCKET_SECONDS)
        try:
            connection.request(
                request.method, address.path, request.body or None, dict(request.headers)
            )
            response = connection.getresponse()
            content = b""
            while piece := response.read1(_PIECE_BYTES):
                content += piece
                if len(content) > ANSWER_BYTES_MAX:
                    raise SecretUnreadable(f"{what}: the answer of its service is too long")
                if self._now() > began + CALL_SECONDS:
                    raise TimeoutError(f"no whole answer within {CALL_SECONDS:.0f} s")
        except (OSError, http.client.HTTPException) as error:
            told = str(error) or type(error).__name__
            raise SecretDelayed(f"{what} cannot be read: {address.netloc}: {told}") from error
        finally:
            connection.close()
        try:
            return response.status, json.loads(content)
        except ValueError:
            return response.status, None


def _service(secrets: CloudSecrets) -> str:
    if secrets.service == AWS_SECRETS:
        return f"AWS Secrets Manager in {secrets.place}"
    return f"Google Secret Manager in the project {secrets.place}"
