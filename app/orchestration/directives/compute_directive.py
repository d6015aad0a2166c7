"""What a machine should be doing now: a pure function of rows.

Lives here: the directive. Not here: how it reaches the agent (`agents.agents`). Its version is
the job's, so that an agent can tell an old answer from a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, AttemptMember, Instance, Job
from app.domain.lifecycle.instance import InstanceState
from app.domain.units.money import MICROUSD_PER_USD
from trainer.protocol.directive import Directive, DirectiveKind, Peer

_GOING = (InstanceState.TERMINATING, InstanceState.TERMINATED, InstanceState.LAUNCH_FAILED)
_DRAIN_SECONDS_MIN = 0.5


def compute_directive(
    job: Job,
    attempt: Attempt | None,
    members: Sequence[AttemptMember],
    instances: Mapping[UUID, Instance],
    instance: Instance,
    now: datetime,
) -> Directive:
    """The desired state of `instance`, a machine of this job."""
    if instance.state in _GOING:
        return Directive(DirectiveKind.LEAVE, job.version)
    member = next((m for m in members if m.instance_id == instance.id), None)
    if attempt is None or member is None or attempt.state is AttemptState.PROVISIONING:
        return Directive(DirectiveKind.HOLD, job.version)
    if member.outcome is not None:
        return Directive(DirectiveKind.HOLD, job.version)
    if attempt.state is AttemptState.DRAINING:
        return _drain(job, attempt, now)
    if attempt.state is AttemptState.SETTLING:
        return _stop(job, attempt)
    peers = tuple(_peer(other, instances) for other in members)
    if attempt.master_port is None:
        return Directive(
            DirectiveKind.PREPARE,
            job.version,
            fence=attempt.fence,
            attempt_id=str(attempt.id),
            node_rank=member.node_rank,
            peers=peers,
        )
    # An hour of the clock costs as many billed hours, where a bill runs faster.
    price = attempt.price_microusd_per_hour
    billed = None if price is None else price * instance.billing_speed
    return Directive(
        DirectiveKind.TRAIN,
        job.version,
        hazard_per_hour=attempt.hazard_per_hour,
        price_per_hour_usd=None if billed is None else billed / MICROUSD_PER_USD,
        fence=attempt.fence,
        attempt_id=str(attempt.id),
        node_rank=member.node_rank,
        peers=peers,
        master_addr=attempt.master_addr,
        master_port=attempt.master_port,
    )


def _drain(job: Job, attempt: Attempt, now: datetime) -> Directive:
    until = attempt.drain_until_at or now
    cause = attempt.drain_cause
    return Directive(
        DirectiveKind.DRAIN,
        job.version,
        fence=attempt.fence,
        attempt_id=str(attempt.id),
        drain_seconds=max(_DRAIN_SECONDS_MIN, (until - now).total_seconds()),
        drain_cause=cause,
    )


def _stop(job: Job, attempt: Attempt) -> Directive:
    """A peer is gone or has failed: what still runs cannot finish a step and is ended at once."""
    return Directive(
        DirectiveKind.STOP,
        job.version,
        fence=attempt.fence,
        attempt_id=str(attempt.id),
        stalled=attempt.stalled_at is not None,
    )


def _peer(member: AttemptMember, instances: Mapping[UUID, Instance]) -> Peer:
    instance = instances[member.instance_id]
    return Peer(
        node_rank=member.node_rank,
        address=instance.private_address or "",
        port_from=instance.port_from or 0,
        port_to=instance.port_to or 0,
    )
