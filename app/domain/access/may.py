"""May this key do that? One function, which every route, page and form asks.

Lives here: the decision and its sentence. Not here: the table of roles (`roles`), or how a key is
known (`app.api.serving.key_ring`, `app.web.session`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from uuid import UUID

from app.domain.access.principal import Principal
from app.domain.access.roles import CHANGES_OF_PROJECT, OWN_ROLES_OF, ROLES_OF, Action, Role
from app.domain.lifecycle.entities import Job
from app.domain.units.errors import Forbidden, Hidden


@dataclass(frozen=True, slots=True)
class Resource:
    """What an action is about.

    project_id: None is the deployment. owner_key_id, owner_person_id: of a job, the key and the
    person that submitted it; None where that is not known, as for jobs of before keys had roles.
    member_role: of the caller's membership, where the resource is a project to be opened.
    """

    project_id: UUID | None
    owner_key_id: UUID | None = None
    owner_person_id: UUID | None = None
    member_role: Role | None = None

    @classmethod
    def of_job(cls, job: Job) -> Resource:
        """A job, with the key and the person that submitted it."""
        return cls(job.project_id, job.owner_key_id, job.owner_person_id)


DEPLOYMENT: Final = Resource(None)


class AccessDecision(Enum):
    """The answer of `may`."""

    ALLOWED = auto()
    HIDDEN = auto()
    """Another project's: it is as if it were not there."""
    FORBIDDEN = auto()
    """The key's role does not reach."""


def may(principal: Principal, action: Action, resource: Resource) -> AccessDecision:
    """Whether this key, in the project of its request, may do this to that."""
    foreign = resource.project_id is not None and resource.project_id != principal.project_id
    if action is Action.OPEN_PROJECT:
        opens = not foreign or _opens(principal, resource)
        return AccessDecision.ALLOWED if opens else AccessDecision.HIDDEN
    if foreign:
        return AccessDecision.HIDDEN
    if resource.project_id is not None and _is_astray(principal, action):
        return AccessDecision.FORBIDDEN
    # An auditor of another project is one here, too, whatever else it is here.
    if not ROLES_OF[action].isdisjoint((principal.role, principal.reach)):
        return AccessDecision.ALLOWED
    if _is_own(principal, resource) and principal.role in OWN_ROLES_OF.get(action, ()):
        return AccessDecision.ALLOWED
    return AccessDecision.FORBIDDEN


def require(principal: Principal, action: Action, resource: Resource) -> None:
    """Nothing where `may` allows it; raises Hidden and Forbidden."""
    match may(principal, action, resource):
        case AccessDecision.HIDDEN:
            raise Hidden("There is nothing of that name in this project.")
        case AccessDecision.FORBIDDEN:
            raise Forbidden(_refusal(principal, action))
        case AccessDecision.ALLOWED:
            pass


def require_role(principal: Principal, action: Action) -> None:
    """Raises Forbidden where the key's role allows the action on nothing at all: before a look for
    the thing, which `require` is asked about.
    """
    roles = ROLES_OF[action] | OWN_ROLES_OF.get(action, frozenset())
    if principal.role not in roles or _is_astray(principal, action):
        raise Forbidden(_refusal(principal, action))


def require_somewhere(principal: Principal, action: Action) -> None:
    """Raises Forbidden where the key allows the action in no project at all: for a request that
    names its project itself, inside which `require` is asked.
    """
    most = principal.role if principal.person is None else principal.person.limit
    if most not in ROLES_OF[action]:
        raise Forbidden(_refusal(principal, action))


def _opens(principal: Principal, project: Resource) -> bool:
    """Another project than that of the request."""
    if principal.projects is not None and project.project_id not in principal.projects:
        return False
    if principal.person is None and principal.projects is not None:
        return True
    return project.member_role is not None or principal.opens_every_project


def _is_astray(principal: Principal, action: Action) -> bool:
    return principal.project_is_fallback and action in CHANGES_OF_PROJECT


def _is_own(principal: Principal, resource: Resource) -> bool:
    """A person's jobs are its own with every key that it has."""
    if principal.person is not None:
        return resource.owner_person_id == principal.person.id
    return resource.owner_key_id is not None and resource.owner_key_id == principal.key_id


def _refusal(principal: Principal, action: Action) -> str:
    if _is_astray(principal, action):
        return (
            f"{principal.name} is not a member of this key's own project any more, and another one "
            f"is changed only where the request names it, as {principal.project_name!r}: use "
            "--project, or choose a project on the page under your name."
        )
    needed = _listed(ROLES_OF[action])
    owners = OWN_ROLES_OF.get(action)
    besides = ""
    if owners is not None and principal.role in owners:
        besides = f", or is the {_listed(owners)} that submitted it"
    who, instead = f"The key {principal.key_name!r} has the role", "use a key that has"
    role, person = principal.role, principal.person
    if person is not None and person.limit not in ROLES_OF[action]:
        role = person.limit
        who = f"The key {principal.key_name!r} of {person.name} has the limit"
    elif person is not None:
        who, instead = f"{person.name} has the role", f"ask {_granting(principal, action)} for"
    return f"{who} {role}, which may not {action.value}; {instead} the role {needed}{besides}."


def _granting(principal: Principal, action: Action) -> str:
    """Who can give a person a role that is enough. The project is named, as a person has a role in
    each of its own, and the request may have meant another.
    """
    if ROLES_OF[action] <= {Role.AUDITOR, Role.ADMIN}:
        return "an admin"
    return f"a maintainer or an admin of the project {principal.project_name!r}"


def _listed(roles: Collection[Role]) -> str:
    """Their names, from the least to the most, as "maintainer or admin"."""
    names = [role.value for role in Role if role in roles]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
