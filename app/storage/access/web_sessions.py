"""Rows of the browsers' sessions.

Not here: what a cookie holds of them (`app.web.session`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Insert,
    Select,
    and_,
    any_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from app.domain.access.principal import Origin, Principal
from app.domain.access.session_rules import SEEN_RECORDED_EVERY, SESSION_IDLE
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import LOOKED_UP, AuditEntry, Subject, entry_of
from app.storage.access.known_keys import OF_KEYS, is_good, principal_of, principals
from app.storage.audit.audit_statements import INSERT_ENTRY, entry_parameters
from app.storage.schema import tables

log = logging.getLogger(__name__)

_REMOVED_MAX: Final = 100
_SHOWN_ID: Final = 16
_SESSIONS: Final = tables.sessions
_KEYS: Final = tables.api_keys
_PERSON_ID: Final = func.coalesce(_SESSIONS.c.person_id, _KEYS.c.person_id)
_LAST_SEEN: Final = func.coalesce(_SESSIONS.c.last_seen_at, _SESSIONS.c.created_at)
_OF_SESSIONS: Final = principals(
    _SESSIONS.outerjoin(_KEYS, _KEYS.c.id == _SESSIONS.c.key_id),
    _PERSON_ID,
    func.coalesce(_SESSIONS.c.project_id, _KEYS.c.project_id),
)


@dataclass(frozen=True)
class NewSession:
    """A session that begins. id_hash: SHA-256 of what its cookie has.

    browser, address: what the request said of itself, for its owner to tell sessions apart.
    """

    id_hash: str
    created_at: datetime
    expires_at: datetime
    browser: str | None = None
    address: str | None = None

    def insert(self, **owner: UUID) -> Insert:
        """The statement that stores it. owner: `key_id`, or `person_id` with its `project_id`."""
        return insert(_SESSIONS).values(**vars(self), last_seen_at=self.created_at, **owner)

    def entry(
        self, owner: Principal, audit_id: UUID, action: AuditAction = AuditAction.SESSION_BEGIN
    ) -> AuditEntry:
        """The row that says who signed in, from where."""
        after = _facts(self.created_at, self.expires_at, None)
        subject = _subject(owner, self.id_hash)
        return entry_of(audit_id, self.created_at, owner, action, subject, after=after)


@dataclass(frozen=True)
class SessionRow:
    """A session for its owner to see. id: tells it apart, and opens nothing."""

    id: str
    created_at: datetime
    expires_at: datetime
    last_seen_at: datetime
    browser: str | None
    address: str | None


class WebSessions:
    """Each call is a transaction of its own, and seen by every process at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(
        self, session: NewSession, key_hash: str, origin: Origin, audit_id: UUID
    ) -> Principal | None:
        """Keep a session of the key with this SHA-256; None, and nothing kept, where none is good.
        audit_id: of the row that says who signed in, from where.

        Every new row removes up to a hundred old ones, so that the table stays small without
        anybody who looks after it.
        """
        now = session.created_at
        # Locked as a rotation locks it: either ends the sessions that the other has seen begin.
        key = OF_KEYS.where(_KEYS.c.key_hash == key_hash, is_good(now)).with_for_update(
            key_share=True, of=_KEYS
        )
        with self._engine.begin() as connection:
            row = connection.execute(key).one_or_none()
            if row is None:
                return None
            owner = principal_of(row)
            assert owner.key_id is not None
            connection.execute(
                update(_KEYS).where(_KEYS.c.id == owner.key_id).values(last_used_at=now)
            )
            connection.execute(removal_of_old(now))
            connection.execute(session.insert(key_id=owner.key_id))
            _record(connection, session.entry(owner.from_origin(origin), audit_id))
        return owner

    def owner(self, id_hash: str, now: datetime) -> Principal | None:
        """Whose it is; None once it or its key has ended, and for one that is unknown.

        Writes that it was seen, where the last time that was written is old.
        """
        statement = owner_of(id_hash, now).add_columns(_LAST_SEEN)
        with self._engine.connect() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            return None
        if row[-1] <= now - SEEN_RECORDED_EVERY:
            self._record_sight(id_hash, now)
        return principal_of(row)

    def of_owner(self, owner: Principal, now: datetime, limit: int) -> list[SessionRow]:
        """The live sessions of a person, with every key, or of a service key; the newest first."""
        statement = (
            select(
                func.left(_SESSIONS.c.id_hash, _SHOWN_ID),
                _SESSIONS.c.created_at,
                _SESSIONS.c.expires_at,
                _LAST_SEEN,
                _SESSIONS.c.browser,
                _SESSIONS.c.address,
            )
            .outerjoin(_KEYS, _KEYS.c.id == _SESSIONS.c.key_id)
            .where(is_of(owner), _is_live(now), or_(_KEYS.c.id.is_(None), is_good(now)))
            .order_by(_SESSIONS.c.created_at.desc(), _SESSIONS.c.id_hash)
            .limit(limit)
        )
        with self._engine.connect() as connection:
            return [SessionRow(*row) for row in connection.execute(statement)]

    def end(self, owner: Principal, id_hash: str, now: datetime, audit_id: UUID) -> None:
        """End it; one that is unknown or has ended is no error.

        owner: whose it is. audit_id: of the row that says who signed out, from where.
        """
        self._end(owner, _SESSIONS.c.id_hash == id_hash, now, audit_id)

    def end_of_owner(
        self, owner: Principal, session_id: str, now: datetime, audit_id: UUID
    ) -> bool:
        """End the owner's live session of that id; False for none. audit_id: as `end`."""
        shown = func.left(_SESSIONS.c.id_hash, _SHOWN_ID) == session_id
        mine = select(_SESSIONS.c.id_hash).where(shown, is_of(owner), _is_live(now))
        return self._end(owner, _SESSIONS.c.id_hash.in_(mine), now, audit_id)

    def show_project(self, id_hash: str, project_id: UUID) -> None:
        """Let the session's pages show a project of the person's."""
        with self._engine.begin() as connection:
            connection.execute(
                update(_SESSIONS)
                .where(_SESSIONS.c.id_hash == id_hash)
                .values(project_id=project_id)
            )

    def _end(
        self, owner: Principal, which: ColumnElement[bool], now: datetime, audit_id: UUID
    ) -> bool:
        statement = (
            update(_SESSIONS)
            .where(which, _SESSIONS.c.ended_at.is_(None))
            .values(ended_at=now)
            .returning(_SESSIONS.c.id_hash, _SESSIONS.c.created_at, _SESSIONS.c.expires_at)
        )
        with self._engine.begin() as connection:
            ended = connection.execute(statement).one_or_none()
            if ended is None:
                return False
            id_hash, created_at, expires_at = ended
            before, after = (_facts(created_at, expires_at, end) for end in (None, now))
            action, subject = AuditAction.SESSION_END, _subject(owner, id_hash)
            _record(connection, entry_of(audit_id, now, owner, action, subject, before, after))
        return True

    def _record_sight(self, id_hash: str, now: datetime) -> None:
        """What cannot be written, as on a full disk, must not close a page."""
        statement = update(_SESSIONS).where(_SESSIONS.c.id_hash == id_hash)
        try:
            with self._engine.begin() as connection:
                connection.execute(statement.values(last_seen_at=now))
        except DBAPIError as error:
            reason = str(error).partition("\n")[0]
            log.warning("that a session was seen could not be stored: %s", reason)


