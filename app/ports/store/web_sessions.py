"""Sessions of browsers that have signed in: begun, looked up, ended; kept as hashes alone.

Not here: the cookie that carries a session (`app.web.session`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.ports.reports.job_reports import KeyOwner


class WebSessions(Protocol):
    """Each call is a transaction of its own, and seen by every process at once."""

    def begin(self, id_hash: str, key_id: UUID, now: datetime, expires_at: datetime) -> None:
        """Keep a new session; some of those whose time is over are removed with it."""
        ...

    def owner(self, id_hash: str, now: datetime) -> KeyOwner | None:
        """Whose it is; None for one that is unknown, ended or over, or whose key was revoked."""
        ...

    def end(self, id_hash: str, now: datetime) -> None:
        """End it; one that is unknown or has ended is no error."""
        ...
