"""What the loss of a machine means: for the attempt it is in, and for the place it leaves.

Lives here: a notice, an end seen by the cloud, an instance that never came; and the decision who
takes its place, in the same transaction. Not here: who may declare a machine lost
(`reconcile_instances`, `watch_contacts`), or the methods of that decision (`placement.methods`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from app.domain.lifecycle.attempt import AttemptEvent, AttemptState, DrainCause
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Attempt, AttemptMember, Instance
from app.domain.lifecycle.instance import EndedBy, InstanceEvent, InstanceState
from app.domain.lifecycle.retry_policy import pool_cool_down_seconds
from app.domain.market.offer import Market
from app.domain.placement.decide import GangState, decide
from app.domain.units.durations import measured_duration
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.frame.silence import GivenUpBy
from app.orchestration.gang.advance_attempt import advance_attempt, enter_settling, order_drain
from app.orchestration.gang.assign_instances import end_assignments
from app.orchestration.gang.release_order import mark_for_termination, order_release
from app.orchestration.placement.read_offers import candidates
from app.orchestration.transitions.apply_decision import apply_decision
from app.orchestration.transitions.gather_gang import forming_state, lacking_state

ACCRUE_CONTROLLER = "accrue_costs"
# The last moments before the cloud's deadline are not promised to anyone.
DEADLINE_MARGIN_SECONDS = 1.0

_GONE: Final = {
    EndedBy.CLOUD_INTERRUPTION: "The machine is gone: the cloud interrupted it.",
    EndedBy.CLOUD_CAPACITY: "The machine is gone: the cloud had no capacity for it.",
    EndedBy.CLOUD_FAILURE: "The machine is gone: it failed in the cloud.",
    EndedBy.US: "The machine is gone: Lowtide ended it.",
    EndedBy.OS_SHUTDOWN: "The machine shut itself down.",
    EndedBy.RUN_LIMIT: "The machine is gone: it reached the longest run that was set for it.",
    EndedBy.OUTSIDER: "The machine is gone: somebody else ended it.",
    EndedBy.UNKNOWN: "The machine is gone; the cloud does not say why.",
}


def record_interruption(
    aggregate: JobAggregate, instance: Instance, deadline: datetime, source: str, limits: Limits
) -> None:
    """The cloud announced that it takes this machine at `deadline`."""
    earlier = instance.notice_deadline_at
    if earlier is not None and earlier <= deadline:
        return
    seconds = max(0.0, (deadline - aggregate.now).total_seconds())
    aggregate.move_instance(
        instance,
        InstanceEvent.INTERRUPTION_NOTICED,
        f"The cloud will interrupt this machine in {measured_duration(seconds)}.",
        seconds_left=seconds,
        source=source,
    )
    instance.noticed_at = instance.noticed_at or aggregate.now
    instance.notice_deadline_at = deadline
    instance.describe_at = min(instance.describe_at or deadline, deadline)
    member = aggregate.member_of(instance.id)
    if member is None or aggregate.attempt is None:
        return
    if aggregate.attempt.state is AttemptState.PROVISIONING:
        _member_missing(aggregate, member, "its cloud interrupts it before it could start", limits)
        return
    until = deadline - timedelta(seconds=DEADLINE_MARGIN_SECONDS)
    text = f"Node {member.node_rank} is being interrupted: every rank saves after its current step."
    order_drain(aggregate, DrainCause.INTERRUPTION, max(until, aggregate.now), text, limits)
    _replace(aggregate, limits)


def record_end(
    aggregate: JobAggregate,
    instance: Instance,
    *,
    ended_at: datetime,
    ended_source: str,
    ended_by: EndedBy,
    limits: Limits,
) -> None:
    """The cloud's word, or two witnesses, say that the machine is gone."""
    if instance.state is InstanceState.TERMINATED:
        return
    was_terminating = instance.state is InstanceState.TERMINATING
    instance.ended_at, instance.ended_source, instance.ended_by = ended_at, ended_source, ended_by
    instance.terminate_at = instance.describe_at = None
    # What was booked while it seemed to run rests on no end: its bill is due again.
    instance.billed_until_at = None
    instance.credential_hash = None
    aggregate.move_instance(
        instance,
        InstanceEvent.ABSENCE_CONFIRMED,
        _GONE[ended_by],
        ended_by=ended_by.value,
        source=ended_source,
    )
    if instance.launched_at is not None:
        end_assignments(aggregate.uow, instance, max(ended_at, instance.launched_at))
        aggregate.uow.notify_after_commit(ACCRUE_CONTROLLER)
    _leave_attempt(aggregate, instance, was_terminating, limits)


