"""What a launch's answer means: machines get their rows, pools rest, the gang is filled anew.

Lives here: the consequences of an answer under the job's lock. Not here: the call
(`launch_instances`) or what each kind of refusal asks for (`app.domain.lifecycle.launch_errors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from app.domain.lifecycle.attempt import AttemptEvent, AttemptState
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Instance, Launch
from app.domain.lifecycle.instance import InstanceEvent, InstanceState
from app.domain.lifecycle.job import StopCause
from app.domain.lifecycle.launch import launch_outcome
from app.domain.lifecycle.launch_errors import (
    JobVerdict,
    RefusalKind,
    RefusalScope,
    covers,
    rule_of,
)
from app.domain.market.offer import Pool
from app.domain.placement.placement import bids_for_best_region
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.advance_attempt import advance_attempt
from app.orchestration.gang.end_attempt import end_attempt
from app.orchestration.gang.release_order import order_release
from app.orchestration.gang.shrink_gang import shrink_to_members
from app.orchestration.gang.stop_job import order_stop
from app.orchestration.instances.accept_machines import accept_machine
from app.orchestration.placement.read_offers import offers_for
from app.orchestration.transitions.lose_instances import fill_open_places, record_never_came
from app.ports.cloud_provider import AcceptedMachine, PoolRefusal

_TOLD_MAX = 5
_FULL = RefusalKind.NO_CAPACITY


def settle_launch(
    aggregate: JobAggregate,
    launch: Launch,
    accepted: tuple[AcceptedMachine, ...],
    refused: tuple[PoolRefusal, ...],
    limits: Limits,
) -> None:
    """The answer is complete: nothing is asked about this launch any more."""
    rows = unanswered(aggregate, launch)
    taken = list(zip(rows, accepted, strict=False))
    for instance, machine in taken:
        accept_machine(
            aggregate,
            instance,
            provider_instance_id=machine.provider_instance_id,
            pool=machine.pool,
            launched_at=machine.launched_at,
            launched_source=machine.launched_source,
            limits=limits,
            note=machine.note,
        )
    launch.outcome = launch_outcome(launch.count, len(taken))
    launch.settled_at, launch.next_call_at = aggregate.now, None
    told = "; ".join(f"{r.kind.value}: {r.message}" for r in refused[:_TOLD_MAX])
    launch.error = told or None
    why = told or "the cloud started fewer"
    too_few = len(taken) < launch.min_count
    short = [PoolRefusal(machine.pool, _FULL, why) for _, machine in taken] if too_few else []
    _cool_down(aggregate, launch, (*refused, *short))
    if too_few:
        _give_back(aggregate, launch, [instance for instance, _ in taken])
    never_came = rows[len(taken) :]
    for instance in never_came:
        instance.terminate_at = instance.describe_at = None
        aggregate.move_instance(instance, InstanceEvent.LAUNCH_REFUSED, f"Refused: {why}.")
    if too_few and _ask_a_person(aggregate, launch, refused, limits):
        return
    for instance in never_came:
        record_never_came(aggregate, instance, why)
    if never_came and not too_few and aggregate.spec.nodes.is_elastic:
        # Enough to begin with: the rest may join later, when growing repays.
        shrink_to_members(aggregate, why)
    # All open places at once, with those that waited for the zone to be known.
    fill_open_places(aggregate, limits)
    advance_attempt(aggregate, limits)


def unanswered(aggregate: JobAggregate, launch: Launch) -> list[Instance]:
    """The launch's rows that no machine has been given yet, by id."""
    waiting = (InstanceState.REQUESTED, InstanceState.LAUNCHING, InstanceState.TERMINATING)
    rows = [
        instance
        for instance in aggregate.instances.values()
        if instance.launch_id == launch.id
        and instance.state in waiting
        and instance.provider_instance_id is None
    ]
    return sorted(rows, key=lambda item: item.id)


def _give_back(aggregate: JobAggregate, launch: Launch, instances: list[Instance]) -> None:
    """A gang starts whole or not at all: its first machines do not wait for others elsewhere."""
    why = f"the cloud started {len(instances)} of {launch.count}"
    for instance in order_release(aggregate, instances, why):
        record_never_came(aggregate, instance, why)


def _cool_down(aggregate: JobAggregate, launch: Launch, refused: Iterable[PoolRefusal]) -> None:
    """Let rest what the refusals reach, each for its time."""
    asked = [Pool.parse(bid["pool"]) for bid in launch.bids]
    known: dict[Pool, str] | None = None
    rests: dict[Pool, tuple[datetime, str]] = {}
    for refusal in refused:
        rule = rule_of(refusal.kind)
        scope = refusal.scope or rule.scope
        reached = set(asked if refusal.pool is None else [refusal.pool])
        if scope is not RefusalScope.POOL:
            if known is None:
                offers = aggregate.uow.offers.all()
                known = {offer.pool: offer.hardware.quota for offer, _ in offers}
            reached |= _reached(reached, scope, known, both_markets=rule.both_markets)
        until = aggregate.now + timedelta(seconds=rule.cool_down_seconds)
        for pool in reached:
            rests[pool] = max(rests.get(pool, (until, "")), (until, refusal.kind.value))
    if rests:
        aggregate.uow.offers.cool_down_all(rests)


def _reached(
    pools: Iterable[Pool], scope: RefusalScope, known: Mapping[Pool, str], *, both_markets: bool
) -> set[Pool]:
    """known: every pool with the quota that counts it."""
    refused = list(pools)
    return {
        other
        for other in known
        if any(
            covers(pool, scope, other, both_markets=both_markets, quotas=known) for pool in refused
        )
    }


def _ask_a_person(
    aggregate: JobAggregate, launch: Launch, refused: tuple[PoolRefusal, ...], limits: Limits
) -> bool:
    """Stop the job with the cloud's sentence, where only a person can help and no other pool can.

    What trains goes on: what it may move to is asked for again when the pools have rested.
    """
    job, attempt = aggregate.job, aggregate.attempt
    fatal = next((r for r in refused if rule_of(r.kind).verdict is not None), None)
    if fatal is None or attempt is None or job.stop_cause is not None:
        return False
    if attempt.state is not AttemptState.PROVISIONING:
        return False
    gang, least = aggregate.gang_need, aggregate.spec.nodes.least
    if bids_for_best_region(offers_for(aggregate, gang, least, limits, anywhere=True)):
        return False
    text = f"{launch.provider} refuses the launch ({fatal.kind.value}): {fatal.message}"
    if rule_of(fatal.kind).verdict is JobVerdict.FAILS and job.started_at is None:
        aggregate.move_attempt(attempt, AttemptEvent.OFFERS_EXHAUSTED, text)
        end_attempt(aggregate, EndReason.CONFIGURATION_REJECTED, text, limits)
    else:
        # A job with progress behind it is not thrown away for a setting.
        order_stop(aggregate, StopCause.PAUSE, text, limits)
    return True
