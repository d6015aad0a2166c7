"""Keys: make one, give it another secret, revoke it. The secret is returned once and never stored.

Lives here: the verbs and their rules, each in the caller's transaction: for service keys, which
those who manage a project's keys change, and for a person's own. Not here: what a role may do
(`app.domain.access`), or keys of another person (`manage_members`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.access.key_rules import (
    KEY_PREFIX,
    KEYS_OF_PERSON_MAX,
    MOST_IN_PROJECTS,
    OVERLAP_MAX,
    SHOWN_CHARACTERS,
    expiry_of,
    require_grantable,
    require_name,
    require_within_projects,
)
from app.domain.access.may import DEPLOYMENT, require
from app.domain.access.person_rules import RECOVERED_BY, RECOVERED_PREFIX
from app.domain.access.principal import Person, Principal
from app.domain.access.roles import Action, Role, within
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.deployment.credentials import digest
from app.domain.units.errors import CommandRefused, Forbidden, InvalidValue, NotFound
from app.domain.units.instants import format_instant
from app.orchestration.access.key_projects import (
    projects_of_own_key,
    projects_of_service_key,
    require_everywhere,
)
from app.orchestration.access.last_admin import an_admin_stays
from app.orchestration.audit.record_action import record_action
from app.ports.entropy import Entropy
from app.storage.access.key_repository import KeyOwner, KeyRow
from app.storage.unit_of_work import UnitOfWork

_NAMES_OF_RECOVERY_MAX = 1_000
_NAME_ENDING = 6


@dataclass(frozen=True)
class IssuedKey:
    """A key with its secret, which is known here alone."""

    row: KeyRow
    secret: str


def create_key(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    name: str,
    role: Role,
    life_seconds: float | None = None,
    *,
    projects: Sequence[str] | None = None,
    action: AuditAction = AuditAction.KEY_CREATE,
) -> IssuedKey:
    """A new service key of the principal's project. life_seconds: None is a key without an end.
    projects: names of those that it works in, with the same role in each. It belongs to the
    principal's, if that is among them, else to the first.

    Raises InvalidValue for a name or life that is none or too much, Forbidden for a role that the
    principal does not manage, also in one of the projects, NotFound for a project that does not
    open, CommandRefused where the name is taken.
    """
    require_name(name, "key")
    project_ids = None
    if projects is not None:
        opened = projects_of_service_key(uow, principal, projects, role)
        principal, project_ids = opened[0].caller, [one.id for one in opened]
    require_grantable(principal.role, role)
    expires_at = _expiry(uow, principal, life_seconds)
    if uow.people.person(name) is not None:
        raise CommandRefused(
            f"A person is called {name!r}, and histories name people and keys alike. Choose "
            "another name for the key."
        )
    owner = service_keys(principal)
    return _issue(uow, entropy, principal, owner, name, role, expires_at, project_ids, action)


def create_own_key(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    name: str,
    limit: Role | None = None,
    life_seconds: float | None = None,
    projects: Sequence[str] | None = None,
) -> IssuedKey:
    """A new key of the person itself. limit: the most that the key lets it do; None for all that it
    may. projects: names of the only ones that it opens; None for all that the principal's does.
    Where none is named, it works in the principal's, if that is among them, else in the first.

    Raises as `create_key`, and CommandRefused for a service key, which is nobody's, and for a
    person that has too many.
    """
    require_name(name, "key")
    person = _person_of(principal)
    require_room(uow, own_keys(principal))
    expires_at = _expiry(uow, principal, life_seconds)
    most = person.limit if limit is None else within(limit, person.limit)
    owner, project_ids = own_keys(principal), _inherited(principal)
    if projects is not None:
        require_within_projects(limit or MOST_IN_PROJECTS)
        most = within(most, MOST_IN_PROJECTS)
        project_ids = projects_of_own_key(uow, principal, person, projects)
        owner = KeyOwner(project_ids[0], person.id)
    return _issue(uow, entropy, principal, owner, name, most, expires_at, project_ids)


def _inherited(principal: Principal) -> list[UUID] | None:
    """What a key is limited to that the principal's makes."""
    return None if principal.projects is None else sorted(principal.projects)


