"""The row of one action, and the digests in it and of it.

Lives here: values and digests. Not here: storing rows (`app.storage.audit`), or seals (`seal`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final
from uuid import UUID

import orjson

from app.domain.access.principal import Principal
from app.domain.audit.audit_action import AuditAction, AuditOutcome, SubjectKind

LOOKED_UP: Final = ""
"""For the name or address of a person: whoever reads the row looks it up by the ids in it. A row is
never changed, so what is stored in it of a person could not be removed with the person's data.
"""
_CANONICAL: Final = orjson.OPT_SORT_KEYS | orjson.OPT_UTC_Z


@dataclass(frozen=True, slots=True)
class Subject:
    """What an action was done to. id: as text, unique in its kind; it tells nothing of a person.

    name: as people know it; LOOKED_UP for a person, a person's membership, account or session, and
    for an invitation.
    project_id: whose audit shows it; None for what concerns the whole deployment.
    """

    kind: SubjectKind
    id: str
    name: str
    project_id: UUID | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One row. key_id: None for who needed no key. person_id: None for a service key.

    address, request_id: None for what was done on the host. digest_before, digest_after: SHA-256
    (hex) of the canonical JSON of what was changed; None where there was nothing, or is none now.
    """

    id: UUID
    at: datetime
    project_id: UUID | None
    key_id: UUID | None
    person_id: UUID | None
    address: str | None
    request_id: str | None
    action: AuditAction
    subject_kind: SubjectKind
    subject_id: str
    subject_name: str
    digest_before: str | None
    digest_after: str | None
    outcome: AuditOutcome


ENTRY_FIELDS: Final = tuple(field.name for field in fields(AuditEntry))


def entry_of(
    entry_id: UUID,
    at: datetime,
    principal: Principal,
    action: AuditAction,
    subject: Subject,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    outcome: AuditOutcome = AuditOutcome.DONE,
) -> AuditEntry:
    """The row of what the principal does. before, after: what is changed, as JSON has it."""
    origin = principal.origin
    return AuditEntry(
        entry_id,
        at,
        subject.project_id,
        principal.key_id,
        principal.person_id,
        None if origin is None else origin.address,
        None if origin is None else origin.request_id,
        action,
        subject.kind,
        subject.id,
        subject.name,
        None if before is None else digest_of_values(before),
        None if after is None else digest_of_values(after),
        outcome,
    )


def digest_of_values(values: Mapping[str, object]) -> str:
    """SHA-256 (hex) of the canonical JSON: keys sorted, no blanks, instants in UTC."""
    return hashlib.sha256(orjson.dumps(values, option=_CANONICAL)).hexdigest()


def digest_of_entry(entry: AuditEntry) -> str:
    """SHA-256 (hex) of a whole row: what a seal holds of it."""
    return digest_of_values({name: getattr(entry, name) for name in ENTRY_FIELDS})
