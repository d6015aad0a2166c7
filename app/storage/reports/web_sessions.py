"""Rows of the browsers' sessions.

Not here: what a cookie holds of them (`app.web.session`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import Engine, delete, insert, select, update

from app.storage.reports.job_facts import KeyOwner
from app.storage.schema import tables

_REMOVED_MAX: Final = 100
_SESSIONS: Final = tables.sessions
_KEYS: Final = tables.api_keys
_PROJECTS: Final = tables.projects
LIVE_KEYS: Final = (
    select(_KEYS.c.id, _KEYS.c.name, _KEYS.c.project_id, _PROJECTS.c.name, _KEYS.c.is_admin)
    .join(_PROJECTS, _PROJECTS.c.id == _KEYS.c.project_id)
    .where(_KEYS.c.revoked_at.is_(None))
)
"""The columns of a `KeyOwner`, for every key that is not revoked."""


class WebSessions:
    """Each call is a transaction of its own, and seen by every process at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, id_hash: str, key_id: UUID, now: datetime, expires_at: datetime) -> None:
        """Keep it. Every new row removes up to a hundred old ones, so that the table stays small
        without anybody who looks after it.
        """
        old = (
            select(_SESSIONS.c.id_hash)
            .where(_SESSIONS.c.expires_at <= now)
            .order_by(_SESSIONS.c.expires_at, _SESSIONS.c.id_hash)
            .limit(_REMOVED_MAX)
            .with_for_update(skip_locked=True)
        )
        with self._engine.begin() as connection:
            connection.execute(delete(_SESSIONS).where(_SESSIONS.c.id_hash.in_(old)))
            connection.execute(
                insert(_SESSIONS).values(
                    id_hash=id_hash, key_id=key_id, created_at=now, expires_at=expires_at
                )
            )

    def owner(self, id_hash: str, now: datetime) -> KeyOwner | None:
        """Whose it is; None for one that is unknown, ended or over, or whose key was revoked."""
        statement = LIVE_KEYS.join(_SESSIONS, _SESSIONS.c.key_id == _KEYS.c.id).where(
            _SESSIONS.c.id_hash == id_hash,
            _SESSIONS.c.ended_at.is_(None),
            _SESSIONS.c.expires_at > now,
        )
        with self._engine.connect() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else KeyOwner(*row)

    def end(self, id_hash: str, now: datetime) -> None:
        """End it; one that is unknown or has ended is no error."""
        statement = (
            update(_SESSIONS)
            .where(_SESSIONS.c.id_hash == id_hash, _SESSIONS.c.ended_at.is_(None))
            .values(ended_at=now)
        )
        with self._engine.begin() as connection:
            connection.execute(statement)
