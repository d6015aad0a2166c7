"""Silence of agents: when it is shown, and when a machine may be given up because of it.

Lives here: unreachable and heard again, the lease that ended, the forced end. Not here: looks at
the cloud, whose word is the usual second witness (`reconcile_instances`).

Nothing is recovered on silence alone. An unreachable machine is shown as such and looked at once;
its work goes elsewhere when its cloud says that it is gone, or when its lease is over, for then
its agent has ended the training by its own clock. A machine that is silent for long while others
are heard is terminated, and still it is the cloud's word that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.instance import InstanceState
from app.domain.units.durations import format_duration
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.controller_frame import RowController
from app.orchestration.frame.look_order import order_look
from app.orchestration.frame.runtime import Limits
from app.orchestration.frame.silence import GivenUpBy, proven_alive_at, silence_seconds
from app.orchestration.gang.release_order import order_release
from app.orchestration.transitions.lose_instances import record_lease_over
from app.storage.instances.contact_statements import UnheardInstance
from app.storage.unit_of_work import UnitOfWork

WATCH_CONTROLLER = "watch_contacts"
_HEARD_STATES = (InstanceState.REGISTERED, InstanceState.INTERRUPTING)

# The agent counts its lease from the sending of the last answered report; we from its answer, by
# another clock: one part in a hundred, and a minute, cover the difference many times over.
LEASE_STRETCH = 1.01
LEASE_MARGIN_SECONDS = 60.0


@dataclass(frozen=True)
class ContactWork:
    """An instance whose silence begins, ends, or has gone on long enough."""

    instance_id: UUID
    job_id: UUID


class WatchContacts(RowController[ContactWork]):
    """The controller of silence."""

    name = WATCH_CONTROLLER
    limit = 100

    def select(self, uow: UnitOfWork, limit: int) -> list[ContactWork]:
        """Instances heard again, then newly silent ones, then those to be given up."""
        now, limits = uow.now, self._runtime.limits
        silence = timedelta(seconds=silence_seconds(limits))
        ids = uow.instances.heard_again_ids(now - silence, limit)
        since = _hearing_since(uow, now, limits)
        if since is not None and since + silence <= now:
            ids += uow.instances.silent_ids(now - silence, limit)
        work = []
        for instance_id in ids[:limit]:
            instance = uow.instances.get(instance_id)
            if instance is not None and instance.job_id is not None:
                work.append(ContactWork(instance_id, instance.job_id))
        for unheard in uow.contacts.unreachable(limit):
            due = _given_up_at(uow, unheard, since, now, limits)
            if due is not None and due.first <= now:
                work.append(ContactWork(unheard.instance_id, unheard.job_id))
        return work[:limit]

    def apply(self, uow: UnitOfWork, work: ContactWork, result: None) -> None:
        """Judge again under the job's lock, by what is known now."""
        with self.locked(uow, work.job_id) as aggregate:
            instance = uow.instances.get(work.instance_id)
            contact = uow.instances.contact(work.instance_id)
            if aggregate is None or instance is None or contact is None:
                return
            if instance.state in _HEARD_STATES:
                aggregate.adopt(instance)
                self._judge(aggregate, instance, contact.answered_at)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """The first instant at which `select` finds work, if nothing more is heard."""
        now, limits = uow.now, self._runtime.limits
        silence = timedelta(seconds=silence_seconds(limits))
        if uow.instances.heard_again_ids(now - silence, 1):
            return now
        since = _hearing_since(uow, now, limits)
        if since is None:
            return None
        instants = []
        oldest = uow.contacts.first_silent_at()
        if oldest is not None:
            instants.append(max(oldest, since) + silence)
        for unheard in uow.contacts.unreachable(self.limit):
            due = _given_up_at(uow, unheard, since, now, limits)
            if due is not None:
                instants.append(due.first)
        return min(instants, default=None)

    def _judge(self, aggregate: JobAggregate, instance: Instance, answered_at: datetime) -> None:
        uow, now, limits = aggregate.uow, aggregate.now, self._runtime.limits
        silence = timedelta(seconds=silence_seconds(limits))
        if answered_at > now - silence:
            if instance.unreachable_at is not None:
                _heard_again(aggregate, instance)
            return
        since = _hearing_since(uow, now, limits)
        if since is None or since + silence > now:
            return
        if instance.unreachable_at is None:
            _unreachable(aggregate, instance, answered_at)
            return
        unheard = UnheardInstance(instance.id, aggregate.job.id, answered_at)
        due = _given_up_at(uow, unheard, since, now, limits)
        if due is None or instance.state is not InstanceState.REGISTERED:
            return
        if due.lease_over_at <= now:
            record_lease_over(aggregate, instance, limits)
        elif due.forced_at is not None and due.forced_at <= now:
            # Only asked to go: its attempt waits for the cloud's word that it has gone.
            seconds = (now - answered_at).total_seconds()
            instance.forced_at = now
            reason = f"no report for {format_duration(seconds)}"
            order_release(aggregate, [instance], reason, given_up_by=GivenUpBy.SILENCE)


