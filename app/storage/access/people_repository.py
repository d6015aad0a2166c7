"""People and their memberships in PostgreSQL.

Not here: their keys (`key_repository`), what they sign in with (`invitation_repository`), or who
may change which (`app.orchestration.access`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    tuple_,
    type_coerce,
    union_all,
    update,
)
from sqlalchemy import delete as delete_from
from sqlalchemy.dialects.postgresql import insert as insert_new

from app.domain.access.person_rules import folded
from app.domain.access.principal import Principal
from app.domain.access.roles import Role, role_of_person
from app.storage.access.invitation_repository import InvitationRow
from app.storage.access.known_keys import is_good, name_in, principal_of, works_in
from app.storage.access.web_sessions import NewSession, owner_of, removal_of_old
from app.storage.schema import tables
from app.storage.schema.column_types import Word
from app.storage.session.record_session import RecordSession

_PEOPLE: Final = tables.people
_MEMBERS: Final = tables.memberships
_KEYS: Final = tables.api_keys


class MemberKind(StrEnum):
    """Who has a role in a project."""

    KEY = "key"
    PERSON = "person"


@dataclass(frozen=True)
class PersonRow:
    """A person. disabled_at: since when its keys and sessions do nothing."""

    id: UUID
    name: str
    email: str | None
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True)
class MemberRow:
    """A person or a service key, with its role in a project. since: of the membership or the key.

    issuer: whose groups the membership follows; None for one by hand, and for a key. place: what
    lists are sorted by, and continued after.
    """

    kind: MemberKind
    id: UUID
    name: str
    email: str | None
    role: Role
    since: datetime
    disabled_at: datetime | None
    issuer: str | None
    place: str

    @property
    def cursor(self) -> str:
        """Where a list goes on after it."""
        return f"{self.kind}/{self.place}"


class PeopleRepository:
    """People and memberships, in the store."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session

    def add_person(self, row: PersonRow) -> bool:
        """Store a person; False where its name is another's but for case, width or joiners."""
        statement = (
            insert_new(_PEOPLE)
            .values(**vars(row), name_folded=folded(row.name))
            .on_conflict_do_nothing(index_elements=["name_folded"])
            .returning(_PEOPLE.c.id)
        )
        return self._session.execute(statement).one_or_none() is not None

    def person(self, named: str) -> PersonRow | None:
        """The person of that name or id, locked."""
        condition = _names(_PEOPLE.c.id, _PEOPLE.c.name_folded, named)
        found = self._session.execute(_shown().where(condition).with_for_update(key_share=True))
        return next((PersonRow(**row) for row in found.mappings()), None)

    def people_at(self, email: str, limit: int) -> list[PersonRow]:
        """People with that address, whatever its case; several may have given it."""
        has_address = func.lower(_PEOPLE.c.email) == email.lower()
        statement = _shown().where(has_address).order_by(_PEOPLE.c.id).limit(limit)
        return [PersonRow(**row) for row in self._session.execute(statement).mappings()]

    def people(self, limit: int, after: str | None = None) -> list[PersonRow]:
        """People by name. after: the name of the one before, as it is folded."""
        statement = _shown().order_by(_PEOPLE.c.name_folded).limit(limit)
        if after is not None:
            statement = statement.where(_PEOPLE.c.name_folded > after)
        return [PersonRow(**row) for row in self._session.execute(statement).mappings()]

    def set_disabled(self, person_id: UUID, at: datetime | None) -> None:
        """Disable a person from now on; None: its keys and sessions work again."""
        self._session.execute(
            update(_PEOPLE).where(_PEOPLE.c.id == person_id).values(disabled_at=at)
        )

    def anonymise(self, row: PersonRow, name: str, now: datetime, by: str) -> None:
        """Call a person by another name, remove what else tells who it was, and end all that it
        could do: its memberships, keys, browsers, logins and accounts. The row stays, for those
        that point to it.
        """
        keys = select(_KEYS.c.id).where(_KEYS.c.person_id == row.id).scalar_subquery()
        sessions, invitations = tables.sessions, tables.invitations
        is_to_it = or_(
            invitations.c.person_id == row.id,
            invitations.c.used_by_person_id == row.id,
            func.lower(invitations.c.email) == (row.email or "").lower(),
        )
        is_own = or_(sessions.c.person_id == row.id, sessions.c.key_id.in_(keys))
        ended_at = func.coalesce(sessions.c.ended_at, now)
        good = (_KEYS.c.person_id == row.id) & _KEYS.c.revoked_at.is_(None)
        ended = {"former_hash": None, "former_until_at": None}
        called = {"name": name, "name_folded": folded(name), "email": None}
        for statement in (
            update(sessions).where(is_own).values(ended_at=ended_at, browser=None, address=None),
            update(_KEYS).where(good).values(revoked_at=now, revoked_by=by, **ended),
            delete_from(_MEMBERS).where(_MEMBERS.c.person_id == row.id),
            delete_from(tables.identities).where(tables.identities.c.person_id == row.id),
            delete_from(tables.logins).where(tables.logins.c.person_id == row.id),
            update(invitations).where(is_to_it).values(email=None),
            update(_PEOPLE)
            .where(_PEOPLE.c.id == row.id)
            .values(**called, disabled_at=func.coalesce(_PEOPLE.c.disabled_at, now)),
        ):
            self._session.execute(statement)

    def roles_of(self, person_id: UUID) -> dict[UUID, Role]:
        """The person's role in each of its projects; none where it is disabled."""
        statement = (
            select(_MEMBERS.c.project_id, _MEMBERS.c.role)
            .join(_PEOPLE, _PEOPLE.c.id == _MEMBERS.c.person_id)
            .where(_MEMBERS.c.person_id == person_id, _PEOPLE.c.disabled_at.is_(None))
        )
        return {row.project_id: row.role for row in self._session.execute(statement)}

    def role_of_inviter(self, row: InvitationRow, now: datetime) -> Role | None:
        """The role of whoever made an invitation, in its project now; None for no member."""
        if row.invited_by_person_id is not None:
            roles = self.roles_of(row.invited_by_person_id)
            elsewhere = Role.ADMIN if Role.ADMIN in roles.values() else None
            return role_of_person(roles.get(row.project_id), elsewhere, Role.ADMIN)
        statement = select(_KEYS.c.role).where(
            _KEYS.c.id == row.invited_by_key_id,
            is_good(now),
            # An admin's key works in every project.
            or_(works_in(row.project_id), _KEYS.c.role == Role.ADMIN),
        )
        return self._session.execute(statement).scalar_one_or_none()

    def projects_of(self, person_id: UUID) -> list[tuple[UUID, str, Role]]:
        """The person's projects by name, each with its role there."""
        projects = tables.projects
        statement = (
            select(projects.c.id, projects.c.name, _MEMBERS.c.role)
            .join(_MEMBERS, _MEMBERS.c.project_id == projects.c.id)
            .where(_MEMBERS.c.person_id == person_id)
            .order_by(projects.c.name)
        )
        return [(row[0], row[1], row[2]) for row in self._session.execute(statement)]

    def add_session(self, session: NewSession, owner: Principal) -> None:
        """Store a session that belongs to the person and to no key. Removes up to a hundred that
        are over.
        """
        assert owner.person is not None
        self._session.execute(removal_of_old(session.created_at))
        self._session.execute(
            session.insert(person_id=owner.person.id, project_id=owner.project_id)
        )

    def owner_of_session(self, id_hash: str, now: datetime) -> Principal | None:
        """Whose live session it is, so locked that it does not end meanwhile; None for none."""
        statement = owner_of(id_hash, now).with_for_update(of=tables.sessions, key_share=True)
        row = self._session.execute(statement).one_or_none()
        return None if row is None else principal_of(row)

    def end_sessions(self, person_id: UUID, now: datetime) -> None:
        """End the sessions that belong to the person and to no key."""
        sessions = tables.sessions
        self._session.execute(
            update(sessions)
            .where(sessions.c.person_id == person_id, sessions.c.ended_at.is_(None))
            .values(ended_at=now)
        )

    def add_member(
        self,
        person_id: UUID,
        project_id: UUID,
        role: Role,
        at: datetime,
        by: str,
        issuer: str | None = None,
    ) -> bool:
        """Store a membership; False where there is one. issuer: whose groups it follows."""
        statement = (
            insert_new(_MEMBERS)
            .values(
                person_id=person_id,
                project_id=project_id,
                role=role,
                created_at=at,
                created_by=by,
                issuer=issuer,
            )
            .on_conflict_do_nothing()
            .returning(_MEMBERS.c.person_id)
        )
        return self._session.execute(statement).one_or_none() is not None

    def set_role(
        self, person_id: UUID, project_id: UUID, role: Role, issuer: str | None = None
    ) -> None:
        """Another role for a member that is a person. issuer: whose groups it follows from now on;
        None: it was given by hand.
        """
        self._session.execute(
            update(_MEMBERS)
            .where(_is_member(person_id, project_id))
            .values(role=role, issuer=issuer)
        )

    def remove_member(self, person_id: UUID, project_id: UUID) -> None:
        """End a membership. Its keys and sessions ask for it with each request."""
        self._session.execute(delete_from(_MEMBERS).where(_is_member(person_id, project_id)))

    def members(
        self, project_id: UUID, now: datetime, limit: int, after: tuple[str, str] | None = None
    ) -> list[MemberRow]:
        """People and good service keys of a project by name. after: kind and place of the one
        before.
        """
        parts = [
            _continued(part, place, kind, after).order_by(place).limit(limit)
            for kind, part, place in (
                (MemberKind.KEY, _keys(project_id).where(is_good(now)), name_in(project_id)),
                (MemberKind.PERSON, _people(project_id), _PEOPLE.c.name_folded),
            )
        ]
        both = union_all(*(part.subquery().select() for part in parts)).subquery()
        statement = select(both).order_by(both.c.place, both.c.kind).limit(limit)
        return [MemberRow(**row) for row in self._session.execute(statement).mappings()]

    def member(self, project_id: UUID, now: datetime, named: str) -> MemberRow | None:
        """The project's member of that name or id, locked: a person, else a good service key."""
        person = _people(project_id).where(_names(_PEOPLE.c.id, _PEOPLE.c.name_folded, named))
        calls = _names(_KEYS.c.id, name_in(project_id), named)
        key = _keys(project_id).where(is_good(now), calls)
        for statement, table in ((person, _MEMBERS), (key, _KEYS)):
            locked = statement.with_for_update(of=table, key_share=True)
            for row in self._session.execute(locked).mappings():
                return MemberRow(**row)
        return None


