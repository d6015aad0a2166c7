"""Secrets of a project: list them by name, set a value, rotate it, remove it.

Lives here: the verbs and their rules, each in the caller's transaction. No verb returns a value.
Not here: what a secret may be called and hold (`app.domain.deployment.secret_rules`), or another
key-encrypting key (`check_stored_values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from app.domain.access.may import AccessDecision, Resource, may, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.deployment.secret_rules import (
    SECRETS_OF_PROJECT_MAX,
    require_secret_name,
    require_secret_value,
)
from app.domain.units.errors import CommandRefused, NotFound
from app.orchestration.audit.record_action import record_action
from app.orchestration.frame.runtime import Runtime
from app.ports.value_encryption import KeyUnavailable, ValueEncryption
from app.storage.access.secret_repository import SecretRow
from app.storage.unit_of_work import UnitOfWork


def named_secrets(uow: UnitOfWork, principal: Principal) -> list[SecretRow]:
    """The secrets of the principal's project that it may name in a job. Raises Forbidden."""
    here = Resource(principal.project_id)
    require(principal, Action.NAME_SECRETS, here)
    manages = may(principal, Action.MANAGE_SECRETS, here) is AccessDecision.ALLOWED
    found = uow.secrets.secrets(principal.project_id)
    return [row for row in found if manages or not row.for_maintainers]


def set_secret(
    uow: UnitOfWork,
    runtime: Runtime,
    principal: Principal,
    name: str,
    value: str,
    *,
    for_maintainers: bool | None = None,
    must_exist: bool = False,
) -> SecretRow:
    """Give a secret of the principal's project a value; jobs get it from their next attempt on.

    for_maintainers: only jobs that maintainers submit may name it; None keeps what it is, of a new
    one False. must_exist: refuse a name that has no value yet, as one that was misspelt.

    Raises Forbidden, InvalidValue, NotFound, KeyUnavailable, and CommandRefused where the project
    has too many.
    """
    project_id = principal.project_id
    require(principal, Action.MANAGE_SECRETS, Resource(project_id))
    require_secret_name(name)
    content = require_secret_value(value)
    uow.secrets.lock_project(project_id)
    before = uow.secrets.secret(project_id, name)
    is_new = before is None or before.removed_at is not None
    if is_new and must_exist:
        raise _no_such(principal, name)
    if is_new:
        _require_room(uow, principal)
    encryption = encryption_of(runtime)
    require_key(uow, encryption)
    version = 1 if before is None else before.version + 1
    sealed = encryption.seal(content, secret_context(project_id, name, version))
    actor = str(principal.actor)
    after = SecretRow(
        id=runtime.entropy.new_id() if before is None else before.id,
        project_id=project_id,
        name=name,
        version=version,
        for_maintainers=_for_maintainers(before, for_maintainers),
        created_at=uow.now if before is None or is_new else before.created_at,
        created_by=actor if before is None or is_new else before.created_by,
        changed_at=uow.now,
        changed_by=actor,
        removed_at=None,
        key_id=sealed.key_id,
    )
    if before is None:
        uow.secrets.add(after, sealed)
    else:
        uow.secrets.change(after, sealed)
    told = None if before is None else _facts(before)
    record_action(
        uow, runtime.entropy, principal, AuditAction.SECRET_SET, _subject(after), told,
        _facts(after),
    )  # fmt: skip
    return after


def remove_secret(uow: UnitOfWork, runtime: Runtime, principal: Principal, name: str) -> SecretRow:
    """Delete a secret's value. Jobs that name it cannot begin another attempt; those that have it
    go on. Raises Forbidden and NotFound.
    """
    project_id = principal.project_id
    require(principal, Action.MANAGE_SECRETS, Resource(project_id))
    uow.secrets.lock_project(project_id)
    before = uow.secrets.secret(project_id, name)
    if before is None or before.removed_at is not None:
        raise _no_such(principal, name)
    after = replace(
        before,
        changed_at=uow.now,
        changed_by=str(principal.actor),
        removed_at=uow.now,
        key_id=None,
    )
    uow.secrets.change(after, None)
    record_action(
        uow, runtime.entropy, principal, AuditAction.SECRET_REMOVE, _subject(after), _facts(before),
        _facts(after),
    )  # fmt: skip
    return after


def secret_context(project_id: UUID, name: str, version: int) -> Sequence[str]:
    """What a value is encrypted for: it opens nowhere else."""
    return ("secret", str(project_id), name, str(version))


def encryption_of(runtime: Runtime) -> ValueEncryption:
    """The encryption of a program that has one; raises KeyUnavailable in one that has none."""
    if runtime.encryption is None:
        raise KeyUnavailable("This program does not store or read secrets.")
    return runtime.encryption


def known_keys(runtime: Runtime) -> tuple[str, ...]:
    """The ids of the keys that values can be read with; none where their file is of no use."""
    try:
        return encryption_of(runtime).key_ids()
    except KeyUnavailable:
        return ()


def require_key(uow: UnitOfWork, encryption: ValueEncryption) -> None:
    """A key to encrypt with; one is made for the first value alone. Raises KeyUnavailable."""
    if encryption.key_ids():
        return
    if uow.secrets.has_values() or uow.channels.has_values():
        raise KeyUnavailable(
            "The key file of the secrets is lost: put it back from your backup, at the place that "
            "LOWTIDE_SECRETS_KEY_FILE names. `lowtide secret verify` on the server says which "
            "secrets need it; docs/secrets.md what to do if there is no copy."
        )
    encryption.make_first_key()


def _require_room(uow: UnitOfWork, principal: Principal) -> None:
    if len(uow.secrets.secrets(principal.project_id)) >= SECRETS_OF_PROJECT_MAX:
        raise CommandRefused(
            f"The project {principal.project_name!r} has {SECRETS_OF_PROJECT_MAX} secrets, the "
            "most that one may have; remove those that no job names any more."
        )


def _for_maintainers(before: SecretRow | None, asked: bool | None) -> bool:
    if asked is not None:
        return asked
    return before is not None and before.removed_at is None and before.for_maintainers


def _no_such(principal: Principal, name: str) -> NotFound:
    return NotFound(f"The project {principal.project_name!r} has no secret {name[:80]!r}.")


def _subject(row: SecretRow) -> Subject:
    return Subject(SubjectKind.SECRET, str(row.id), row.name, row.project_id)


def _facts(row: SecretRow) -> dict[str, object]:
    """What a verb may change of a secret. Nothing is made of the value: even a digest would let
    who reads the audit try guesses.
    """
    return {
        "name": row.name,
        "version": row.version,
        "for_maintainers": row.for_maintainers,
        "removed_at": row.removed_at,
    }
