"""Keys and projects in PostgreSQL, for those who manage them.

Not here: how a request's key is known (`known_keys`), or who may manage which (`manage_keys`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, and_, exists, func, insert, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as insert_new

from app.domain.access.person_rules import folded
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.storage.access.known_keys import (
    NAME,
    OF_KEYS,
    PROJECT_OF_NAME,
    ROLE,
    NamedProject,
    is_good,
    name_in,
    named_project,
    principal_of,
    works_in,
)
from app.storage.schema import tables
from app.storage.session.record_session import RecordSession

_KEYS: Final = tables.api_keys
_PROJECTS: Final = tables.projects
_SESSIONS: Final = tables.sessions
_MEMBERS: Final = tables.memberships
_PEOPLE: Final = tables.people
_SHOWN: Final = (
    "id", "project_id", "person_id", "prefix", "created_at", "created_by", "expires_at",
    "last_used_at", "revoked_at", "revoked_by", "former_until_at", "project_ids",
)  # fmt: skip


@dataclass(frozen=True)
class KeyRow:
    """A key without its secret. prefix: what it begins with; None for those of before prefixes.

    person_id: whose it is; None for a service key. role: of a person's key, the most that it may.
    former_until_at: until when the key of before the last rotation is good, too. project_ids: of a
    person's key the only ones that it opens, of a service key those that it works in; None for a
    key that names none.
    """

    id: UUID
    project_id: UUID
    name: str
    role: Role
    prefix: str | None
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    former_until_at: datetime | None
    person_id: UUID | None = None
    project_ids: list[UUID] | None = None


@dataclass(frozen=True)
class ProjectRow:
    """A project. jobs: all that it ever had; keys: service keys that are good; members: people."""

    id: UUID
    name: str
    created_at: datetime
    archived_at: datetime | None
    jobs: int
    keys: int
    members: int


@dataclass(frozen=True)
class KeyOwner:
    """A person, with its keys in every project; or a project, with its service keys."""

    project_id: UUID
    person_id: UUID | None = None

    @property
    def condition(self) -> ColumnElement[bool]:
        """Of the owner's keys."""
        if self.person_id is not None:
            return _KEYS.c.person_id == self.person_id
        return and_(_KEYS.c.project_id == self.project_id, _KEYS.c.person_id.is_(None))

    def calls_a_key(self, name: str) -> ColumnElement[bool]:
        """Whether a key of the owner has the name."""
        return (_KEYS.c.name if self.person_id is None else _KEYS.c.own_name) == name


