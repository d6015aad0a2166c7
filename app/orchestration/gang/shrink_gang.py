"""A forming gang that goes on with fewer machines than it was to have.

Lives here: the places that are given up, and how long a gang waits for them. Not here: whether
others may be had (`fill_places`), or the size a gang begins with (`market_and_size`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import AttemptMember, Instance
from app.domain.lifecycle.instance import InstanceState
from app.orchestration.estimates.attempt_measures import own_limits
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.assign_instances import assign
from app.orchestration.gang.release_order import order_release
from app.orchestration.placement.market_and_size import set_size


def hold_seconds(aggregate: JobAggregate, limits: Limits) -> float:
    """How long idle survivors are worth keeping: no longer than their restart would take."""
    return min(limits.survivor_hold_seconds, own_limits(aggregate, limits).restart_seconds)


def form_until(aggregate: JobAggregate, at_hand: list[Instance], limits: Limits) -> datetime:
    """Until when a new attempt may form; an elastic one that could begin already waits less."""
    here = [one for one in at_hand if one.state is InstanceState.REGISTERED]
    nodes, seconds = aggregate.spec.nodes, limits.provisioning_seconds
    if nodes.is_elastic and len(here) >= nodes.least:
        seconds = min(seconds, hold_seconds(aggregate, limits))
    return aggregate.now + timedelta(seconds=seconds)


def shrink_to_members(aggregate: JobAggregate, why: str) -> bool:
    """Have the forming gang do with the machines that it has places for; False if too few."""
    return _shrink(aggregate, list(aggregate.members), why)


def shrink_to_registered(aggregate: JobAggregate, why: str) -> bool:
    """Have it do with those that are here; the others are released. False if too few."""
    here = [
        member
        for member in aggregate.members
        if aggregate.instances[member.instance_id].state is InstanceState.REGISTERED
    ]
    return _shrink(aggregate, here, why)


def reserve_places(aggregate: JobAggregate, count: int, why: str) -> None:
    """Have the forming gang be of `count`, its members and some that are asked for next."""
    attempt = aggregate.attempt
    if attempt is not None:
        _take_ranks(aggregate, list(aggregate.members))
        attempt.node_count = count
        set_size(aggregate, count, why)


def _shrink(aggregate: JobAggregate, kept: list[AttemptMember], why: str) -> bool:
    attempt, nodes = aggregate.attempt, aggregate.spec.nodes
    if attempt is None or attempt.state is not AttemptState.PROVISIONING:
        return False
    if not nodes.least <= len(kept) < attempt.node_count:
        return False
    let_go = [member for member in aggregate.members if member not in kept]
    for member in let_go:
        aggregate.uow.attempts.remove_member(member)
        assign(aggregate, aggregate.instances[member.instance_id], None)
    _take_ranks(aggregate, kept)
    attempt.node_count = len(kept)
    set_size(aggregate, len(kept), why)
    # Nothing else is wanted in this market, whoever asked for it.
    ours = {member.instance_id for member in kept}
    spare = [
        one
        for one in aggregate.usable()
        if one.id not in ours and one.market is aggregate.job.market_mode
    ]
    order_release(aggregate, spare, "the job continues without it")
    return True


def _take_ranks(aggregate: JobAggregate, kept: list[AttemptMember]) -> None:
    """Ranks count from 0 without a gap; before the machines are told of them they may move."""
    aggregate.members = sorted(kept, key=lambda member: member.node_rank)
    for rank, member in enumerate(aggregate.members):
        member.node_rank = rank
