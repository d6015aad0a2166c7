"""Which key, session or person a request comes from, as a `Principal`.

Lives here: what makes a key good, and what a person's memberships make of its keys and sessions,
for the async pool and for SQLAlchemy alike. Not here: making and revoking keys (`key_repository`),
or the rule that turns memberships into a role (`app.domain.access.roles`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    DateTime,
    FromClause,
    Row,
    Select,
    Text,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    false,
    func,
    not_,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import array

from app.domain.access.principal import Person, Principal
from app.domain.access.roles import ROLES_OF, Action, Role, role_of_person
from app.storage.schema import tables
from app.storage.session.ready_statement import Ready

_KEYS: Final = tables.api_keys
_PROJECTS: Final = tables.projects
_PEOPLE: Final = tables.people
_MEMBERS: Final = tables.memberships
_INSTANT: Final = DateTime(timezone=True)
Instant = datetime | ColumnElement[datetime]

ROLE: Final = func.coalesce(_KEYS.c.limit_role, _KEYS.c.role)
"""Of a service key its role, of a person's key its limit."""
NAME: Final = func.coalesce(_KEYS.c.own_name, _KEYS.c.name)
"""As people know a key."""


def is_good(now: Instant) -> ColumnElement[bool]:
    """Whether a key is neither revoked nor over."""
    expires_at = _KEYS.c.expires_at
    return and_(_KEYS.c.revoked_at.is_(None), or_(expires_at.is_(None), expires_at > now))


def works_in(project_id: UUID | ColumnElement[UUID]) -> ColumnElement[bool]:
    """Whether it is a service key of the project, or one of another that works in it, too."""
    # Contained, and not any_(): that one has an index.
    named = _KEYS.c.project_ids.contains(array([project_id]))
    return and_(_KEYS.c.person_id.is_(None), or_(_KEYS.c.project_id == project_id, named))


def name_in(project_id: UUID) -> ColumnElement[str]:
    """What a service key is called in a project: `home/key` where that is not its own."""
    home = select(_PROJECTS.c.name).where(_PROJECTS.c.id == _KEYS.c.project_id).scalar_subquery()
    return case((_KEYS.c.project_id == project_id, NAME), else_=home + "/" + NAME)


def principals(
    source: FromClause, person_id: ColumnElement[Any], home: ColumnElement[Any]
) -> Select[Any]:
    """The columns of `principal_of`, for keys and people that some project opens for.

    source: has the keys. person_id: the person behind each row, if there is one. home: the project
    that a row works in. A person who is not a member of it works there all the same where one of
    its other memberships opens every project; else it reads the project that it joined first, of
    those that its key names.
    """
    member = (
        select(_MEMBERS.c.project_id, _MEMBERS.c.role)
        .where(_MEMBERS.c.person_id == person_id, _is_named(_MEMBERS.c.project_id))
        .order_by(
            func.coalesce(_MEMBERS.c.project_id == home, false()).desc(),
            _MEMBERS.c.created_at,
            _MEMBERS.c.project_id,
        )
        .limit(1)
        .lateral("member")
    )
    memberships = _MEMBERS.alias()
    wide = (
        # Of the two, "admin" comes first in the alphabet.
        select(func.min(memberships.c.role).label("role"))
        .where(memberships.c.person_id == person_id, _opens_all(memberships.c.role))
        .lateral("wide")
    )
    reaches = and_(wide.c.role.is_not(None), or_(ROLE.is_(None), _opens_all(ROLE)))
    at_home = member.c.project_id == home
    return (
        select(
            _KEYS.c.id,
            NAME,
            _PROJECTS.c.id,
            _PROJECTS.c.name,
            ROLE,
            _PROJECTS.c.archived_at.is_(None),
            func.coalesce(_PROJECTS.c.rules_version, 0),
            _PEOPLE.c.id,
            _PEOPLE.c.name,
            case((or_(at_home, not_(reaches)), member.c.role)),
            wide.c.role,
            and_(_PEOPLE.c.id.is_not(None), not_(at_home), not_(reaches)),
            _KEYS.c.project_ids,
        )
        .select_from(
            source.outerjoin(_PEOPLE, _PEOPLE.c.id == person_id)
            .outerjoin(member, true())
            .outerjoin(wide, true())
            .join(
                _PROJECTS,
                _PROJECTS.c.id
                == case((or_(_PEOPLE.c.id.is_(None), reaches), home), else_=member.c.project_id),
            )
        )
        .where(
            or_(
                _PEOPLE.c.id.is_(None),
                and_(_PEOPLE.c.disabled_at.is_(None), member.c.project_id.is_not(None)),
            )
        )
    )


