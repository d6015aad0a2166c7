"""Whether a server speaks http where its address says https, or the other way round.

Not here: what is said about it (`api_client`).
"""

from __future__ import annotations

import socket
import ssl
from typing import Final
from urllib.parse import urlsplit

_PROBE_SECONDS: Final = 2.0
_HTTPS_PORT: Final = 443
_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""What OpenSSL calls an answer that is no TLS."""


def other_scheme(url: str) -> str:
    """The same address with https in place of http, or http in place of https."""
    parts = urlsplit(url)
    return parts._replace(scheme="http" if parts.scheme == "https" else "https").geturl()


def answered_without_tls(error: BaseException) -> bool:
    """Whether a connection over https failed because the answer was no TLS."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return cause.reason == _NO_TLS
        cause = cause.__cause__ or cause.__context__
    return False


def speaks_tls(url: str) -> bool:
    """Whether a TLS handshake succeeds at an http address; tried for at most 4 seconds.

    Nothing is sent over the connection, so that no certificate needs to be checked.
    """
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    address = (parts.hostname or "", parts.port or _HTTPS_PORT)
    try:
        with (
            socket.create_connection(address, timeout=_PROBE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except (OSError, ValueError):
        return False
