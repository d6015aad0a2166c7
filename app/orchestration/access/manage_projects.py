"""Projects: make one, archive it, take it back. For admins of the deployment.

Not here: the keys of a project (`manage_keys`).
"""

from __future__ import annotations

from typing import Final

from app.domain.access.key_rules import require_name
from app.domain.units.errors import CommandRefused, NotFound
from app.ports.entropy import Entropy
from app.storage.access.key_repository import ProjectRow
from app.storage.unit_of_work import UnitOfWork

PROJECTS_MAX: Final = 1_000
"""So many are listed."""


def create_project(uow: UnitOfWork, entropy: Entropy, name: str) -> ProjectRow:
    """A new project without keys. Raises InvalidValue and CommandRefused for its name."""
    require_name(name, "project")
    if not uow.keys.add_project(entropy.new_id(), entropy.new_id(), name, uow.now):
        raise CommandRefused(f"There is a project {name!r} already; choose another name.")
    return project_named(uow, name)


def set_archived(uow: UnitOfWork, name: str, archived: bool) -> ProjectRow:
    """Let the project take no new jobs, or let it take them again; again changes nothing.

    Its jobs go on, and its keys still read. Raises NotFound.
    """
    project = project_named(uow, name)
    if (project.archived_at is not None) != archived:
        uow.keys.archive_project(project.id, uow.now if archived else None)
    return project_named(uow, name)


def project_named(uow: UnitOfWork, name: str) -> ProjectRow:
    """The project of that name; raises NotFound."""
    found = uow.keys.projects(uow.now, 1, name)
    if not found:
        raise NotFound(f"There is no project {name[:80]!r}.")
    return found[0]
