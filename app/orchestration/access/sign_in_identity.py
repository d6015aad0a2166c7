"""Sign in who an issuer vouches for: the person of the account, and what its groups give.

Groups are read with each sign-in. A membership that follows them is added, changed and ended by
them; one that was made by hand stays. Not here: how the issuer's word is verified
(`app.adapters.oidc`), or the session (`app.web.access.issuer_sign_in`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from app.domain.access.identity_rules import (
    IssuerRules,
    VerifiedIdentity,
    names_to_try,
    roles_by_groups,
    trusted_email,
)
from app.domain.access.principal import Origin, Person, Principal
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import LOOKED_UP, Subject
from app.domain.units.errors import CommandRefused
from app.orchestration.access.last_admin import is_last_admin
from app.orchestration.access.manage_keys import own_keys, revoke_key
from app.orchestration.access.manage_members import person_named
from app.orchestration.audit.record_action import record_action
from app.ports.entropy import Entropy
from app.storage.access.identity_repository import MembershipRow
from app.storage.access.people_repository import PersonRow
from app.storage.unit_of_work import UnitOfWork

log = logging.getLogger(__name__)

_KEYS_MAX: Final = 1_000
_ADMINS_SHOWN: Final = 5


@dataclass(frozen=True)
class IdentitySignIn:
    """Who signed in. principal: in one of its projects; None for a member of none, who gets no
    session. keys_ended: because the account became that of a person who had them already.
    admins: of the deployment, by name, whom to ask.
    """

    name: str
    principal: Principal | None
    keys_ended: int = 0
    admins: tuple[str, ...] = ()


def sign_in_identity(
    uow: UnitOfWork,
    entropy: Entropy,
    rules: IssuerRules,
    identity: VerifiedIdentity,
    origin: Origin | None = None,
    visitor: Person | None = None,
) -> IdentitySignIn:
    """Find or make the person of an account, and let its memberships follow its groups.

    Nothing is stored of who is in no project. visitor: the person that has signed in already in
    the same browser. Raises CommandRefused for a disabled person, and where keys would end that
    cannot, as those of the last admin.
    """
    # Before the person and its memberships: whoever removes an admin locks in this order, too. It
    # also lets nobody else sign in with the same account or address meanwhile.
    uow.keys.lock_admins()
    roles = roles_by_groups(rules, identity)
    projects = uow.identities.project_ids(roles)
    for missing in sorted(roles.keys() - projects.keys()):
        log.warning("issuer %s: groups give the unknown project %s", rules.name, missing)
    wanted = {name: roles[name] for name in projects}
    found = _find(uow, rules, identity)
    if found is None and not wanted:
        return _outside(uow, next(names_to_try(identity)))
    person = found or _newcomer(uow, entropy, identity)
    if person.disabled_at is not None:
        raise CommandRefused(f"{person.name} is disabled; ask an admin.")
    nowhere = Principal(None, "", entropy.new_id(), "", Role.VIEWER, origin=origin)
    acting = replace(nowhere, person=Person(person.id, person.name, None, Role.ADMIN))
    keys_ended = _settle_account(uow, entropy, acting, identity, visitor)
    _follow_groups(uow, entropy, acting, rules, wanted, projects)
    memberships = uow.identities.memberships(person.id)
    if not memberships:
        return replace(_outside(uow, person.name), keys_ended=keys_ended)
    home = next(iter(memberships.values()))
    principal = replace(
        acting, project_id=home.project_id, project_name=home.project_name, role=home.role
    )
    return IdentitySignIn(person.name, principal, keys_ended)


def _outside(uow: UnitOfWork, name: str) -> IdentitySignIn:
    return IdentitySignIn(name, None, admins=tuple(uow.identities.admin_names(_ADMINS_SHOWN)))


def _find(uow: UnitOfWork, rules: IssuerRules, identity: VerifiedIdentity) -> PersonRow | None:
    """The person of the account, else the only one that is known by its address; locked."""
    person_id = uow.identities.person_id(identity)
    if person_id is not None:
        return person_named(uow, str(person_id))
    email = trusted_email(rules, identity)
    if email is None:
        return None
    matching = uow.identities.person_ids_of_email(email, identity.issuer)
    return person_named(uow, str(matching[0])) if len(matching) == 1 else None


def _newcomer(uow: UnitOfWork, entropy: Entropy, identity: VerifiedIdentity) -> PersonRow:
    """A new person, by the first of the issuer's names that nobody has."""
    email = identity.email if identity.email_verified else None
    for name in names_to_try(identity):
        person = PersonRow(entropy.new_id(), name, email, uow.now, None)
        if not uow.keys.is_name_of_service_key(name) and uow.people.add_person(person):
            return person
    raise CommandRefused(
        f"Too many people are called like {identity.names[:1]!r}. Ask an admin for an invitation, "
        "and choose a name with it."
    )


