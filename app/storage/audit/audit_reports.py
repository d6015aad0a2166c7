"""What is read of the audit: a part of the list, counts of refusals, seals with their rows.

Not here: writing (`audit_repository`), or who may read which (`app.api.audit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    Subquery,
    Uuid,
    and_,
    case,
    cast,
    func,
    or_,
    select,
    tuple_,
    union,
    union_all,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.elements import KeyedColumnElement

from app.domain.access.person_rules import NAME_MAX, folded
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import ENTRY_FIELDS, LOOKED_UP, AuditEntry
from app.domain.audit.seal_check import StoredSeal
from app.storage.schema import tables
from app.storage.schema.audit_tables import audit_entries, audit_refusals, audit_seals

WHO_MAX: Final = NAME_MAX + 64
"""Characters of the longest name that rows are looked up by: a person's, a slash, and a key's."""
_ENTRIES: Final = audit_entries.c
_ENTRY_COLUMNS: Final = tuple(_ENTRIES[name] for name in ENTRY_FIELDS)
_SEALS: Final = audit_seals.c
_REFUSALS: Final = audit_refusals.c
_Columns = ReadOnlyColumnCollection[str, KeyedColumnElement[Any]]


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What is listed. project_id: None is every project, and what belongs to none.

    who: the name of a person or a key, `project/key` as rows show it, or `person/key`. before: the
    `at` and `id` that the part before ended on.
    """

    project_id: UUID | None
    limit: int
    who: str | None = None
    actions: tuple[AuditAction, ...] = ()
    day: date | None = None
    before: tuple[datetime, UUID] | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A row for people. number: None until it is sealed. The rest below it are names as they are
    now; subject_person, subject_email: of what the action was done to, where the row has no name.
    """

    entry: AuditEntry
    number: int | None
    person: str | None
    key: str | None
    key_project: str | None
    project: str | None
    subject_person: str | None
    subject_email: str | None

    @property
    def subject_name(self) -> str:
        """What the action was done to, as people know it; its id where nothing else is known."""
        stored = self.entry.subject_name
        return stored or self.subject_person or self.subject_email or self.entry.subject_id

    @property
    def who(self) -> str | None:
        """The person, else the key as histories name it: `home/key` in a project not its own."""
        if self.person is not None:
            return self.person
        if self.key is None or self.key_project == self.project or self.project is None:
            return self.key
        return f"{self.key_project}/{self.key}"


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """Refused attempts of one minute. key_prefix: "" where none was sent."""

    minute_at: datetime
    address: str
    key_prefix: str
    action: str
    attempts: int


@dataclass(frozen=True, slots=True)
class UnsealedTail:
    """Rows that no seal has yet. from_at, to_at: of the oldest and the newest; None for none."""

    rows: int
    from_at: datetime | None
    to_at: datetime | None


class AuditReports:
    """Reads on an engine, each in a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def rows(self, wanted: AuditFilter) -> list[AuditRow]:
        """The newest rows first, at most `limit`."""
        with self._engine.connect() as connection:
            # By ids, each of which has an index with the order of the list; names have none.
            who = None if wanted.who is None else _ids_of(connection, wanted.who)
            found = connection.execute(_listed(wanted, who)).all()
        width = len(ENTRY_FIELDS)
        return [AuditRow(AuditEntry(*row[:width]), *row[width:]) for row in found]

    def refusals(self, day: date | None, limit: int) -> list[RefusedRow]:
        """Counts of refused attempts, the newest minutes first."""
        statement = (
            select(*audit_refusals.columns)
            .order_by(_REFUSALS.minute_at.desc(), _REFUSALS.attempts.desc(), *_REFUSALS)
            .limit(limit)
        )
        if day is not None:
            statement = statement.where(_on_day(_REFUSALS.minute_at, day))
        with self._engine.connect() as connection:
            return [RefusedRow(*row) for row in connection.execute(statement)]

    def seals(self, after: int, limit: int) -> list[StoredSeal]:
        """Seals with higher numbers, in their order."""
        statement = (
            select(
                _SEALS.number, _SEALS.sealed_at, _SEALS.previous, _SEALS.digest, _SEALS.first_row,
                _SEALS.last_row,
            )
            .where(_SEALS.number > after)
            .order_by(_SEALS.number)
            .limit(limit)
        )  # fmt: skip
        with self._engine.connect() as connection:
            return [StoredSeal(*row) for row in connection.execute(statement)]

    def seal(self, number: int) -> StoredSeal | None:
        """One seal."""
        found = self.seals(number - 1, 1)
        return found[0] if found and found[0].number == number else None

    def numbered(self, first: int, last: int) -> dict[int, AuditEntry]:
        """Rows by number, both ends included."""
        statement = select(*_ENTRY_COLUMNS, _ENTRIES.number).where(
            _ENTRIES.number.between(first, last)
        )
        with self._engine.connect() as connection:
            found = connection.execute(statement).all()
        return {row[-1]: AuditEntry(*row[:-1]) for row in found}

    def numbers_beyond(self, last: int, limit: int) -> list[int]:
        """Numbers above, the lowest first."""
        statement = select(_ENTRIES.number).where(_ENTRIES.number > last)
        with self._engine.connect() as connection:
            found = connection.execute(statement.order_by(_ENTRIES.number).limit(limit))
            return [row[0] for row in found]

    def count_unsealed(self, ids: Sequence[UUID]) -> int:
        """How many of these rows are there and have no number."""
        statement = select(func.count()).where(_ENTRIES.id.in_(ids), _ENTRIES.number.is_(None))
        with self._engine.connect() as connection:
            return connection.execute(statement).scalar_one()

    def unsealed(self) -> UnsealedTail:
        """The rows that no seal has yet."""
        statement = select(func.count(), func.min(_ENTRIES.at), func.max(_ENTRIES.at)).where(
            _ENTRIES.number.is_(None)
        )
        with self._engine.connect() as connection:
            return UnsealedTail(*connection.execute(statement).one())