def record_stopping(
    aggregate: JobAggregate, instance: Instance, limits: Limits, ended_by: EndedBy | None = None
) -> None:
    """The cloud shows the machine shutting down: it is lost, though not yet gone.

    ended_by: who ends it, where the cloud says so already; the attempt's verdict rests on it.
    """
    if instance.state is InstanceState.TERMINATING:
        return
    instance.ended_by = ended_by
    aggregate.move_instance(
        instance, InstanceEvent.STOP_OBSERVED, "The cloud shows the machine shutting down."
    )
    instance.terminate_at = aggregate.now
    instance.describe_at = aggregate.now + timedelta(seconds=limits.describe_soon_seconds)
    _leave_attempt(aggregate, instance, False, limits)


def record_never_came(aggregate: JobAggregate, instance: Instance, message: str) -> None:
    """The launch of this instance was refused: its row has ended, its place is open again.

    The caller fills the places that a launch leaves open together (`fill_open_places`): one by one
    they could end up in different zones.
    """
    member, attempt = aggregate.member_of(instance.id), aggregate.attempt
    if member is not None and attempt is not None:
        _open_place(aggregate, attempt, member, message)


def record_overdue(aggregate: JobAggregate, instance: Instance, limits: Limits) -> None:
    """The cloud announced the end of this machine and it runs long after: we end it."""
    text = "The machine still runs long after the cloud said that it would end it: releasing it."
    aggregate.move_instance(instance, InstanceEvent.OVERDUE, text)
    mark_for_termination(aggregate, instance, "it still runs long after the cloud's notice")
    _leave_attempt(aggregate, instance, False, limits)


def record_unregistered(aggregate: JobAggregate, instance: Instance, limits: Limits) -> None:
    """No agent came up in time: the machine is given back and its pool rests for a while."""
    instance.register_until_at = None
    if instance.pool is not None:
        reason = EndReason.REGISTRATION_TIMEOUT
        until = aggregate.now + timedelta(seconds=pool_cool_down_seconds(reason))
        aggregate.uow.offers.cool_down(instance.pool, until, reason.value)
    order_release(aggregate, [instance], "its agent did not register in time")
    _leave_attempt(aggregate, instance, False, limits)


def record_broken_host(
    aggregate: JobAggregate, instance: Instance, reason: str, limits: Limits
) -> None:
    """It came where a fault was seen: it is released before it works, and asked for again."""
    order_release(aggregate, [instance], reason)
    _leave_attempt(aggregate, instance, False, limits)


def record_lease_over(aggregate: JobAggregate, instance: Instance, limits: Limits) -> None:
    """Its lease ended unanswered, so its trainer has stopped itself: the machine is released."""
    reason = "its agent did not renew its lease"
    order_release(aggregate, [instance], reason, given_up_by=GivenUpBy.LEASE)
    _leave_attempt(aggregate, instance, False, limits)


def _leave_attempt(
    aggregate: JobAggregate, instance: Instance, expected: bool, limits: Limits
) -> None:
    attempt, member = aggregate.attempt, aggregate.member_of(instance.id)
    if attempt is None or member is None:
        return
    if attempt.state is AttemptState.PROVISIONING:
        _member_missing(aggregate, member, "it ended before it could start", limits)
        return
    if member.outcome is None:
        text = f"The machine of node {member.node_rank} is gone."
        enter_settling(aggregate, AttemptEvent.MEMBER_GONE, text, limits)
        if not expected and not _is_evaluated_anew(aggregate):
            _replace(aggregate, limits)
    else:
        advance_attempt(aggregate, limits)


def _is_evaluated_anew(aggregate: JobAggregate) -> bool:
    """Whether the claim that follows decides: waiting or on-demand may cost less than a new gang.

    With machines left, or with a notice that gives new ones time to boot, nothing waits for it.
    """
    gang = aggregate.gang_need
    promised = aggregate.job.deadline_at is not None and aggregate.spec.effective_market() == "auto"
    return promised and gang.market is Market.SPOT and not candidates(aggregate, gang)


def _member_missing(
    aggregate: JobAggregate, member: AttemptMember, why: str, limits: Limits
) -> None:
    """A forming gang has an open place: ask again, while the bound allows."""
    attempt = aggregate.attempt
    if attempt is None:
        return
    _open_place(aggregate, attempt, member, why)
    fill_open_places(aggregate, limits)


def fill_open_places(aggregate: JobAggregate, limits: Limits) -> None:
    """Give every open place of a forming gang an instance: one at hand, or one more launch."""
    state = GangState(forming=forming_state(aggregate, limits))
    apply_decision(aggregate, decide(state), limits)


def _replace(aggregate: JobAggregate, limits: Limits) -> None:
    """Request what the next attempt will lack, before the present one has ended."""
    state = GangState(lacking=lacking_state(aggregate, aggregate.gang_need, limits))
    apply_decision(aggregate, decide(state), limits)


def _open_place(aggregate: JobAggregate, attempt: Attempt, member: AttemptMember, why: str) -> None:
    aggregate.uow.attempts.remove_member(member)
    aggregate.members = [other for other in aggregate.members if other is not member]
    text = f"The machine for node {member.node_rank} is missing: {why}."
    aggregate.move_attempt(attempt, AttemptEvent.MEMBER_MISSING, text)