def removal_of_old(now: datetime) -> Delete:
    """The statement that removes up to a hundred sessions that are over."""
    old = (
        select(_SESSIONS.c.id_hash)
        .where(_SESSIONS.c.expires_at <= now)
        .order_by(_SESSIONS.c.expires_at, _SESSIONS.c.id_hash)
        .limit(_REMOVED_MAX)
        .with_for_update(skip_locked=True)
    )
    return delete(_SESSIONS).where(_SESSIONS.c.id_hash.in_(old))


def owner_of(id_hash: str, now: datetime) -> Select[Any]:
    """The columns of `principal_of`, while the session, its key and its person are good."""
    return _OF_SESSIONS.where(
        _SESSIONS.c.id_hash == id_hash, _is_live(now), or_(_KEYS.c.id.is_(None), is_good(now))
    )


def _facts(
    created_at: datetime, expires_at: datetime, ended_at: datetime | None
) -> dict[str, object]:
    return {"created_at": created_at, "expires_at": expires_at, "ended_at": ended_at}


def _subject(owner: Principal, id_hash: str) -> Subject:
    name = owner.key_name if owner.person is None else LOOKED_UP
    # A part of the digest tells sessions apart.
    return Subject(SubjectKind.SESSION, id_hash[:_SHOWN_ID], name, owner.project_id)


def _record(connection: Connection, entry: AuditEntry) -> None:
    connection.exec_driver_sql(INSERT_ENTRY, entry_parameters(entry))


def _is_live(now: datetime) -> ColumnElement[bool]:
    return and_(
        _SESSIONS.c.ended_at.is_(None),
        _SESSIONS.c.expires_at > now,
        now - SESSION_IDLE < _LAST_SEEN,
    )


def is_of(owner: Principal) -> ColumnElement[bool]:
    """Of a person: its own, and those of its keys, each found by an index."""
    if owner.person is None:
        return _SESSIONS.c.key_id == owner.key_id
    keys = _KEYS.alias("own_keys")
    ids = select(keys.c.id).where(keys.c.person_id == owner.person.id).scalar_subquery()
    of_a_key = _SESSIONS.c.key_id == any_(func.array(ids))
    return or_(_SESSIONS.c.person_id == owner.person.id, of_a_key)
