"""Write down what a person does, in the transaction that does it: the one way into the audit.

Two others write the same row by the statement of what they store: a submission
(`app.storage.jobs.submission_batch`) and a session (`app.storage.access.web_sessions`). Not here:
what a row holds (`app.domain.audit.audit_entry`).
"""

from __future__ import annotations

from collections.abc import Mapping

from app.domain.access.principal import Principal
from app.domain.audit.audit_action import AuditAction, AuditOutcome
from app.domain.audit.audit_entry import Subject, entry_of
from app.orchestration.frame.runtime import Runtime
from app.ports.entropy import Entropy
from app.storage.unit_of_work import UnitOfWork

Values = Mapping[str, object]


def record_action(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    action: AuditAction,
    subject: Subject,
    before: Values | None = None,
    after: Values | None = None,
) -> None:
    """The row is committed with this transaction, or neither is.

    before, after: what the action changes, as JSON has it; None where there is nothing.
    """
    uow.audit.add(entry_of(entropy.new_id(), uow.now, principal, action, subject, before, after))


def record_beginning(
    runtime: Runtime,
    principal: Principal,
    action: AuditAction,
    subject: Subject,
    after: Values,
) -> None:
    """Make the row durable before something begins that no transaction of ours can undo.

    after: what was ordered. The row says `begun`: whether it succeeded is not in it.
    """
    with runtime.begin() as uow:
        entry = entry_of(
            runtime.entropy.new_id(), uow.now, principal, action, subject,
            after=after, outcome=AuditOutcome.BEGUN,
        )  # fmt: skip
        uow.audit.add(entry)
