"""Bring the members of a project to what a file says: the difference first, then the single verbs.

Not here: the file's form (`app.domain.projects.projects_file`), or the rest of a project that a
file names (`apply_projects`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from app.domain.access.key_rules import require_grantable
from app.domain.access.may import DEPLOYMENT, AccessDecision, Resource, may, require
from app.domain.access.person_rules import folded
from app.domain.access.principal import Principal
from app.domain.access.roles import Action, Role
from app.domain.projects.projects_file import FieldChange
from app.domain.units.errors import CommandRefused, InvalidValue
from app.orchestration.access.manage_members import add_member, remove_member, set_member_role
from app.ports.entropy import Entropy
from app.storage.access.people_repository import MemberKind, MemberRow, PersonRow
from app.storage.unit_of_work import UnitOfWork

_MEMBERS_MAX: Final = 10_000
"""Members that a project may have for a file to change them."""


@dataclass(frozen=True)
class MemberChange:
    """A member, or a person that is none yet, with its role before and after; None: no member."""

    who: MemberRow | PersonRow
    before: Role | None
    after: Role | None

    @property
    def field(self) -> FieldChange:
        """As a difference of the project."""
        return FieldChange(f"members.{self.who.name}", self.before, self.after)


def member_changes(
    uow: UnitOfWork, principal: Principal, roles: Mapping[str, Role]
) -> list[MemberChange]:
    """What differs between the project's members and those of a file, by name.

    roles: the file's roles by name, address or id of a member. People that the file does not name
    are removed; service keys that it does not name stay, as a revoked key is lost for good.
    principal: what it is in the project.

    Raises InvalidValue for whom the project does not have and the principal cannot add, and for two
    names of one member; Forbidden for a role that the principal does not manage.
    """
    members = _members(uow, principal.project_id)
    changes: dict[UUID, MemberChange] = {}
    designated = _by_designation(members)
    for named, role in roles.items():
        who = _meant(uow, principal, designated, named)
        if who.id in changes:
            raise InvalidValue(f"members: {named!r} and another name mean {who.name!r}", "members")
        before = who.role if isinstance(who, MemberRow) else None
        changes[who.id] = MemberChange(who, before, role)
    for member in members:
        if member.kind is MemberKind.PERSON and member.id not in changes:
            changes[member.id] = MemberChange(member, member.role, None)
    differing = [change for change in changes.values() if change.before is not change.after]
    if differing:
        require(principal, Action.MANAGE_MEMBERS, Resource(principal.project_id))
    for change in differing:
        for changed in (change.before, change.after):
            if changed is not None:
                require_grantable(principal.role, changed)
    return sorted(differing, key=lambda change: folded(change.who.name))


def change_members(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, changes: Sequence[MemberChange]
) -> None:
    """Make the changes in the principal's project, new admins first, so that one may follow
    another.

    Raises CommandRefused for the last admin.
    """
    for change in sorted(changes, key=lambda change: change.after is not Role.ADMIN):
        named = str(change.who.id)
        if change.after is None:
            remove_member(uow, entropy, principal, named)
        elif isinstance(change.who, PersonRow):
            add_member(uow, entropy, principal, change.who, change.after)
        else:
            set_member_role(uow, entropy, principal, named, change.after)


def _members(uow: UnitOfWork, project_id: UUID) -> list[MemberRow]:
    members = uow.people.members(project_id, uow.now, _MEMBERS_MAX + 1)
    if len(members) > _MEMBERS_MAX:
        raise CommandRefused(
            f"members: the project has more than {_MEMBERS_MAX:,}; change them one by one with "
            "`lowtide member`."
        )
    return members


def _by_designation(members: Sequence[MemberRow]) -> dict[str, list[MemberRow]]:
    """Members by name, address in lower case, and id.

    A name with an @ is no designation: people choose their names, so who chooses another person's
    address would get the role that a file gives to that person.
    """
    designated = defaultdict(list)
    for member in members:
        designated[str(member.id)].append(member)
        if not _is_address(member.place):
            designated[member.place].append(member)
        if member.email is not None:
            designated[member.email.lower()].append(member)
    return designated


def _meant(
    uow: UnitOfWork,
    principal: Principal,
    designated: Mapping[str, Sequence[MemberRow]],
    named: str,
) -> MemberRow | PersonRow:
    """The member of that name, address or id; for an admin, else such a person of another project.

    Raises InvalidValue for none, and for several at one address.
    """
    designation = named.lower() if _is_address(named) else folded(named)
    meant: Sequence[MemberRow | PersonRow] = designated.get(designation, ())
    operates = may(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT) is AccessDecision.ALLOWED
    if not meant and operates:
        meant = _people(uow, named)
    if len(meant) > 1:
        raise InvalidValue(
            f"members: several people have the address {named!r}: write the name, or the id as "
            "`lowtide member --json` has it",
            "members",
        )
    if not meant:
        raise InvalidValue(
            f"members: the project {principal.project_name!r} has no member {named[:80]!r}. A file "
            "sends nobody a key: invite a person with `lowtide member invite`, or make a service "
            "key with `lowtide key create`, then apply the file",
            "members",
        )
    return meant[0]


def _people(uow: UnitOfWork, named: str) -> list[PersonRow]:
    if _is_address(named):
        return uow.people.people_at(named, 2)
    person = uow.people.person(named)
    return [] if person is None else [person]


def _is_address(named: str) -> bool:
    return "@" in named