def _ids_of(connection: Connection, who: str) -> ColumnElement[bool]:
    """The rows of the person of that name, or of service keys: `project/key`, or of every project.

    And of the keys of people: of `person/key`; of a name alone where nothing else has it, as it
    would hide among its rows those of somebody's own key.
    """
    keys, projects, people = tables.api_keys, tables.projects, tables.people
    home, _, name = who.rpartition("/")
    of_service = select(keys.c.id).where(keys.c.name == name, keys.c.person_id.is_(None))
    of_people = select(keys.c.id).where(keys.c.own_name == name, keys.c.person_id.is_not(None))
    if home:
        owners = of_people.join(people, people.c.id == keys.c.person_id)
        found = union(
            of_service.join(projects, projects.c.id == keys.c.project_id).where(
                projects.c.name == home
            ),
            owners.where(people.c.name_folded == folded(home)),
        )
        return _ENTRIES.key_id.in_(connection.execute(found).scalars().all())
    key_ids = connection.execute(of_service).scalars().all()
    person = select(people.c.id).where(people.c.name_folded == folded(name))
    person_id = connection.execute(person).scalar_one_or_none()
    if person_id is None:
        return _ENTRIES.key_id.in_(key_ids or connection.execute(of_people).scalars().all())
    of_person = _ENTRIES.person_id == person_id
    return or_(of_person, _ENTRIES.key_id.in_(key_ids)) if key_ids else of_person


def _listed(wanted: AuditFilter, who: ColumnElement[bool] | None) -> Select[*tuple[Any, ...]]:
    keys, projects, people = tables.api_keys, tables.projects, tables.people
    homes, subjects, invitations = projects.alias(), people.alias(), tables.invitations
    names = (people.c.name, keys.c.name, homes.c.name, projects.c.name)
    newest = _newest(wanted, who)
    entry = newest.c
    return (
        select(*entry, *names, subjects.c.name, invitations.c.email)
        .outerjoin_from(newest, people, people.c.id == entry.person_id)
        .outerjoin(keys, keys.c.id == entry.key_id)
        .outerjoin(homes, homes.c.id == keys.c.project_id)
        .outerjoin(projects, projects.c.id == entry.project_id)
        .outerjoin(subjects, subjects.c.id == _person_of_subject(entry))
        .outerjoin(invitations, invitations.c.id == _id_of_subject(entry, SubjectKind.INVITATION))
        .order_by(entry.at.desc(), entry.id.desc())
        .limit(wanted.limit)
    )


def _newest(wanted: AuditFilter, who: ColumnElement[bool] | None) -> Subquery:
    """The newest rows with a number and the newest without one, `limit` of each.

    Each part has indexes of its own. In one statement: a row that gets its number meanwhile is in
    one of them, and once.
    """
    rows = (
        select(*_ENTRY_COLUMNS, _ENTRIES.number)
        .order_by(_ENTRIES.at.desc(), _ENTRIES.id.desc())
        .limit(wanted.limit)
    )
    if wanted.project_id is not None:
        rows = rows.where(_ENTRIES.project_id == wanted.project_id)
    if who is not None:
        rows = rows.where(who)
    if wanted.actions:
        rows = rows.where(_ENTRIES.action.in_(wanted.actions))
    if wanted.day is not None:
        rows = rows.where(_on_day(_ENTRIES.at, wanted.day))
    if wanted.before is not None:
        rows = rows.where(tuple_(_ENTRIES.at, _ENTRIES.id) < tuple_(*wanted.before))
    number = _ENTRIES.number
    return union_all(rows.where(number.is_not(None)), rows.where(number.is_(None))).subquery()


def _person_of_subject(entry: _Columns) -> ColumnElement[UUID]:
    """The person whose name stands for a subject; NULL for none. Accounts and sessions are those of
    who acts.
    """
    is_own = entry.subject_kind.in_((SubjectKind.IDENTITY, SubjectKind.SESSION))
    own = case((and_(entry.subject_name == LOOKED_UP, is_own), entry.person_id))
    return func.coalesce(_id_of_subject(entry, SubjectKind.MEMBER, SubjectKind.PERSON), own)


def _id_of_subject(entry: _Columns, *kinds: SubjectKind) -> ColumnElement[UUID]:
    """The id of a subject of these kinds whose name is looked up; NULL for any other."""
    # A row that somebody has forged, with anything for an id, must not stop the list.
    is_id = entry.subject_id.regexp_match("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
    is_meant = and_(entry.subject_name == LOOKED_UP, entry.subject_kind.in_(kinds), is_id)
    return case((is_meant, cast(entry.subject_id, Uuid)))


def _on_day(at: ColumnElement[datetime], day: date) -> ColumnElement[bool]:
    begins = datetime.combine(day, time(), UTC)
    return and_(at >= begins, at < begins + timedelta(days=1))