def _is_named(project_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the key names the project, or none at all, as what is no key."""
    return or_(_KEYS.c.project_ids.is_(None), project_id == any_(_KEYS.c.project_ids))


def _opens_all(role: ColumnElement[Any]) -> ColumnElement[bool]:
    return or_(*(role == one for one in sorted(ROLES_OF[Action.OPEN_PROJECT])))


OF_KEYS: Final = principals(_KEYS, _KEYS.c.person_id, _KEYS.c.project_id)
"""For every key, good or not."""

_NOW: Final = bindparam("now", type_=_INSTANT)
_HASH: Final = bindparam("key_hash", type_=Text)
_USE_IS_OLD_AT: Final = bindparam("use_is_old_at", type_=_INSTANT)

KEY_OF_DIGEST: Final = Ready(
    OF_KEYS.add_columns(
        func.coalesce(_KEYS.c.last_used_at < _USE_IS_OLD_AT, true()),
        # LEAST passes over NULLs.
        func.least(_KEYS.c.expires_at, case((_KEYS.c.key_hash != _HASH, _KEYS.c.former_until_at))),
    ).where(
        or_(
            _KEYS.c.key_hash == _HASH,
            and_(_KEYS.c.former_hash == _HASH, _KEYS.c.former_until_at > _NOW),
        ),
        is_good(_NOW),
    )
)
"""The columns of `principal_of`, whether the key's last use is to be written again, and when this
secret ends.
"""

USE_KEY: Final = Ready(
    update(_KEYS)
    .where(
        _KEYS.c.id == bindparam("key_id", type_=Uuid),
        or_(_KEYS.c.last_used_at.is_(None), _KEYS.c.last_used_at < _USE_IS_OLD_AT),
    )
    .values(last_used_at=_NOW)
)

ACCESS_CHANGE: Final = Ready(select(tables.access_changes.c.transaction_id))
"""Triggers write it with every change of a project, a key, a person or a membership."""

PROJECT_OF_NAME: Final = Ready(
    select(
        _PROJECTS.c.id,
        _PROJECTS.c.archived_at.is_(None),
        func.coalesce(_PROJECTS.c.rules_version, 0),
        select(_MEMBERS.c.role)
        .where(
            _MEMBERS.c.project_id == _PROJECTS.c.id,
            _MEMBERS.c.person_id == bindparam("person_id", type_=Uuid),
        )
        .scalar_subquery(),
    ).where(_PROJECTS.c.name == bindparam("name", type_=Text))
)
"""The columns of `named_project`."""


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key that is good. ends_at: when this secret of it ends; None for never."""

    principal: Principal
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class NamedProject:
    """A project that a request names. member_role: the person's there; None for no member."""

    id: UUID
    takes_jobs: bool
    rules_version: int
    member_role: Role | None


def named_project(row: tuple[Any, ...]) -> NamedProject:
    """The project of a row of `PROJECT_OF_NAME`."""
    project_id, takes_jobs, rules_version, role = row
    return NamedProject(project_id, takes_jobs, rules_version, _role(role))


RULES_OF_PROJECT: Final = Ready(
    select(func.coalesce(_PROJECTS.c.rules_version, 0), _PROJECTS.c.rules).where(
        _PROJECTS.c.id == bindparam("project_id", type_=Uuid)
    )
)


def principal_of(row: tuple[Any, ...] | Row[Any]) -> Principal:
    """The principal of a row that begins with the columns of one."""
    key_id, key_name, project_id, project_name, role, takes_jobs, rules_version = row[:7]
    person_id, person_name, member_role, elsewhere, is_fallback, project_ids = row[7:13]
    person, limit = None, Role.ADMIN if role is None else Role(role)
    if person_id is not None:
        person = Person(person_id, person_name, _role(elsewhere), limit)
        of_person = role_of_person(_role(member_role), person.elsewhere, limit)
        assert of_person is not None, "a person without a membership"
        limit = of_person
    return Principal(
        key_id,
        key_name or "",
        project_id,
        project_name,
        limit,
        takes_jobs,
        rules_version,
        person=person,
        project_is_fallback=bool(is_fallback),
        projects=None if project_ids is None else frozenset(project_ids),
    )


def _role(word: str | None) -> Role | None:
    return None if word is None else Role(word)
