"""Keys as answers show them, with the projects that they name.

Not here: the secret of a key, which one answer has (`keys`, `own_keys`).
"""

from __future__ import annotations

from collections.abc import Sequence
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
    named = {one for row in rows for one in row.project_ids or ()}
    names: dict[UUID, str] = {}
    if named:
        opened = opened_ids(uow, caller)
        names = uow.keys.project_names(named if opened is None else named.intersection(opened))
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
