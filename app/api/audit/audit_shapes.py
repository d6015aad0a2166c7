"""The shapes of answers about what people have done."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from app.api.serving.shapes import Shape
from app.domain.audit.audit_action import AuditAction, AuditOutcome, SubjectKind
from app.domain.audit.seal_check import DifferenceKind


class AuditEntryShape(Shape):
    """One action. `number`: null until a seal gives it one.

    `who`: the person's name, else the key's, `home/name` in a project that is not its own; null for
    what was done on the host, and for a machine that was given secrets. `project`: null for what
    concerns the deployment. `outcome`: `begun` where what it tells of is outside the database.
    Digests: SHA-256 of the canonical JSON of what changed.
    """

    number: int | None
    at: datetime
    action: AuditAction
    outcome: AuditOutcome
    who: str | None
    address: str | None
    request_id: str | None
    project: str | None
    subject_kind: SubjectKind
    subject_name: str
    subject_id: str
    digest_before: str | None
    digest_after: str | None
    key_id: UUID | None
    person_id: UUID | None
    id: UUID


class AuditPage(Shape):
    """Actions, the newest first. `next`: the cursor of the next part; null at the end."""

    items: list[AuditEntryShape]
    next: str | None


class RefusedShape(Shape):
    """Attempts of one minute that were refused. `key_prefix`: "" where no key was sent."""

    minute_at: datetime
    address: str
    key_prefix: str
    action: str
    attempts: int


class RefusedPage(Shape):
    """Counts, the newest minutes first. `next` is always null."""

    items: list[RefusedShape]
    next: None


class AuditDifferenceShape(Shape):
    """What disagrees. `seal`, `row`: numbers; null where it is about none.

    `last_row`: of missing rows that follow each other, from `row` on; null for a single one.
    """

    kind: DifferenceKind
    sentence: str
    seal: int | None
    row: int | None
    entry_id: UUID | None
    last_row: int | None


class UnsealedShape(Shape):
    """Rows that no seal has yet. `from_at`, `to_at`: of the oldest and the newest."""

    rows: int
    from_at: datetime | None
    to_at: datetime | None


class VerifiedShape(Shape):
    """What one part of a verification found. `agrees`: nothing differs in this part.

    `unsealed`: in the last part alone. `is_cut`: there are more differences than are listed, of
    the `differences_found`. `next`: the next part is `after` this seal; null at the end.
    """

    verified_at: datetime
    agrees: bool
    seals: int
    rows: int
    differences: list[AuditDifferenceShape]
    differences_found: int
    is_cut: bool
    unsealed: UnsealedShape | None
    next: int | None
