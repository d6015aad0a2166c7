"""Projects: make one, archive it, take it back. For admins of the deployment.

Not here: the keys of a project (`manage_keys`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from app.domain.access.key_rules import require_name
from app.domain.access.may import AccessDecision, Resource, may, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.units.errors import CommandRefused, Hidden, NotFound
from app.orchestration.audit.record_action import record_action
from app.ports.entropy import Entropy
from app.storage.access.key_repository import ProjectRow
from app.storage.unit_of_work import UnitOfWork

_PROJECTS_STAY: Final = " The projects of a key never change: for another one, make another key."


def create_project(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, name: str
) -> ProjectRow:
    """A new project without keys. Raises InvalidValue and CommandRefused for its name."""
    require_name(name, "project")
    if not uow.keys.add_project(entropy.new_id(), entropy.new_id(), name, uow.now):
        raise CommandRefused(f"There is a project {name!r} already; choose another name.")
    made = project_named(uow, name)
    record_action(
        uow, entropy, principal, AuditAction.PROJECT_CREATE, _subject(made), after=_facts(made)
    )
    return made


def set_archived(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, name: str, *, archived: bool
) -> ProjectRow:
    """Let the project take no new jobs, or let it take them again; again changes nothing.

    Its jobs go on, and its keys still read. Raises NotFound.
    """
    project = project_named(uow, name)
    if (project.archived_at is not None) == archived:
        return project
    uow.keys.archive_project(project.id, uow.now if archived else None)
    changed = project_named(uow, name)
    action = AuditAction.PROJECT_ARCHIVE if archived else AuditAction.PROJECT_RESTORE
    record_action(
        uow, entropy, principal, action, _subject(project), _facts(project), _facts(changed)
    )
    return changed


def project_named(uow: UnitOfWork, name: str) -> ProjectRow:
    """The project of that name; raises NotFound."""
    found = uow.keys.projects(uow.now, 1, name)
    if not found:
        raise NotFound(f"There is no project {name[:80]!r}.")
    return found[0]


@dataclass(frozen=True)
class OpenedProject:
    """A project, and the caller as what it is there."""

    id: UUID
    is_archived: bool
    caller: Principal


def opened_project(uow: UnitOfWork, principal: Principal, name: str) -> OpenedProject | None:
    """The project of that name; None where there is none, which `not_opened` tells alike.

    Raises Hidden for one that the principal does not open.
    """
    found = uow.keys.project(name, principal.person_id)
    if found is None:
        return None
    archived = not found.takes_jobs
    if found.id == principal.project_id:
        return OpenedProject(found.id, archived, principal.in_named_project())
    project = Resource(found.id, member_role=found.member_role)
    if may(principal, Action.OPEN_PROJECT, project) is not AccessDecision.ALLOWED:
        raise Hidden(not_opened(principal, name))
    caller = principal.inside(
        found.id, name, found.takes_jobs, found.rules_version, found.member_role
    )
    return OpenedProject(found.id, archived, caller)


def opened_ids(uow: UnitOfWork, principal: Principal) -> Collection[UUID] | None:
    """The projects that the principal opens; None for all of them."""
    if principal.opens_every_project:
        return None
    if principal.person is None:
        return principal.projects or {principal.project_id}
    return {one for one in uow.people.roles_of(principal.person.id) if principal.covers([one])}


def audited_project(uow: UnitOfWork, principal: Principal, name: str) -> UUID:
    """The project of that name, whose audit the principal reads.

    Raises NotFound where it does not open, and Forbidden where its role there does not reach.
    """
    opened = opened_project(uow, principal, name)
    if opened is None:
        raise NotFound(not_opened(principal, name))
    require(opened.caller, Action.READ_AUDIT, Resource(opened.id))
    return opened.id


def not_opened(principal: Principal, name: str) -> str:
    """The same sentence, there or not: who may not know cannot learn."""
    another = "" if principal.projects is None else _PROJECTS_STAY
    if principal.person is not None and principal.projects is not None:
        return (
            f"There is no project {name[:80]!r} that the key {principal.key_name!r} of "
            f"{principal.name} opens, which is limited to some; {principal.project_name!r} is one."
            f"{another}"
        )
    if principal.person is not None:
        return (
            f"There is no project {name[:80]!r} that {principal.name} is a member of; "
            f"{principal.project_name!r} is one."
        )
    return (
        f"There is no project {name[:80]!r} that the key {principal.key_name!r} opens; "
        f"its own is {principal.project_name!r}.{another}"
    )


def _subject(row: ProjectRow) -> Subject:
    return Subject(SubjectKind.PROJECT, str(row.id), row.name, row.id)


def _facts(row: ProjectRow) -> dict[str, object]:
    return {"name": row.name, "archived_at": row.archived_at}
