"""Which addresses an issuer and Lowtide may have: https, and http on loopback alone."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def require_safe(address: str) -> str:
    """The address. Raises ValueError for one that others on the network could read or answer."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.username is not None or parts.fragment:
        raise ValueError("must be an address like https://login.example.com")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        raise ValueError("must begin with https://; http:// is for loopback alone")
    return address
