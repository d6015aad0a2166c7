"""Rows of the browsers' sessions.

Not here: what a cookie holds of them (`app.web.session`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, Engine, delete, insert, select, update

from app.domain.access.principal import Origin, Principal
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import AuditEntry, Subject, entry_of
from app.storage.access.known_keys import PRINCIPALS, is_good, principal_of
from app.storage.audit.audit_statements import INSERT_ENTRY, entry_parameters
from app.storage.schema import tables

_REMOVED_MAX: Final = 100
_SESSIONS: Final = tables.sessions
_KEYS: Final = tables.api_keys


class WebSessions:
    """Each call is a transaction of its own, and seen by every process at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(
        self,
        id_hash: str,
        key_hash: str,
        now: datetime,
        expires_at: datetime,
        origin: Origin,
        audit_id: UUID,
    ) -> Principal | None:
        """Keep a session of the key with this SHA-256; None, and nothing kept, where none is good.

        audit_id: of the row that says who signed in, from where.

        Every new row removes up to a hundred old ones, so that the table stays small without
        anybody who looks after it.
        """
        # Locked as a rotation locks it: either ends the sessions that the other has seen begin.
        key = PRINCIPALS.where(_KEYS.c.key_hash == key_hash, is_good(now)).with_for_update(
            key_share=True, of=_KEYS
        )
        old = (
            select(_SESSIONS.c.id_hash)
            .where(_SESSIONS.c.expires_at <= now)
            .order_by(_SESSIONS.c.expires_at, _SESSIONS.c.id_hash)
            .limit(_REMOVED_MAX)
            .with_for_update(skip_locked=True)
        )
        with self._engine.begin() as connection:
            row = connection.execute(key).one_or_none()
            if row is None:
                return None
            owner = principal_of(row)
            connection.execute(
                update(_KEYS).where(_KEYS.c.id == owner.key_id).values(last_used_at=now)
            )
            connection.execute(delete(_SESSIONS).where(_SESSIONS.c.id_hash.in_(old)))
            connection.execute(
                insert(_SESSIONS).values(
                    id_hash=id_hash, key_id=owner.key_id, created_at=now, expires_at=expires_at
                )
            )
            begun = AuditAction.SESSION_BEGIN, _subject(owner, id_hash)
            facts = {"created_at": now, "expires_at": expires_at, "ended_at": None}
            _record(
                connection, entry_of(audit_id, now, owner.from_origin(origin), *begun, after=facts)
            )
        return owner

    def owner(self, id_hash: str, now: datetime) -> Principal | None:
        """Whose it is; None once it or its key has ended, and for one that is unknown."""
        statement = PRINCIPALS.join(_SESSIONS, _SESSIONS.c.key_id == _KEYS.c.id).where(
            _SESSIONS.c.id_hash == id_hash,
            _SESSIONS.c.ended_at.is_(None),
            _SESSIONS.c.expires_at > now,
            is_good(now),
        )
        with self._engine.connect() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else principal_of(row)

    def end(self, id_hash: str, now: datetime, origin: Origin, audit_id: UUID) -> None:
        """End it; one that is unknown or has ended is no error.

        audit_id: of the row that says who signed out, from where.
        """
        statement = (
            update(_SESSIONS)
            .where(_SESSIONS.c.id_hash == id_hash, _SESSIONS.c.ended_at.is_(None))
            .values(ended_at=now)
            .returning(_SESSIONS.c.key_id, _SESSIONS.c.created_at, _SESSIONS.c.expires_at)
        )
        with self._engine.begin() as connection:
            ended = connection.execute(statement).one_or_none()
            if ended is None:
                return
            of_key = PRINCIPALS.where(_KEYS.c.id == ended.key_id)
            owner = principal_of(connection.execute(of_key).one()).from_origin(origin)
            before = {
                "created_at": ended.created_at, "expires_at": ended.expires_at, "ended_at": None,
            }  # fmt: skip
            _record(
                connection,
                entry_of(
                    audit_id, now, owner, AuditAction.SESSION_END, _subject(owner, id_hash),
                    before, {**before, "ended_at": now},
                ),
            )  # fmt: skip


def _subject(owner: Principal, id_hash: str) -> Subject:
    # A part of the digest tells sessions apart.
    return Subject(SubjectKind.SESSION, id_hash[:16], owner.key_name, owner.project_id)


def _record(connection: Connection, entry: AuditEntry) -> None:
    connection.exec_driver_sql(INSERT_ENTRY, entry_parameters(entry))
