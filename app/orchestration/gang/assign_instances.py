"""Who each instance works for: gapless, disjoint spans that the bill is split over.

Lives here: opening, moving and closing assignments, and the ranks of an attempt's machines. Not
here: which machines those are (`placement.methods`), or the money (`accrue_costs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from app.domain.lifecycle.entities import Assignment, AttemptMember, Instance
from app.orchestration.frame.aggregate import JobAggregate
from app.storage.unit_of_work import UnitOfWork


def assign(aggregate: JobAggregate, instance: Instance, attempt_id: UUID | None) -> None:
    """From now on the instance works for this attempt, or idles at the job's cost (None).

    Before the cloud has said when the machine began there is nothing to assign; the first
    assignment starts at that instant.
    """
    if instance.launched_at is None:
        return
    uow = aggregate.uow
    spans = uow.instances.assignments(instance.id)
    at = max(aggregate.now, instance.launched_at)
    if not spans:
        at = instance.launched_at
    else:
        last = spans[-1]
        if last.to_at is not None or last.attempt_id == attempt_id:
            return
        at = max(at, last.from_at)
        last.to_at = at
    uow.instances.add_assignment(
        Assignment(
            id=aggregate.entropy.new_id(),
            instance_id=instance.id,
            job_id=aggregate.job.id,
            attempt_id=attempt_id,
            from_at=at,
        )
    )


def place_members(aggregate: JobAggregate, instances: Sequence[Instance]) -> None:
    """Give instances the free ranks of the live attempt, lowest first."""
    attempt = aggregate.attempt
    if attempt is None:
        return
    used = {member.node_rank for member in aggregate.members}
    free = [rank for rank in range(attempt.node_count) if rank not in used]
    for rank, instance in zip(free, instances, strict=False):
        member = AttemptMember(attempt.id, instance.id, rank)
        aggregate.uow.attempts.add_member(member)
        aggregate.members.append(member)
        assign(aggregate, instance, attempt.id)
    aggregate.members.sort(key=lambda member: member.node_rank)


def move_start(uow: UnitOfWork, instance: Instance, started_at: datetime) -> None:
    """The machine began then, not when it seemed to: the first span does, and none before it."""
    spans = uow.instances.assignments(instance.id)
    for span in spans:
        span.from_at = max(span.from_at, started_at)
        if span.to_at is not None:
            span.to_at = max(span.to_at, started_at)
    if spans:
        spans[0].from_at = started_at
    uow.flush()


def end_assignments(uow: UnitOfWork, instance: Instance, ended_at: datetime) -> None:
    """The machine ended then: no span goes beyond, and the last one reaches it."""
    spans = uow.instances.assignments(instance.id)
    for span in spans:
        span.from_at = min(span.from_at, ended_at)
        if span.to_at is None or span.to_at > ended_at:
            span.to_at = ended_at
    if spans:
        spans[-1].to_at = max(ended_at, spans[-1].from_at)
    uow.flush()
