"""Keys: make one, give it another secret, revoke it. The secret is returned once and never stored.

Lives here: the verbs and their rules, each in the caller's transaction. Not here: what a role may
do (`app.domain.access`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from app.domain.access.key_rules import (
    KEY_PREFIX,
    OVERLAP_MAX,
    SHOWN_CHARACTERS,
    expiry_of,
    require_grantable,
    require_name,
)
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.deployment.credentials import digest
from app.domain.units.errors import CommandRefused, InvalidValue, NotFound
from app.domain.units.instants import format_instant
from app.orchestration.audit.record_action import record_action
from app.ports.entropy import Entropy
from app.storage.access.key_repository import KeyRow
from app.storage.unit_of_work import UnitOfWork

RECOVERED_BY = "recovery on the host"
"""Who made a key that nobody had the right to make: `lowtide key recover`."""
_NAMES_OF_RECOVERY_MAX = 1_000


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
    action: AuditAction = AuditAction.KEY_CREATE,
) -> IssuedKey:
    """A new key of the principal's project. life_seconds: None is a key without an end.

    Raises InvalidValue for a name or life that is none or too much, Forbidden for a role that the
    principal does not manage, CommandRefused where the name is taken.
    """
    require_name(name, "key")
    require_grantable(principal.role, role)
    secret = KEY_PREFIX + entropy.new_token()
    expires_at = expiry_of(life_seconds, uow.now)
    own = uow.keys.expiry_of(principal.key_id)
    if own is not None and (expires_at is None or expires_at > own):
        raise InvalidValue(
            f"expires_in: your own key ends at {format_instant(own)}, and makes none that lives "
            "longer; write a shorter time",
            "expires_in",
        )
    row = KeyRow(
        id=entropy.new_id(),
        project_id=principal.project_id,
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
    )
    if not uow.keys.add_key(row, digest(secret)):
        raise CommandRefused(
            f"The project {principal.project_name!r} has a key {name!r} already, perhaps a revoked "
            "one; histories name keys, so a name is never used again. Choose another one."
        )
    record_action(uow, entropy, principal, action, _subject(row), after=_facts(row))
    return IssuedKey(row, secret)


def rotate_key(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, name: str, overlap_seconds: float
) -> IssuedKey:
    """Another secret for the key; the one of before stays good for the overlap.

    Browsers that signed in with it are signed out. Raises NotFound, InvalidValue, Forbidden and
    CommandRefused.
    """
    if not 0 <= overlap_seconds <= OVERLAP_MAX.total_seconds():
        raise InvalidValue("overlap: write from 0s to 7d", "overlap")
    row = _manageable(uow, principal, name)
    if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= uow.now):
        ended = "has expired" if row.revoked_at is None else "is revoked"
        raise CommandRefused(f"The key {name!r} {ended}; make another one.")
    secret = KEY_PREFIX + entropy.new_token()
    until = uow.now + timedelta(seconds=overlap_seconds) if overlap_seconds else None
    uow.keys.end_sessions(row.id, uow.now)
    uow.keys.replace_key(row.id, digest(secret), secret[:SHOWN_CHARACTERS], until)
    rotated = _manageable(uow, principal, name)
    record_action(
        uow, entropy, principal, AuditAction.KEY_ROTATE, _subject(row), _facts(row), _facts(rotated)
    )
    return IssuedKey(rotated, secret)


def revoke_key(uow: UnitOfWork, entropy: Entropy, principal: Principal, name: str) -> KeyRow:
    """End a key, within a second or two everywhere, and sign out its browsers; again changes
    nothing. What it has submitted goes on.

    Raises NotFound, Forbidden, and CommandRefused for the last admin's key.
    """
    row = _manageable(uow, principal, name)
    if row.revoked_at is not None:
        return row
    if row.role is Role.ADMIN:
        uow.keys.lock_admins()
        if not uow.keys.good_admins(uow.now) - {row.id}:
            raise CommandRefused(
                f"{name!r} is the only key of an admin without an end: without it nobody could "
                "make another one. Make a second key with the role admin first."
            )
    uow.keys.end_sessions(row.id, uow.now)
    uow.keys.revoke_key(row.id, uow.now, str(principal.actor))
    revoked = _manageable(uow, principal, name)
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
    taken = {row.name for row in uow.keys.keys(project.id, _NAMES_OF_RECOVERY_MAX)}
    names = (f"recovered-{number}" for number in range(1, _NAMES_OF_RECOVERY_MAX + 2))
    recovering = Principal(entropy.new_id(), RECOVERED_BY, project.id, project.name, Role.ADMIN)
    free = next(name for name in names if name not in taken)
    return create_key(uow, entropy, recovering, free, Role.ADMIN, action=AuditAction.KEY_RECOVER)


def _manageable(uow: UnitOfWork, principal: Principal, name: str) -> KeyRow:
    """The project's key of that name, locked; raises NotFound, and Forbidden for a role that the
    principal does not manage.
    """
    row = uow.keys.key(principal.project_id, name)
    if row is None:
        raise NotFound(f"The project {principal.project_name!r} has no key {name[:80]!r}.")
    require_grantable(principal.role, row.role)
    return row


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
    }
