"""The rules of projects in PostgreSQL, as documents with a number.

Not here: what a document may hold (`app.domain.projects`), or who may change it (`manage_rules`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Select, func, select, update

from app.domain.projects.rules_document import RulesDocument
from app.storage.schema import tables
from app.storage.session.record_session import RecordSession

_PROJECTS: Final = tables.projects


@dataclass(frozen=True)
class RulesRow:
    """A project's rules. version: grows with each change; 0 where there have never been any."""

    project: str
    version: int
    document: RulesDocument
    changed_at: datetime | None
    changed_by: str | None


class RulesRepository:
    """Rules, in the store."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session

    def of(self, project_id: UUID, *, locked: bool = False) -> RulesRow:
        """A project's rules. locked: so that no one else changes them; submissions go on."""
        statement = _rules().where(_PROJECTS.c.id == project_id)
        if locked:
            statement = statement.with_for_update(key_share=True)
        return _row(*self._session.execute(statement).one())

    def lending_secrets(self) -> list[RulesRow]:
        """Those that let jobs name secrets of clouds, by the project's name."""
        lends = _PROJECTS.c.rules.has_key("secret_prefixes")
        statement = _rules().where(lends, _PROJECTS.c.archived_at.is_(None))
        return [_row(*row) for row in self._session.execute(statement.order_by(_PROJECTS.c.name))]

    def change(self, project_id: UUID, row: RulesRow) -> None:
        """Store other rules; from the next submission on they are in force."""
        self._session.execute(
            update(_PROJECTS)
            .where(_PROJECTS.c.id == project_id)
            .values(
                rules=row.document,
                rules_version=row.version,
                rules_changed_at=row.changed_at,
                rules_changed_by=row.changed_by,
            )
        )


def _rules() -> Select[Any]:
    return select(
        _PROJECTS.c.name,
        func.coalesce(_PROJECTS.c.rules_version, 0),
        _PROJECTS.c.rules,
        _PROJECTS.c.rules_changed_at,
        _PROJECTS.c.rules_changed_by,
    )


def _row(
    name: str,
    version: int,
    document: RulesDocument | None,
    changed_at: datetime | None,
    changed_by: str | None,
) -> RulesRow:
    return RulesRow(name, version, document or RulesDocument(), changed_at, changed_by)