def lease_over_at(answered_at: datetime, limits: Limits) -> datetime:
    """From then on the agent has ended its training, whatever became of it."""
    seconds = LEASE_STRETCH * limits.agent_lease_seconds + LEASE_MARGIN_SECONDS
    return answered_at + timedelta(seconds=seconds)


def _hearing_since(uow: UnitOfWork, now: datetime, limits: Limits) -> datetime | None:
    """Since when agents could have been heard without a gap; None when they cannot be now."""
    hearing = uow.operations.hearing()
    if hearing.listening_at is None or hearing.hearing_since_at is None:
        return None
    gap = timedelta(seconds=limits.listening_gap_seconds)
    return None if now - hearing.listening_at > gap else hearing.hearing_since_at


@dataclass(frozen=True)
class _GivenUpAt:
    """When a silent machine may be given up: by its lease, or by force (None: not as yet)."""

    lease_over_at: datetime
    forced_at: datetime | None

    @property
    def first(self) -> datetime:
        """The earlier of the two."""
        return min(self.lease_over_at, self.forced_at or self.lease_over_at)


def _given_up_at(
    uow: UnitOfWork,
    unheard: UnheardInstance,
    since: datetime | None,
    now: datetime,
    limits: Limits,
) -> _GivenUpAt | None:
    """Both instants, by what is known now; None while agents cannot be heard.

    Both also need that agents could be heard for two missed reports: after an outage of ours a
    machine gets the time to say that it is there.
    """
    if since is None:
        return None
    silence = timedelta(seconds=silence_seconds(limits))
    over = max(lease_over_at(unheard.answered_at, limits), since + silence)
    near = uow.contacts.neighbours(unheard.instance_id, now - silence)
    if near.others and not near.heard:
        # Nobody is heard: the fault is more likely ours, or the network's, than the machine's.
        return _GivenUpAt(over, None)
    # A proof starts the wait anew.
    alive_at = proven_alive_at(uow, unheard.instance_id, unheard.answered_at, limits)
    quiet_since = max(unheard.answered_at, since, alive_at or since)
    return _GivenUpAt(over, quiet_since + timedelta(seconds=limits.force_silence_seconds))


def _unreachable(aggregate: JobAggregate, instance: Instance, answered_at: datetime) -> None:
    """Show it, and ask the cloud at once: its word is the second witness."""
    instance.unreachable_at = aggregate.now
    seconds = (aggregate.now - answered_at).total_seconds()
    aggregate.record(
        JobEventKind.INSTANCE_UNREACHABLE,
        f"No report from the machine for {format_duration(seconds)}; asking its cloud about it.",
        about=instance,
        silent_seconds=round(seconds, 3),
    )
    order_look(aggregate, instance)


def _heard_again(aggregate: JobAggregate, instance: Instance) -> None:
    instance.unreachable_at = None
    aggregate.record(
        JobEventKind.INSTANCE_HEARD_AGAIN,
        "The machine reports again.",
        about=instance,
    )
    if instance.suspect and aggregate.member_of(instance.id) is None:
        # Its attempt has ended without it, and it was spared only for what it may have been saving.
        order_release(aggregate, [instance], "its attempt ended without it")