def require_room(uow: UnitOfWork, owner: KeyOwner) -> None:
    """Locks the owner, a person. Raises CommandRefused where it has as many good keys as one may
    have.
    """
    person = uow.people.person(str(owner.person_id))
    assert person is not None
    if uow.keys.count_good(owner, uow.now) >= KEYS_OF_PERSON_MAX:
        raise CommandRefused(
            f"{person.name} has {KEYS_OF_PERSON_MAX} keys that are good. Revoke those that nobody "
            "uses any more: `lowtide key list --mine` shows the last use of each."
        )


def key_of_newcomer(
    uow: UnitOfWork,
    entropy: Entropy,
    newcomer: Principal,
    expires_at: datetime | None = None,
    where: str = "key",
) -> IssuedKey:
    """A key for a person who signs in without one: by an invitation, or a confirmed login.

    newcomer: the person; its limit and its projects are the key's. where: begins the key's name,
    which a number ends.
    """
    name = f"{where}-{entropy.new_id().hex[-_NAME_ENDING:]}"
    limit, owner = _person_of(newcomer).limit, own_keys(newcomer)
    return _issue(uow, entropy, newcomer, owner, name, limit, expires_at, _inherited(newcomer))


def _expiry(uow: UnitOfWork, principal: Principal, life_seconds: float | None) -> datetime | None:
    """When a key ends that the principal makes. Raises InvalidValue for one that would outlive its
    own.
    """
    expires_at = expiry_of(life_seconds, uow.now)
    own = end_before(uow, principal, expires_at)
    if own is not None:
        raise InvalidValue(
            f"expires_in: your own key ends at {format_instant(own)}, and makes none that lives "
            "longer; write a shorter time",
            "expires_in",
        )
    return expires_at


def end_before(
    uow: UnitOfWork, principal: Principal, expires_at: datetime | None
) -> datetime | None:
    """When the principal's own key ends, where that is before the end of another one. expires_at:
    that end; None for what has none.
    """
    own = None if principal.key_id is None else uow.keys.expiry_of(principal.key_id)
    return own if own is not None and (expires_at is None or expires_at > own) else None


def _issue(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    owner: KeyOwner,
    name: str,
    role: Role,
    expires_at: datetime | None,
    project_ids: list[UUID] | None,
    action: AuditAction = AuditAction.KEY_CREATE,
) -> IssuedKey:
    secret = KEY_PREFIX + entropy.new_token()
    row = KeyRow(
        id=entropy.new_id(),
        project_id=owner.project_id,
        name=name,
        role=role,
        prefix=secret[:SHOWN_CHARACTERS],
        created_at=uow.now,
        created_by=str(principal.actor),
        expires_at=expires_at,
        last_used_at=None,
        revoked_at=None,
        revoked_by=None,
        former_until_at=None,
        person_id=owner.person_id,
        project_ids=project_ids,
    )
    if not uow.keys.add_key(row, digest(secret)):
        raise CommandRefused(
            f"{_whose(principal, owner)} has a key {row.name!r} already, perhaps a revoked one; "
            "histories name keys, so a name is never used again. Choose another one."
        )
    record_action(uow, entropy, principal, action, _subject(row), after=_facts(row))
    return IssuedKey(row, secret)


def own_keys(principal: Principal) -> KeyOwner:
    """The person's keys. Raises CommandRefused for a service key."""
    return KeyOwner(principal.project_id, _person_of(principal).id)


def service_keys(principal: Principal) -> KeyOwner:
    """The keys of the principal's project that are nobody's."""
    return KeyOwner(principal.project_id)


def rotate_key(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    owner: KeyOwner,
    name: str,
    overlap_seconds: float,
) -> IssuedKey:
    """Another secret for the owner's key; the one of before stays good for the overlap.

    Browsers that signed in with it are signed out. Raises NotFound, InvalidValue and
    CommandRefused; Forbidden for a key that may do more, in more projects, or lives longer, than
    the principal's own, which would get its secret so.
    """
    if not 0 <= overlap_seconds <= OVERLAP_MAX.total_seconds():
        raise InvalidValue("overlap: write from 0s to 7d", "overlap")
    row = _manageable(uow, principal, owner, name)
    if owner.person_id is None:
        require_everywhere(uow, principal, row, row.role)
    own = end_before(uow, principal, row.expires_at)
    if own is not None and row.id != principal.key_id:
        raise Forbidden(
            f"Your own key ends at {format_instant(own)}, and the key {name!r} does not end before "
            "it. Rotate it with a key that lives as long."
        )
    if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= uow.now):
        ended = "has expired" if row.revoked_at is None else "is revoked"
        raise CommandRefused(f"The key {name!r} {ended}; make another one.")
    secret = KEY_PREFIX + entropy.new_token()
    until = uow.now + timedelta(seconds=overlap_seconds) if overlap_seconds else None
    uow.keys.end_sessions(row.id, uow.now)
    uow.keys.replace_key(row.id, digest(secret), secret[:SHOWN_CHARACTERS], until)
    rotated = _manageable(uow, principal, owner, name)
    record_action(
        uow, entropy, principal, AuditAction.KEY_ROTATE, _subject(row), _facts(row), _facts(rotated)
    )
    return IssuedKey(rotated, secret)


