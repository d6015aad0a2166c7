"""One small HTTP call to the machine's own metadata server, with a time limit.

Not here: paths, tokens and headers of a cloud (`aws`, `gcp`).
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

ANSWER_BYTES_MAX = 1 << 20


class MetadataUnknown(Exception):
    """The metadata server gave no usable answer: not known, which is never a notice."""


@dataclass(frozen=True)
class MetadataAnswer:
    """Status, lower-case header names, body."""

    status: int
    headers: dict[str, str]
    text: str


def call(
    url: str,
    path: str,
    headers: Mapping[str, str],
    timeout_seconds: float,
    method: str = "GET",
) -> MetadataAnswer:
    """Raises MetadataUnknown when there is no answer within the time limit."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "127.0.0.1", parts.port, timeout=timeout_seconds
    )
    try:
        connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers))
        response = connection.getresponse()
        text = response.read(ANSWER_BYTES_MAX).decode("utf-8", "replace")
        named = {name.lower(): value for name, value in response.getheaders()}
        return MetadataAnswer(response.status, named, text)
    except (OSError, http.client.HTTPException) as error:
        raise MetadataUnknown(f"metadata {path}: {error!r}") from error
    finally:
        connection.close()
