"""The projects that a key names: which ones it may, and who manages a key that works in several.

Not here: making, rotating and revoking keys (`manage_keys`), or what opens for a key that names
projects (`app.domain.access.may`).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from app.domain.access.key_rules import (
    PROJECTS_OF_KEY_MAX,
    require_grantable,
    require_within_projects,
)
from app.domain.access.may import Resource, require
from app.domain.access.principal import Person, Principal
from app.domain.access.roles import Action, Role
from app.domain.units.errors import Forbidden, InvalidValue, NotFound
from app.orchestration.access.manage_projects import OpenedProject, not_opened, opened_project
from app.storage.access.key_repository import KeyRow
from app.storage.unit_of_work import UnitOfWork


def projects_of_own_key(
    uow: UnitOfWork, principal: Principal, person: Person, names: Sequence[str]
) -> list[UUID]:
    """The projects of these names, for a key of the person that opens no others. The principal's
    own is the first if it is among them.

    Raises InvalidValue for none, for too many, and for one without a membership; NotFound for one
    that the principal does not open.
    """
    memberships = uow.people.roles_of(person.id)
    opened = _opened(uow, principal, names)
    for one in opened:
        if one.id not in memberships:
            # An admin opens it, and a key that names projects is no admin's.
            raise InvalidValue(
                f"projects: {person.name} is not a member of {one.caller.project_name!r}, and a "
                "key that is limited to projects opens only those of memberships",
                "projects",
            )
    return [one.id for one in opened]


def projects_of_service_key(
    uow: UnitOfWork, principal: Principal, names: Sequence[str], role: Role
) -> list[OpenedProject]:
    """The projects of these names, for a service key with this role in each. It belongs to the
    first, which is the principal's own if that is among them.

    Raises InvalidValue for none, for too many, and for a role of the whole deployment; NotFound for
    a project that does not open, Forbidden where the principal makes no such key in one of them.
    """
    require_within_projects(role)
    opened = _opened(uow, principal, names)
    for one in opened:
        require(one.caller, Action.MANAGE_KEYS, Resource(one.id))
        require_grantable(one.caller.role, role)
    return opened


def require_everywhere(uow: UnitOfWork, principal: Principal, row: KeyRow, role: Role) -> None:
    """Raises Forbidden where a service key works in several projects, and the principal makes none
    of this role in one of them: it would get there what it has not. Raises InvalidValue for a role
    of the whole deployment.
    """
    if row.project_ids is None:
        return
    names = list(uow.keys.project_names(row.project_ids).values())
    try:
        projects_of_service_key(uow, principal, names, role)
    except (NotFound, Forbidden) as error:
        raise Forbidden(
            f"The key {row.name!r} works in several projects. To rotate it or change its role, you "
            f"must be able to make a key with the role {role} in each of them."
        ) from error


def _opened(uow: UnitOfWork, principal: Principal, names: Sequence[str]) -> list[OpenedProject]:
    """Each once, the principal's own first, the others as written."""
    if not names or len(names) > PROJECTS_OF_KEY_MAX:
        raise InvalidValue(f"projects: name 1 to {PROJECTS_OF_KEY_MAX} of them", "projects")
    found = []
    for name in sorted(dict.fromkeys(names), key=lambda one: one != principal.project_name):
        opened = opened_project(uow, principal, name)
        if opened is None:
            raise NotFound(not_opened(principal, name))
        found.append(opened)
    return found