def _settle_account(
    uow: UnitOfWork,
    entropy: Entropy,
    acting: Principal,
    identity: VerifiedIdentity,
    visitor: Person | None,
) -> int:
    """Store whose account it is. Returns how many keys have ended by that.

    Who invites writes the address, and who accepts is not asked for it: the keys of before may be
    in other hands than the account. Only where the same browser shows both do they stay.
    """
    assert acting.person is not None
    if uow.identities.person_id(identity) is not None:
        uow.identities.signed_in(identity, uow.now)
        return 0
    uow.identities.link(identity, acting.person.id, uow.now)
    # Without the issuer's id of the account: some issuers take a person's name or address for it.
    account = f"{identity.issuer} {acting.person.id}"
    subject = Subject(SubjectKind.IDENTITY, account, LOOKED_UP, None)
    after = {"person_id": str(acting.person.id)}
    record_action(uow, entropy, acting, AuditAction.IDENTITY_LINK, subject, after=after)
    if visitor is not None and visitor.id == acting.person.id:
        return 0
    owner = own_keys(acting)
    good = [row for row in uow.keys.keys(owner, uow.now, _KEYS_MAX) if row.revoked_at is None]
    for row in good:
        revoke_key(uow, entropy, acting, owner, row.name)
    uow.people.end_sessions(acting.person.id, uow.now)
    return len(good)


def _follow_groups(
    uow: UnitOfWork,
    entropy: Entropy,
    acting: Principal,
    rules: IssuerRules,
    wanted: dict[str, Role],
    projects: dict[str, UUID],
) -> None:
    assert acting.person is not None
    person_id = acting.person.id
    now = uow.identities.memberships(person_id)
    for name in sorted(now.keys() | wanted.keys()):
        before, role = now.get(name), wanted.get(name)
        if before is None:
            assert role is not None
            by = f"issuer:{rules.name}"
            uow.people.add_member(person_id, projects[name], role, uow.now, by, rules.issuer)
            _record(uow, entropy, acting, projects[name], None, role)
            continue
        if before.issuer != rules.issuer or before.role is role:
            continue
        if before.role is Role.ADMIN and is_last_admin(uow, person_id, before.project_id):
            _keep_last_admin(uow, entropy, acting, before, role)
            continue
        if role is None:
            uow.people.remove_member(person_id, before.project_id)
        else:
            uow.people.set_role(person_id, before.project_id, role, rules.issuer)
        _record(uow, entropy, acting, before.project_id, before.role, role)


def _keep_last_admin(
    uow: UnitOfWork, entropy: Entropy, acting: Principal, kept: MembershipRow, role: Role | None
) -> None:
    log.warning(
        "%s stays admin of %s, against its groups: there is no other admin with a key without an "
        "end. Make one, and sign in again.",
        acting.name,
        kept.project_name,
    )
    action = AuditAction.MEMBER_KEPT
    _record(uow, entropy, acting, kept.project_id, kept.role, role, action)


def _record(
    uow: UnitOfWork,
    entropy: Entropy,
    acting: Principal,
    project_id: UUID,
    before: Role | None,
    after: Role | None,
    action: AuditAction = AuditAction.MEMBER_GROUP,
) -> None:
    """before, after: None where it is no member. Of what is kept, `after` is what groups say."""
    assert acting.person is not None
    subject = Subject(SubjectKind.MEMBER, str(acting.person.id), LOOKED_UP, project_id)
    facts: list[dict[str, object]] = [{"kind": "person", "role": role} for role in (before, after)]
    record_action(uow, entropy, acting, action, subject, facts[0], facts[1])