def _shown() -> Select[Any]:
    return select(*(_PEOPLE.c[name] for name in PersonRow.__dataclass_fields__))


def _is_member(person_id: UUID, project_id: UUID) -> ColumnElement[bool]:
    return (_MEMBERS.c.person_id == person_id) & (_MEMBERS.c.project_id == project_id)


def _names(
    id_column: ColumnElement[UUID], place: ColumnElement[str], named: str
) -> ColumnElement[bool]:
    """Whether a row is meant by a name or an id. Nobody is called like an id of another."""
    try:
        return id_column == UUID(named)
    except ValueError:
        return place == folded(named)


def _people(project_id: UUID) -> Select[Any]:
    return (
        select(
            _kind(MemberKind.PERSON),
            _PEOPLE.c.id,
            _PEOPLE.c.name,
            _PEOPLE.c.email,
            _MEMBERS.c.role,
            _MEMBERS.c.created_at.label("since"),
            _PEOPLE.c.disabled_at,
            _MEMBERS.c.issuer,
            _PEOPLE.c.name_folded.label("place"),
        )
        .join(_MEMBERS, _MEMBERS.c.person_id == _PEOPLE.c.id)
        .where(_MEMBERS.c.project_id == project_id)
    )


def _keys(project_id: UUID) -> Select[Any]:
    return select(
        _kind(MemberKind.KEY),
        _KEYS.c.id,
        name_in(project_id).label("name"),
        cast(null(), Text).label("email"),
        _KEYS.c.role,
        _KEYS.c.created_at.label("since"),
        _KEYS.c.revoked_at.label("disabled_at"),
        cast(null(), Text).label("issuer"),
        name_in(project_id).label("place"),
    ).where(works_in(project_id))


def _kind(kind: MemberKind) -> ColumnElement[Any]:
    return type_coerce(literal(kind.value, Text), Word(MemberKind)).label("kind")


def _continued(
    part: Select[Any], place: ColumnElement[str], kind: MemberKind, after: tuple[str, str] | None
) -> Select[Any]:
    if after is None:
        return part
    after_kind, after_place = after
    return part.where(
        tuple_(place, literal(kind.value)) > tuple_(literal(after_place), literal(after_kind))
    )
