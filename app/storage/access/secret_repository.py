"""Secrets of projects in PostgreSQL, as they were encrypted.

Not here: encryption, or who may manage which (`app.orchestration.secrets`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Select, exists, func, insert, select, update

from app.ports.value_encryption import SealedValue
from app.storage.schema import tables
from app.storage.session.record_session import RecordSession

_SECRETS: Final = tables.secrets
_PROJECTS: Final = tables.projects
# Whoever stores what is encrypted shares this lock, and who removes keys from their file holds it
# alone: no value is stored under a key that is removed at that moment.
_KEYS_IN_USE: Final = (0x10DE, 0x5EC0)


@dataclass(frozen=True)
class SecretRow:
    """A secret without its value. version: grows with each value that it gets.

    key_id: which key-encrypting key its value is under; None for one that was removed.
    """

    id: UUID
    project_id: UUID
    name: str
    version: int
    for_maintainers: bool
    created_at: datetime
    created_by: str
    changed_at: datetime
    changed_by: str
    removed_at: datetime | None
    key_id: str | None


@dataclass(frozen=True)
class StoredSecret:
    """A secret with what is stored of its value."""

    row: SecretRow
    sealed: SealedValue


_SHOWN: Final = tuple(_SECRETS.c[name] for name in SecretRow.__dataclass_fields__)


class SecretRepository:
    """Secrets, in the store."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session

    def lock_project(self, project_id: UUID) -> None:
        """Wait for everybody else who changes this project's secrets, or drops keys."""
        self._session.execute(select(func.pg_advisory_xact_lock_shared(*_KEYS_IN_USE)))
        statement = select(_PROJECTS.c.id).where(_PROJECTS.c.id == project_id)
        self._session.execute(statement.with_for_update(key_share=True))

    def lock_keys(self) -> None:
        """Wait for everybody who stores a value under a key, and let nobody begin."""
        self._session.execute(select(func.pg_advisory_xact_lock(*_KEYS_IN_USE)))

    def secrets(self, project_id: UUID) -> list[SecretRow]:
        """Those of a project that have a value, by name."""
        statement = (
            select(*_SHOWN)
            .where(_SECRETS.c.project_id == project_id, _SECRETS.c.removed_at.is_(None))
            .order_by(_SECRETS.c.name)
        )
        return [SecretRow(**row) for row in self._session.execute(statement).mappings()]

    def secret(self, project_id: UUID, name: str) -> SecretRow | None:
        """A project's secret, also one that was removed."""
        statement = select(*_SHOWN).where(
            _SECRETS.c.project_id == project_id, _SECRETS.c.name == name
        )
        found = self._session.execute(statement).mappings()
        return next((SecretRow(**row) for row in found), None)

    def has_values(self) -> bool:
        """Whether any project has a secret with a value."""
        stored = select(exists().where(_SECRETS.c.key_id.is_not(None)))
        return bool(self._session.execute(stored).scalar_one())

    def add(self, row: SecretRow, sealed: SealedValue) -> None:
        """Store a new secret."""
        self._session.execute(insert(_SECRETS).values(**vars(row), **_columns(sealed)))

    def change(self, row: SecretRow, sealed: SealedValue | None) -> None:
        """Store another state of a secret; None: its value is gone."""
        gone: dict[str, Any] = dict.fromkeys(("wrapped_key", "content"))
        values = {**vars(row), **(gone if sealed is None else _columns(sealed))}
        self._session.execute(update(_SECRETS).where(_SECRETS.c.id == row.id).values(values))

    def rewrap(self, secret_id: UUID, sealed: SealedValue) -> None:
        """Store a data key under another key-encrypting key; the value stays."""
        values = {"key_id": sealed.key_id, "wrapped_key": sealed.wrapped_key}
        self._session.execute(update(_SECRETS).where(_SECRETS.c.id == secret_id).values(values))

    def stored(
        self, limit: int, after: UUID | None = None, *, locked: bool = False
    ) -> list[StoredSecret]:
        """What is stored, of all projects, by id. after: the id of the one before."""
        statement = _stored().order_by(_SECRETS.c.id).limit(limit)
        if after is not None:
            statement = statement.where(_SECRETS.c.id > after)
        return self._read(statement.with_for_update() if locked else statement)

    def stored_of(self, project_id: UUID, names: Collection[str]) -> list[StoredSecret]:
        """What is stored under these names of a project, by name."""
        statement = _stored().where(_SECRETS.c.project_id == project_id, _SECRETS.c.name.in_(names))
        return self._read(statement.order_by(_SECRETS.c.name))

    def key_ids(self) -> Sequence[str]:
        """The key-encrypting keys that stored values are under."""
        statement = select(_SECRETS.c.key_id).where(_SECRETS.c.key_id.is_not(None)).distinct()
        return [row.key_id for row in self._session.execute(statement)]

    def _read(self, statement: Select[Any]) -> list[StoredSecret]:
        found = []
        for row in self._session.execute(statement).mappings():
            values = dict(row)
            sealed = SealedValue(values["key_id"], values.pop("wrapped_key"), values.pop("content"))
            found.append(StoredSecret(SecretRow(**values), sealed))
        return found


def _stored() -> Select[Any]:
    statement = select(*_SHOWN, _SECRETS.c.wrapped_key, _SECRETS.c.content)
    return statement.where(_SECRETS.c.key_id.is_not(None))


def _columns(sealed: SealedValue) -> dict[str, Any]:
    return {"wrapped_key": sealed.wrapped_key, "content": sealed.content}
