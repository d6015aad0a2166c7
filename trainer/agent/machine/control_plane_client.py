"""The agent's calls to the control plane, over one kept-alive connection per thread.

Lives here: HTTP, time limits, and what each status means. Not here: when to call and what to do
about a refusal (`report_loop`, `supervisor`).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

from trainer.protocol.agent_report import AgentReport, Registration
from trainer.protocol.directive import RegistrationReply, ReportReply
from trainer.protocol.run_config import SecretDelivery
from trainer.protocol.wire import WireError, decode, encode

Shape = TypeVar("Shape")
TIMEOUT_SECONDS = 10.0
ANSWER_BYTES_MAX = 8 << 20
WORKDIR_BYTES_MAX = 4 << 30
_PIECE_BYTES = 1 << 20


class ControlPlaneUnreachable(Exception):
    """No usable answer: connection, time limit, server error. Worth another try."""


class TooEarly(Exception):
    """425: the launch, or the row of a registered machine, is not there (yet); try again."""


class RegistrationRejected(Exception):
    """401 or 409 at registration: this machine will not get a credential."""


class CredentialRevoked(Exception):
    """401: the machine is being given back."""


class NotAMember(Exception):
    """403: the machine does not belong to the attempt it reported."""


class ProtocolRefused(Exception):
    """426: this agent's protocol version is not spoken any more, or not yet."""


class SecretsNotGiven(Exception):
    """403 or 409: this attempt is given no secrets; the message says why, for a person."""


class SecretsDelayed(SecretsNotGiven):
    """503: a cloud gave no credential for this attempt's secrets; worth another try."""


class WorkdirInvalid(Exception):
    """The downloaded working folder is not what its digest says."""


class ControlPlaneClient:
    """Thread-safe. `credential` is set once registered and never leaves this process."""

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._local = threading.local()
        self.credential: str | None = None

    def register(self, registration: Registration) -> RegistrationReply:
        """Raises TooEarly, RegistrationRejected, ProtocolRefused, ControlPlaneUnreachable."""
        status, body = self._call("POST", "/agent/v1/register", _json(encode(registration)))
        if status == 425:
            raise TooEarly
        if status in (401, 409):
            raise RegistrationRejected(f"registration refused with {status}: {_said(body)}")
        return _decoded(RegistrationReply, self._checked(status, body))

    def report(self, report: AgentReport) -> ReportReply:
        """Raises CredentialRevoked, NotAMember, TooEarly, ProtocolRefused,
        ControlPlaneUnreachable.
        """
        status, body = self._call("POST", "/agent/v1/reports", _json(encode(report)))
        if status == 425:
            raise TooEarly
        if status == 401:
            raise CredentialRevoked
        if status == 403:
            raise NotAMember
        return _decoded(ReportReply, self._checked(status, body))

    def append_log(
        self,
        stream: str,
        byte_offset: int,
        content: bytes,
        gap_bytes: int = 0,
        fills_gap: bool = False,
    ) -> tuple[bool, int]:
        """(taken, the offset the next bytes go to). Raises as `report` does.

        gap_bytes: leave a place of so many bytes before `content`. fills_gap: `content` belongs to
        the beginning of such a place. Only for a control plane that said that it knows gaps.
        """
        path = f"/agent/v1/logs?stream={quote(stream, safe='')}&byte_offset={byte_offset}"
        path += f"&gap_bytes={gap_bytes}" if gap_bytes else ""
        path += "&fills_gap=true" if fills_gap else ""
        status, body = self._call("POST", path, content, "application/octet-stream")
        if status == 401:
            raise CredentialRevoked
        if status != 409:
            self._checked(status, body)
        try:
            return status != 409, int(json.loads(body)["next_offset"])
        except (ValueError, KeyError, TypeError):
            raise ControlPlaneUnreachable("the answer to a log has no next_offset") from None

    def fetch_secrets(self, fence: int) -> SecretDelivery:
        """The job's secrets by name, and those to read from clouds. Raises SecretsNotGiven,
        SecretsDelayed, CredentialRevoked, ProtocolRefused, ControlPlaneUnreachable.
        """
        status, body = self._call("GET", f"/agent/v1/attempts/{fence}/secrets", b"")
        if status == 401:
            raise CredentialRevoked
        if status in (403, 409):
            raise SecretsNotGiven(_detail(body))
        if status == 503:
            raise SecretsDelayed(_detail(body))
        return _decoded(SecretDelivery, self._checked(status, body))

    def fetch_workdir(self, digest: str, target: Path) -> None:
        """Download `sha256:<hex>` to a file; raises WorkdirInvalid, ControlPlaneUnreachable."""
        connection = self._connect()
        hashed, size = hashlib.sha256(), 0
        try:
            path = f"{self._path}/agent/v1/workdirs/{quote(digest, safe=':')}"
            connection.request("GET", path, headers=self._headers(None))
            response = connection.getresponse()
            if response.status != 200:
                raise ControlPlaneUnreachable(f"working folder: status {response.status}")
            with target.open("wb") as file:
                while piece := response.read(_PIECE_BYTES):
                    size += len(piece)
                    if size > WORKDIR_BYTES_MAX:
                        raise WorkdirInvalid("the working folder is larger than 4 GiB")
                    hashed.update(piece)
                    file.write(piece)
        except (OSError, http.client.HTTPException) as error:
            raise ControlPlaneUnreachable(f"working folder: {error}") from error
        finally:
            connection.close()
        if digest != f"sha256:{hashed.hexdigest()}":
            raise WorkdirInvalid(f"the working folder does not match its digest {digest}")

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            connection.close()

    def _call(
        self, method: str, path: str, body: bytes, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """One request; every one of ours may be repeated, so a stale connection is tried anew."""
        for attempt in (0, 1):
            kept = getattr(self._local, "connection", None)
            connection = kept or self._connect()
            self._local.connection = connection
            try:
                connection.request(method, self._path + path, body, self._headers(content_type))
                response = connection.getresponse()
                content = response.read(ANSWER_BYTES_MAX + 1)
                if len(content) > ANSWER_BYTES_MAX:
                    raise ControlPlaneUnreachable(f"{path}: the answer is too long")
                return response.status, content
            except (OSError, http.client.HTTPException) as error:
                self.close()
                timed_out = isinstance(error, TimeoutError)
                if kept is None or attempt == 1 or timed_out:
                    raise ControlPlaneUnreachable(f"{method} {path}: {error!r}") from error
        raise AssertionError("unreachable")

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=self._timeout_seconds)

    def _headers(self, content_type: str | None) -> dict[str, str]:
        headers = {"Content-Type": content_type} if content_type else {}
        if self.credential is not None:
            headers["Authorization"] = f"Bearer {self.credential}"
        return headers

    def _checked(self, status: int, body: bytes) -> bytes:
        if status == 426:
            raise ProtocolRefused(_said(body))
        if not 200 <= status < 300:
            raise ControlPlaneUnreachable(f"status {status}: {_said(body)}")
        return body


def _json(document: object) -> bytes:
    # Half a surrogate pair, which a user's trainer may print, is no Unicode: a strict reader would
    # refuse this report, and each later one that resends it. It becomes a question mark.
    return json.dumps(document, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")


def _said(body: bytes) -> str:
    return body[:300].decode("utf-8", "replace")


def _detail(body: bytes) -> str:
    """The sentence of a problem document, else what it begins with."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return _said(body)


def _decoded(shape: type[Shape], body: bytes) -> Shape:
    try:
        return decode(shape, json.loads(body))
    except (ValueError, WireError) as error:
        raise ControlPlaneUnreachable(f"the answer cannot be read: {error}") from error
