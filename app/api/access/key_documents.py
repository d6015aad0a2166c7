"""Keys as answers show them, with the projects that they name.

Not here: the secret of a key, which one answer has (`keys`, `own_keys`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from app.api.access.access_shapes import KeyShape
from app.api.serving.shapes import fields_of
from app.domain.access.principal import Principal
from app.orchestration.access.manage_projects import opened_ids
from app.storage.access.key_repository import KeyRow
from app.storage.unit_of_work import UnitOfWork


def key_documents(
    uow: UnitOfWork, caller: Principal, rows: Sequence[KeyRow]
) -> list[dict[str, Any]]:
    """In the project of the request. Projects that the caller does not open are left out."""
    names = names_of_opened(uow, caller, {one for row in rows for one in row.project_ids or ()})
    return [
        fields_of(
            KeyShape,
            row,
            project=caller.project_name,
            projects=None
            if row.project_ids is None
            else [name for one, name in names.items() if one in row.project_ids],
        )
        for row in rows
    ]


def names_of_opened(
    uow: UnitOfWork, caller: Principal, project_ids: Collection[UUID]
) -> dict[UUID, str]:
    """The names of those of these projects that the caller opens, in their order."""
    if not project_ids:
        return {}
    opened = opened_ids(uow, caller)
    return uow.keys.project_names(
        project_ids if opened is None else set(project_ids).intersection(opened)
    )
