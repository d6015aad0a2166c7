"""Members: another role, or an end, for a person or a service key in a project; and people.

Lives here: the verbs and their rules, each in the caller's transaction. Not here: how one becomes a
member (`manage_invitations`), or what a role may do (`app.domain.access`).
"""

from __future__ import annotations

from app.domain.access.key_rules import require_grantable
from app.domain.access.may import DEPLOYMENT, require
from app.domain.access.person_rules import removed_name
from app.domain.access.principal import Principal
from app.domain.access.roles import Action, Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import LOOKED_UP, Subject
from app.domain.units.errors import CommandRefused, NotFound
from app.orchestration.access.key_projects import require_everywhere
from app.orchestration.access.last_admin import an_admin_stays
from app.orchestration.access.manage_keys import revoke_key, service_keys
from app.orchestration.audit.record_action import record_action
from app.ports.entropy import Entropy
from app.storage.access.key_repository import KeyOwner, KeyRow
from app.storage.access.people_repository import MemberKind, MemberRow, PersonRow
from app.storage.unit_of_work import UnitOfWork


def add_member(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, person: PersonRow, role: Role
) -> None:
    """Make a person that is in another project already a member of this one. For admins.

    Raises Forbidden, and CommandRefused where it is a member by now.
    """
    require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    project_id, by = principal.project_id, str(principal.actor)
    if not uow.people.add_member(person.id, project_id, role, uow.now, by):
        raise CommandRefused(f"{person.name} has become a member meanwhile; apply it again.")
    added = _manageable(uow, principal, str(person.id))
    subject, after = _subject(principal, added), _facts(added)
    record_action(uow, entropy, principal, AuditAction.MEMBER_ADD, subject, after=after)


def set_member_role(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, named: str, role: Role
) -> MemberRow:
    """Give a member of the project another role, at once for all its keys and sessions; the same
    again changes nothing.

    Raises NotFound, Forbidden for a role that the principal does not manage, before or after, in
    each of the projects that a key works in, and CommandRefused for the last admin's.
    """
    with an_admin_stays(uow):
        member = _manageable(uow, principal, named)
        require_grantable(principal.role, role)
        if member.role is role:
            return member
        if member.kind is MemberKind.KEY:
            require_everywhere(uow, principal, uow.keys.service_key(member.id), role)
            uow.keys.change_role(member.id, role)
        else:
            uow.people.set_role(member.id, principal.project_id, role)
    changed = _manageable(uow, principal, str(member.id))
    subject, before, after = _subject(principal, member), _facts(member), _facts(changed)
    record_action(uow, entropy, principal, AuditAction.MEMBER_ROLE, subject, before, after)
    return changed


def remove_member(uow: UnitOfWork, entropy: Entropy, principal: Principal, named: str) -> MemberRow:
    """End a person's membership, or revoke a service key; one of another project ends in this one
    alone. What it has submitted goes on.

    Raises as `set_member_role`.
    """
    with an_admin_stays(uow):
        member = _manageable(uow, principal, named)
        if member.kind is MemberKind.PERSON:
            uow.people.remove_member(member.id, principal.project_id)
        elif uow.keys.service_key(member.id).project_id == principal.project_id:
            revoke_key(uow, entropy, principal, service_keys(principal), member.name)
            return member
        else:
            uow.keys.leave_project(member.id, principal.project_id)
    subject, before = _subject(principal, member), _facts(member)
    removed = {**before, "role": None}
    record_action(uow, entropy, principal, AuditAction.MEMBER_REMOVE, subject, before, removed)
    return member


def set_disabled(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, named: str, *, disabled: bool
) -> PersonRow:
    """Disable a person, whose keys and sessions then do nothing, or enable it; the same again
    changes nothing.

    Raises NotFound, and CommandRefused for the last admin.
    """
    with an_admin_stays(uow):
        person = person_named(uow, named)
        if (person.disabled_at is not None) == disabled:
            return person
        uow.people.set_disabled(person.id, uow.now if disabled else None)
    changed = person_named(uow, str(person.id))
    record_action(
        uow,
        entropy,
        principal,
        AuditAction.PERSON_DISABLE if disabled else AuditAction.PERSON_ENABLE,
        # Of no project, as it holds in all of them.
        Subject(SubjectKind.PERSON, str(person.id), LOOKED_UP, None),
        {"disabled_at": person.disabled_at},
        {"disabled_at": changed.disabled_at},
    )
    return changed


def anonymise_person(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, named: str
) -> PersonRow:
    """Remove a person's name and address for good, and end all that it could do; again changes
    nothing. What it has done stays, in the name of someone who was removed. For admins.

    Raises Forbidden, NotFound, and CommandRefused for the last admin.
    """
    require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    with an_admin_stays(uow):
        person = person_named(uow, named)
        name = removed_name(person.id)
        if person.name == name:
            return person
        uow.people.anonymise(person, name, uow.now, str(principal.actor))
    # Neither the name nor its digest, by which a guess could be confirmed.
    facts: list[dict[str, object]] = [{"anonymised": one} for one in (False, True)]
    subject = Subject(SubjectKind.PERSON, str(person.id), LOOKED_UP, None)
    action = AuditAction.PERSON_ANONYMISE
    record_action(uow, entropy, principal, action, subject, facts[0], facts[1])
    return person_named(uow, str(person.id))


def keys_of_person(uow: UnitOfWork, principal: Principal, named: str, limit: int) -> list[KeyRow]:
    """The person's keys: those that are good, then the others. For admins.

    Raises Forbidden and NotFound.
    """
    require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    return uow.keys.keys(_keys_of(uow, principal, named), uow.now, limit)


def revoke_key_of_person(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, named: str, key_name: str
) -> KeyRow:
    """End a key of a person who cannot do it, as one that leaked; its other keys stay. For admins.

    Raises as `revoke_key`, and NotFound for the person.
    """
    require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    # Before the person: whoever disables a person locks in this order, too.
    uow.keys.lock_admins()
    return revoke_key(uow, entropy, principal, _keys_of(uow, principal, named), key_name)


def person_named(uow: UnitOfWork, named: str) -> PersonRow:
    """The person of that name or id, locked; raises NotFound."""
    found = uow.people.person(named)
    if found is None:
        raise NotFound(
            f"There is no person {named[:80]!r}: `lowtide person` lists all, for admins."
        )
    return found


def _keys_of(uow: UnitOfWork, principal: Principal, named: str) -> KeyOwner:
    return KeyOwner(principal.project_id, person_named(uow, named).id)


def _manageable(uow: UnitOfWork, principal: Principal, named: str) -> MemberRow:
    """The project's member of that name or id, locked; raises NotFound, and Forbidden for a role
    that the principal does not manage.
    """
    found = uow.people.member(principal.project_id, uow.now, named)
    if found is None:
        raise NotFound(f"The project {principal.project_name!r} has no member {named[:80]!r}.")
    require_grantable(principal.role, found.role)
    return found


def _subject(principal: Principal, row: MemberRow) -> Subject:
    name = row.name if row.kind is MemberKind.KEY else LOOKED_UP
    return Subject(SubjectKind.MEMBER, str(row.id), name, principal.project_id)


def _facts(row: MemberRow) -> dict[str, object]:
    return {"kind": row.kind, "role": row.role}