def revoke_key(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, owner: KeyOwner, name: str
) -> KeyRow:
    """End the owner's key, within a second or two everywhere, and sign out its browsers; again
    changes nothing. What it has submitted goes on.

    Raises NotFound, Forbidden, and CommandRefused for the last admin's key.
    """
    with an_admin_stays(uow):
        row = _manageable(uow, principal, owner, name)
        if row.revoked_at is not None:
            return row
        uow.keys.end_sessions(row.id, uow.now)
        uow.keys.revoke_key(row.id, uow.now, str(principal.actor))
    revoked = _manageable(uow, principal, owner, name)
    record_action(
        uow, entropy, principal, AuditAction.KEY_REVOKE, _subject(row), _facts(row), _facts(revoked)
    )
    return revoked


def recover_admin(uow: UnitOfWork, entropy: Entropy, project_name: str) -> IssuedKey:
    """A new admin's key for who has the database's address, and so could write any row.

    Raises NotFound for an unknown project.
    """
    found = uow.keys.projects(uow.now, 1, project_name)
    if not found:
        raise NotFound(f"There is no project {project_name!r} in this database.")
    project = found[0]
    owner = KeyOwner(project.id)
    names = (f"{RECOVERED_PREFIX}{number}" for number in range(1, _NAMES_OF_RECOVERY_MAX + 1))
    recovering = Principal(None, RECOVERED_BY, project.id, project.name, Role.ADMIN)
    free = next(
        name
        for name in names
        if uow.keys.key(owner, name) is None and uow.people.person(name) is None
    )
    return create_key(uow, entropy, recovering, free, Role.ADMIN, action=AuditAction.KEY_RECOVER)


def _manageable(uow: UnitOfWork, principal: Principal, owner: KeyOwner, name: str) -> KeyRow:
    """The owner's key of that name, locked. Raises NotFound, and Forbidden for a service key with a
    role that the principal does not manage, for an own key that may do more than the principal's,
    and for another person's key unless the principal is an admin.
    """
    row = uow.keys.key(owner, name)
    if row is None:
        raise NotFound(f"{_whose(principal, owner)} has no key {name[:80]!r}.")
    if owner.person_id is None:
        require_grantable(principal.role, row.role)
    elif owner.person_id != principal.person_id:
        require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    elif within(row.role, _person_of(principal).limit) is not row.role:
        raise Forbidden(
            f"Your own key may do at most what the role {_person_of(principal).limit} may, and the "
            f"key {row.name!r} what {row.role} may. Use a key that may do as much."
        )
    elif not principal.covers(row.project_ids):
        raise Forbidden(
            f"Your own key is limited to some projects, and the key {row.name!r} opens others. Use "
            "a key that opens as many."
        )
    return row


def _whose(principal: Principal, owner: KeyOwner) -> str:
    if owner.person_id is None:
        return f"The project {principal.project_name!r}"
    return principal.name if owner.person_id == principal.person_id else "This person"


def _person_of(principal: Principal) -> Person:
    if principal.person is None:
        raise CommandRefused(
            f"The key {principal.key_name!r} is a service key, which belongs to the project and to "
            "no person. People have keys of their own: accept an invitation."
        )
    return principal.person


def _subject(row: KeyRow) -> Subject:
    return Subject(SubjectKind.KEY, str(row.id), row.name, row.project_id)


def _facts(row: KeyRow) -> dict[str, object]:
    """What a verb may change of a key, for the audit's digests."""
    return {
        "name": row.name,
        "role": row.role,
        "prefix": row.prefix,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "former_until_at": row.former_until_at,
        "project_ids": None if row.project_ids is None else [str(one) for one in row.project_ids],
    }
