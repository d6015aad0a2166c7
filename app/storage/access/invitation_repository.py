"""Invitations and confirmed logins in PostgreSQL: what people sign in with, each once.

Who takes one locks its row: of two at once, the second sees that it is used. Not here:
who may invite, or what an invitation gives (`app.orchestration.access`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Delete,
    Select,
    Table,
    and_,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as insert_new

from app.domain.access.roles import Role
from app.storage.schema import tables
from app.storage.session.record_session import RecordSession

_INVITATIONS: Final = tables.invitations
_LOGINS: Final = tables.logins
_REMOVED_MAX: Final = 100


@dataclass(frozen=True)
class InvitationRow:
    """An invitation without its token.

    person_id: the person who gets another key by it; None where it makes a member.
    invited_by_key_id, invited_by_person_id: both None for the first admin's.
    """

    id: UUID
    project_id: UUID
    person_id: UUID | None
    role: Role
    email: str | None
    invited_by_key_id: UUID | None
    invited_by_person_id: UUID | None
    created_by: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True)
class LoginRow:
    """What a person has confirmed for a command that waits.

    session_id_hash: of the browser that confirmed it. limit_role: the most that the key will let
    it do. tries: how many wrong codes were sent.
    """

    challenge: str
    code_hash: str
    person_id: UUID
    project_id: UUID
    session_id_hash: str
    limit_role: Role
    machine: str
    tries: int
    created_at: datetime
    expires_at: datetime
    key_expires_at: datetime
    used_at: datetime | None = None


class InvitationRepository:
    """Invitations and logins, in the store."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session

    def add(self, row: InvitationRow, token_hash: str) -> None:
        """Store an invitation. Removes up to a hundred of any project that are over."""
        self._session.execute(_removal_of_old(_INVITATIONS, _INVITATIONS.c.id, row.created_at))
        self._session.execute(insert(_INVITATIONS).values(**vars(row), token_hash=token_hash))

    def of_token(self, token_hash: str) -> InvitationRow | None:
        """The invitation with this token, locked."""
        return self._one(_INVITATIONS.c.token_hash == token_hash)

    def of_project(self, project_id: UUID, invitation_id: UUID) -> InvitationRow | None:
        """The project's invitation of that id, locked."""
        return self._one(
            _INVITATIONS.c.project_id == project_id, _INVITATIONS.c.id == invitation_id
        )

    def open(
        self, project_id: UUID, now: datetime, limit: int, after: UUID | None = None
    ) -> list[InvitationRow]:
        """A project's invitations that can be accepted, the newest first. after: the id before."""
        statement = (
            _invitations()
            .where(_is_open(project_id, now))
            .order_by(_INVITATIONS.c.id.desc())
            .limit(limit)
        )
        if after is not None:
            statement = statement.where(_INVITATIONS.c.id < after)
        return [InvitationRow(**row) for row in self._session.execute(statement).mappings()]

    def count_open(self, project_id: UUID, now: datetime) -> int:
        """How many of a project's invitations can be accepted."""
        statement = select(func.count()).where(_is_open(project_id, now))
        count: int = self._session.execute(statement).scalar_one()
        return count

    def use(self, invitation_id: UUID, at: datetime, person_id: UUID) -> None:
        """Write down who has accepted it."""
        self._change(invitation_id, used_at=at, used_by_person_id=person_id)

    def revoke(self, invitation_id: UUID, at: datetime) -> None:
        """Let nobody accept it any more."""
        self._change(invitation_id, revoked_at=at)

    def add_login(self, row: LoginRow) -> bool:
        """Store a confirmed login; False where its challenge was confirmed before. Removes up to a
        hundred that are over.
        """
        self._session.execute(_removal_of_old(_LOGINS, _LOGINS.c.challenge, row.created_at))
        made = self._session.execute(
            insert_new(_LOGINS)
            .values(**vars(row))
            .on_conflict_do_nothing()
            .returning(_LOGINS.c.challenge)
        )
        return made.one_or_none() is not None

    def login(self, challenge: str) -> LoginRow | None:
        """The confirmed login of a challenge, locked."""
        statement = _rows(LoginRow, _LOGINS).where(_LOGINS.c.challenge == challenge)
        found = self._session.execute(statement.with_for_update())
        return next((LoginRow(**row) for row in found.mappings()), None)

    def change_login(self, challenge: str, **values: object) -> None:
        """Write down that it was used, or that a wrong code was sent."""
        self._session.execute(
            update(_LOGINS).where(_LOGINS.c.challenge == challenge).values(values)
        )

    def _one(self, *conditions: ColumnElement[bool]) -> InvitationRow | None:
        found = self._session.execute(_invitations().where(*conditions).with_for_update())
        return next((InvitationRow(**row) for row in found.mappings()), None)

    def _change(self, invitation_id: UUID, **values: object) -> None:
        self._session.execute(
            update(_INVITATIONS).where(_INVITATIONS.c.id == invitation_id).values(values)
        )


def _is_open(project_id: UUID, now: datetime) -> ColumnElement[bool]:
    return and_(
        _INVITATIONS.c.project_id == project_id,
        _INVITATIONS.c.used_at.is_(None),
        _INVITATIONS.c.revoked_at.is_(None),
        _INVITATIONS.c.expires_at > now,
    )


def _removal_of_old(table: Table, key: ColumnElement[Any], now: datetime) -> Delete:
    old = (
        select(key)
        .where(table.c.expires_at <= now)
        .order_by(table.c.expires_at, key)
        .limit(_REMOVED_MAX)
        .with_for_update(skip_locked=True)
    )
    return delete(table).where(key.in_(old))


def _invitations() -> Select[Any]:
    return _rows(InvitationRow, _INVITATIONS)


def _rows(record: type[InvitationRow | LoginRow], table: Table) -> Select[Any]:
    return select(*(table.c[one.name] for one in fields(record)))