class KeyRepository:
    """Keys and projects, in the store."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session

    def lock_admins(self) -> None:
        """Wait for everybody else who would take an admin's key away, until this commits.

        Locks the deployment's row, which orders to sweep and destroy change, too.
        """
        self._session.execute(select(tables.deployment.c.id).with_for_update())

    def good_admins(self, now: datetime, without: tuple[UUID, UUID] | None = None) -> set[UUID]:
        """Admins' keys that are good and have no end: one of them must always be left.

        A person's counts while the person is an admin somewhere, and not disabled. without: person
        and project of a membership that is not counted, to ask who would be left without it.
        """
        person_is_admin = exists().where(
            _MEMBERS.c.person_id == _KEYS.c.person_id,
            _MEMBERS.c.role == Role.ADMIN,
            _PEOPLE.c.id == _KEYS.c.person_id,
            _PEOPLE.c.disabled_at.is_(None),
        )
        if without is not None:
            membership = tuple_(_MEMBERS.c.person_id, _MEMBERS.c.project_id)
            person_is_admin = person_is_admin.where(membership != tuple_(*without))
        statement = select(_KEYS.c.id).where(
            ROLE == Role.ADMIN,
            is_good(now),
            _KEYS.c.expires_at.is_(None),
            or_(_KEYS.c.person_id.is_(None), person_is_admin),
        )
        return {row.id for row in self._session.execute(statement)}

    def keys(self, owner: KeyOwner, now: datetime, limit: int) -> list[KeyRow]:
        """Keys that are good, then the others; each the newest first. A project's are also those of
        others that work in it, each as `home/key`.
        """
        if owner.person_id is not None:
            return self._keys(owner.condition, first=is_good(now), limit=limit)
        name = name_in(owner.project_id)
        works = works_in(owner.project_id)
        return self._keys(works, first=is_good(now), limit=limit, name=name)

    def count_good(self, owner: KeyOwner, now: datetime) -> int:
        """How many of the owner's keys are neither revoked nor over."""
        statement = select(func.count()).select_from(_KEYS).where(owner.condition, is_good(now))
        count: int = self._session.execute(statement).scalar_one()
        return count

    def key(self, owner: KeyOwner, name: str) -> KeyRow | None:
        """The owner's key of that name, locked."""
        found = self._keys(owner.condition, owner.calls_a_key(name), locked=True)
        return next(iter(found), None)

    def is_name_of_service_key(self, name: str) -> bool:
        """Whether a service key of any project, good or not, has a person's name.

        Letter case makes no other name: names of keys are in lower case.
        """
        same = _KEYS.c.name == folded(name)
        statement = select(exists().where(same, _KEYS.c.person_id.is_(None)))
        return bool(self._session.execute(statement).scalar_one())

    def expiry_of(self, key_id: UUID) -> datetime | None:
        """When a key ends; None for one without an end, and for one that has no row."""
        found = self._keys(_KEYS.c.id == key_id)
        return found[0].expires_at if found else None

    def service_key(self, key_id: UUID) -> KeyRow:
        """The service key of that id, locked."""
        [found] = self._keys(_KEYS.c.id == key_id, _KEYS.c.person_id.is_(None), locked=True)
        return found

    def project_names(self, project_ids: Collection[UUID]) -> dict[UUID, str]:
        """The names of these projects, in their order."""
        statement = (
            select(_PROJECTS.c.id, _PROJECTS.c.name)
            .where(_PROJECTS.c.id.in_(project_ids))
            .order_by(_PROJECTS.c.name)
        )
        return {row.id: row.name for row in self._session.execute(statement)}

    def add_key(self, row: KeyRow, key_hash: str) -> bool:
        """Store a key; False where its name is taken."""
        values = {**vars(row), "is_admin": row.role is Role.ADMIN}
        if row.person_id is not None:
            # The release before this one knows no people: to it, this is a viewer's key.
            values |= {"role": Role.VIEWER, "limit_role": row.role, "is_admin": False}
            values |= {"name": f"{row.person_id}/{row.name}", "own_name": row.name}
        statement = (
            insert_new(_KEYS)
            .values(**values, key_hash=key_hash)
            .on_conflict_do_nothing()
            .returning(_KEYS.c.id)
        )
        return self._session.execute(statement).one_or_none() is not None

    def replace_key(
        self, key_id: UUID, key_hash: str, prefix: str, former_until_at: datetime | None
    ) -> None:
        """Another secret for a key. former_until_at: until when the one of before is good, too."""
        former = None if former_until_at is None else _KEYS.c.key_hash
        self._change(
            key_id,
            key_hash=key_hash,
            prefix=prefix,
            former_hash=former,
            former_until_at=former_until_at,
        )

    def change_role(self, key_id: UUID, role: Role) -> None:
        """Another role for a service key."""
        self._change(key_id, role=role, is_admin=role is Role.ADMIN)

    def leave_project(self, key_id: UUID, project_id: UUID) -> None:
        """Let a service key work no more in a project that is not its own."""
        self._change(key_id, project_ids=func.array_remove(_KEYS.c.project_ids, project_id))

    def revoke_key(self, key_id: UUID, at: datetime, by: str) -> None:
        """End a key, and every secret that it had."""
        self._change(key_id, revoked_at=at, revoked_by=by, former_hash=None, former_until_at=None)

    def end_sessions(self, key_id: UUID, at: datetime) -> None:
        """Sign out every browser that signed in with this key."""
        self._session.execute(
            update(_SESSIONS)
            .where(
                _SESSIONS.c.key_id == key_id,
                _SESSIONS.c.ended_at.is_(None),
                # Others are removed by whoever signs in next, who waits for this key meanwhile.
                _SESSIONS.c.expires_at > at,
            )
            .values(ended_at=at)
        )

    def projects(self, now: datetime, limit: int, name: str | None = None) -> list[ProjectRow]:
        """All projects by name, or the one of that name."""
        jobs = (
            select(func.count())
            .where(tables.jobs.c.project_id == _PROJECTS.c.id)
            .correlate(_PROJECTS)
            .scalar_subquery()
        )
        keys = (
            select(func.count())
            .where(works_in(_PROJECTS.c.id), is_good(now))
            .correlate(_PROJECTS)
            .scalar_subquery()
        )
        members = (
            select(func.count())
            .where(_MEMBERS.c.project_id == _PROJECTS.c.id)
            .correlate(_PROJECTS)
            .scalar_subquery()
        )
        statement = select(
            _PROJECTS.c.id, _PROJECTS.c.name, _PROJECTS.c.created_at, _PROJECTS.c.archived_at,
            jobs, keys, members,
        ).order_by(_PROJECTS.c.name).limit(limit)  # fmt: skip
        if name is not None:
            statement = statement.where(_PROJECTS.c.name == name)
        return [ProjectRow(*row) for row in self._session.execute(statement)]

    def owner(self, key_id: UUID) -> Principal | None:
        """Whose key it is, and what it may do in its own project; None where no project opens."""
        row = self._session.execute(OF_KEYS.where(_KEYS.c.id == key_id)).one_or_none()
        return None if row is None else principal_of(row)

    def project(self, name: str, person_id: UUID | None) -> NamedProject | None:
        """The project of that name, and the person's role there: as quick for none as for one."""
        asked = {"name": name, "person_id": person_id}
        found = self._session.row(PROJECT_OF_NAME, asked)
        return None if found is None else named_project(found)

    def add_project(self, project_id: UUID, budget_id: UUID, name: str, at: datetime) -> bool:
        """Store a project and its budget, which has no cap; False where its name is taken."""
        made = self._session.execute(
            insert_new(_PROJECTS)
            .values(id=project_id, name=name, created_at=at)
            .on_conflict_do_nothing(index_elements=["name"])
            .returning(_PROJECTS.c.id)
        ).one_or_none()
        if made is None:
            return False
        self._session.execute(
            # Spending and reservations are counted from the start all the same.
            insert(tables.budgets).values(
                id=budget_id,
                project_id=project_id,
                job_id=None,
                cap_microusd=None,
                spent_microusd=0,
                reserved_microusd=0,
            )
        )
        return True

    def archive_project(self, project_id: UUID, at: datetime | None) -> None:
        """Let it take no new jobs from now on; None: let it take them again."""
        self._session.execute(
            update(_PROJECTS).where(_PROJECTS.c.id == project_id).values(archived_at=at)
        )

    def _keys(
        self,
        *conditions: ColumnElement[bool],
        first: ColumnElement[bool] | None = None,
        limit: int | None = None,
        locked: bool = False,
        name: ColumnElement[str] = NAME,
    ) -> list[KeyRow]:
        """first: what stands before the others. name: what they are called. locked: so that no one
        else changes them; submissions may go on naming them until they are changed.
        """
        statement = (
            select(*(_KEYS.c[one] for one in _SHOWN), name.label("name"), ROLE.label("role"))
            .where(*conditions)
            .order_by(*(() if first is None else (first.desc(),)), _KEYS.c.created_at.desc(), NAME)
            .limit(limit)
        )
        rows = self._session.execute(
            statement.with_for_update(key_share=True) if locked else statement
        )
        return [KeyRow(**row) for row in rows.mappings()]

    def _change(self, key_id: UUID, **values: object) -> None:
        self._session.execute(update(_KEYS).where(_KEYS.c.id == key_id).values(values))
