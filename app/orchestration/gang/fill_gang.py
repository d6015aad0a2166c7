"""Give every place of a forming gang an instance, and ask early for what the next one will lack.

Lives here: which instances count, where more may come from, and who gets which rank. Not here:
the order's rows (`order_instances`) or why a place became free (`lose_instances`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from app.domain.lifecycle.attempt import AttemptEvent, AttemptState
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import AttemptMember, Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, JobState
from app.domain.market.offer import Market, Offer, Pool
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.gang_size import choose_size, size_options
from app.domain.placement.no_offer import why_none_fits
from app.domain.placement.patience import patient
from app.domain.placement.placement import (
    PlacementDomain,
    RankedOffer,
    bids_for_best_region,
    need_of,
    rank_offers,
)
from app.domain.placement.placement_decision import DecisionVerdict
from app.orchestration.estimates.read_start_up import own_limits
from app.orchestration.estimates.work_by_gpu import quick_enough, speeds_of
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.lost_rows import lists_are_awaited, numbered_before_gap
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.advance_attempt import advance_attempt
from app.orchestration.gang.assign_instances import assign
from app.orchestration.gang.end_attempt import end_attempt
from app.orchestration.gang.move_gang import bears_both, counted_on, lose_old_machines
from app.orchestration.gang.order_instances import LaunchPurpose, order_instances
from app.orchestration.gang.reserve_budget import bids_within_budget
from app.orchestration.gang.shrink_gang import reserve_places, shrink_to_members
from app.orchestration.placement.choose_gang_size import first_of, size_question
from app.orchestration.placement.decision_log import Reason, Reasons, pool_words, record_decision
from app.orchestration.placement.price_restores import restore_of
from app.orchestration.placement.shortlist import Shortlist, queue_need
from app.orchestration.placement.spot_rules import could_go_back, patience_of

RECENT_INTERRUPTION = timedelta(minutes=30)
# A lost machine may have been the last thing a job waited for: what has ended needs no other one.
_GOING_ON = CLAIMABLE_JOB_STATES | {JobState.STARTING, JobState.RUNNING}


@dataclass(frozen=True)
class MoreMachines:
    """How many more machines a gang may get, and where.

    bids: offers that one launch may take them from; none where none fits. considered: all offers,
    judged for so many.
    """

    count: int
    bids: tuple[Offer, ...]
    considered: tuple[RankedOffer, ...]


def fill_gang(
    aggregate: JobAggregate, limits: Limits, reserved: Sequence[Offer] | None = None
) -> None:
    """Give every open place of a forming gang an instance: one at hand, or one more launch.

    reserved: offers that were chosen and reserved for already; else they are chosen here.
    """
    attempt = aggregate.attempt
    if attempt is None or attempt.state is not AttemptState.PROVISIONING:
        return
    gang, taken = aggregate.gang_need, {member.instance_id for member in aggregate.members}
    idle = [instance for instance in candidates(aggregate, gang) if instance.id not in taken]
    place_members(aggregate, idle[: attempt.node_count - len(taken)])
    missing = attempt.node_count - len(aggregate.members)
    if missing == 0 or _zone_undecided(aggregate, gang):
        advance_attempt(aggregate, limits)
        return
    if numbered_before_gap(aggregate.uow, attempt):
        why = "agents were not heard for a while, and its number may be known to other machines"
        _end_forming(aggregate, EndReason.FENCED_OFF, why, limits)
        return
    if attempt.launches_made >= limits.launches_per_attempt_max:
        _do_with_less(aggregate, "too many launches failed", limits)
        return
    offers = reserved
    if offers is None:
        offers, missing = _choose_offers(aggregate, missing, limits)
        if not offers:
            return
    _, instances = order_instances(
        aggregate,
        offers,
        count=missing,
        market=gang.market,
        purpose=LaunchPurpose.GANG,
        limits=limits,
        min_count=least_more(aggregate, missing, len(aggregate.members)),
    )
    attempt.launches_made += 1
    place_members(aggregate, instances)


def _choose_offers(
    aggregate: JobAggregate, missing: int, limits: Limits
) -> tuple[Sequence[Offer], int]:
    """What to ask for the open places with, and how many of them; none where it ended here."""
    gang = aggregate.gang_need
    more = choose_more(aggregate, gang, missing, len(aggregate.members), limits)
    if not more.bids:
        _do_with_less(aggregate, why_none(aggregate, gang, missing, limits), limits)
        return (), 0
    count, considered = more.count, more.considered
    if count < missing:
        why = f"only {count} of the {missing} missing machines are available"
        reserve_places(aggregate, len(aggregate.members) + count, why)
        gang = aggregate.gang_need
        considered = offers_for(aggregate, gang, count, limits)
    enough = len(aggregate.members) >= aggregate.spec.nodes.least
    enough = enough or could_go_back(aggregate, gang, limits)
    offers = bids_within_budget(aggregate, more.bids, count, limits, can_do_without=enough)
    if not offers and enough:
        _do_with_less(aggregate, "the budget allows no other machine", limits)
    if offers:
        where = pool_words([offer.pool for offer in offers])
        told = f"Not all requested machines started; now {where}."
        asked = replace(more, bids=offers, considered=considered)
        reason = Reason(DecisionVerdict(gang.market), "next_offer", told)
        _record_request(aggregate, gang, reason, asked, limits)
    return offers, count


def choose_more(
    aggregate: JobAggregate, gang: GangNeed, missing: int, at_hand: int, limits: Limits
) -> MoreMachines:
    """Offers for the missing machines, and for how many: an elastic gang takes what there is.

    at_hand: machines that the gang has already; without any it is asked for as a whole, in the
    size that suits it.
    """
    whole = exactly(aggregate, gang, missing, limits)
    least = least_more(aggregate, missing, at_hand)
    if whole.bids or least == missing:
        return whole
    judged, speeds = offers_for(aggregate, gang, least, limits), speeds_of(aggregate)
    if at_hand == 0:
        options = size_options(judged, range(least, missing + 1), speeds)
        question = size_question(
            aggregate, gang, limits, counted_in=first_of(judged), speeds=speeds
        )
        choice = choose_size(options, question)
        count = 0 if choice is None else choice.count
    else:
        sizes = range(least, missing)
        count = max((o.count for o in size_options(judged, sizes, speeds)), default=0)
    return exactly(aggregate, gang, count, limits) if count else whole


def exactly(aggregate: JobAggregate, gang: GangNeed, count: int, limits: Limits) -> MoreMachines:
    """Offers for so many more machines, no fewer."""
    considered = offers_for(aggregate, gang, count, limits)
    return MoreMachines(count, bids_for_best_region(considered), considered)


def least_more(aggregate: JobAggregate, missing: int, at_hand: int) -> int:
    """How many of the missing machines must come for the gang to begin at all."""
    return max(1, min(missing, aggregate.spec.nodes.least - at_hand))


def candidates(aggregate: JobAggregate, gang: GangNeed) -> list[Instance]:
    """Instances that an attempt of this gang may form over: those of its market."""
    fit = [i for i in aggregate.usable() if not i.suspect and i.market is gang.market]
    return counted_on(aggregate, fit)


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


def request_replacements(
    aggregate: JobAggregate,
    gang: GangNeed,
    limits: Limits,
    *,
    can_do_without: bool = False,
    both_affordable: bool = False,
) -> bool:
    """Ask for what the next attempt will lack, before the present one has ended.

    Only beside survivors: a gang lives in one zone. When nothing fits, the next claim decides.
    can_do_without: the job is not stopped where no budget bears them. both_affordable: they are
    asked for only where the budgets bear both gangs for a while. True: all are coming or here.
    """
    job = aggregate.job
    if job.stop_cause is not None or job.state not in _GOING_ON:
        return False
    if lists_are_awaited(aggregate.uow, aggregate.now):
        return False  # machines of this job may run that no row knows
    lose_old_machines(aggregate, gang, limits)
    survivors = len(candidates(aggregate, gang))
    missing = gang.node_count - survivors
    if missing <= 0 or _zone_undecided(aggregate, gang):
        return missing <= 0
    if survivors:
        more = choose_more(aggregate, gang, missing, survivors, limits)
    else:
        # A whole gang beside one that still trains, as before a deadline: no smaller than that.
        more = exactly(aggregate, gang, missing, limits)
    if not more.bids:
        return False
    dearest = max(more.bids, key=lambda offer: offer.cost_microusd_per_hour)
    if both_affordable and not bears_both(aggregate, limits, [dearest] * more.count):
        return False
    enough = can_do_without or survivors >= aggregate.spec.nodes.least
    enough = enough or could_go_back(aggregate, gang, limits)
    affordable = bids_within_budget(aggregate, more.bids, more.count, limits, can_do_without=enough)
    if not affordable:
        return False
    least = least_more(aggregate, more.count, survivors) if survivors else more.count
    beside = ", in addition to the machines that stay" if survivors else ""
    text = f"{more.count} replacement requested in {affordable[0].pool.zone}{beside}."
    reason = Reason(DecisionVerdict(gang.market), "replacement", text)
    found, purpose = replace(more, bids=affordable), LaunchPurpose.REPLACEMENT
    order_more(aggregate, gang, found, reason, limits, purpose=purpose, min_count=least)
    return True


def order_more(
    aggregate: JobAggregate,
    gang: GangNeed,
    more: MoreMachines,
    reason: Reason,
    limits: Limits,
    *,
    purpose: LaunchPurpose,
    min_count: int,
) -> None:
    """Write the launch of machines beside a gang, chosen and reserved, with the reason."""
    launch, _ = order_instances(
        aggregate,
        more.bids,
        count=more.count,
        market=gang.market,
        purpose=purpose,
        limits=limits,
        min_count=min_count,
    )
    grows = purpose is LaunchPurpose.GROWTH
    aggregate.record(
        JobEventKind.GROWTH_REQUESTED if grows else JobEventKind.REPLACEMENT_REQUESTED,
        reason.sentence,
        noun="launch",
        noun_id=launch.id,
        count=more.count,
        zone=more.bids[0].pool.zone,
    )
    _record_request(aggregate, gang, reason, more, limits)


def _record_request(
    aggregate: JobAggregate, gang: GangNeed, reason: Reason, more: MoreMachines, limits: Limits
) -> None:
    """Keep why machines are asked for between two claims, with the pools that were considered."""
    reasons = Reasons(more.considered, more.count, speeds=speeds_of(aggregate))
    record_decision(aggregate, reason, limits, reasons, chosen=more.bids, gang=gang)


def offers_for(
    aggregate: JobAggregate,
    gang: GangNeed,
    count: int,
    limits: Limits,
    *,
    anywhere: bool = False,
    among: Shortlist | None = None,
) -> tuple[RankedOffer, ...]:
    """Offers for `count` more machines: beside those the gang has, or (`anywhere`) without them.

    Pools where this job lately lost a machine, taken or broken, serve when no other fits.
    On-demand ones are quick enough for the deadline, where any is. among: offers that were read
    before the job was locked; else they are read here, where the job has machines only those
    beside them.
    """
    need = queue_need(aggregate.spec, gang.market, count, own_limits(aggregate, limits))
    domain = None if anywhere else gang_domain(aggregate, gang)
    need = replace(
        need,
        domain=domain,
        last_choice=_lately_interrupted(aggregate),
        restore=restore_of(aggregate),
        gang=count if anywhere else gang.node_count,
        speeds=speeds_of(aggregate) if among is None else among.speeds,
    )
    if among is not None:
        judged = among.judge(need, aggregate.now)
    else:
        offers = aggregate.uow.offers
        quoted = offers.all() if domain is None else offers.of(_pools_of(domain))
        judged = rank_offers(quoted, need, aggregate.now)
    if among is None or not among.any_pace:
        judged = quick_enough(aggregate, gang, judged, need, limits)
    if domain is not None or not aggregate.spec.patience_seconds:
        return judged
    return patient(judged, need, patience_of(aggregate, gang), aggregate.now)


def _lately_interrupted(aggregate: JobAggregate) -> frozenset[Pool]:
    if aggregate.job.next_fence == 1:
        return frozenset()  # it has had no machine yet
    since = aggregate.now - RECENT_INTERRUPTION
    return aggregate.uow.instances.interrupted_pools(aggregate.job.id, since)


def _pools_of(domain: PlacementDomain) -> list[Pool]:
    place = (domain.provider, domain.region, domain.zone, domain.instance_type)
    return [Pool(*place, market) for market in Market]


def gang_domain(aggregate: JobAggregate, gang: GangNeed) -> PlacementDomain | None:
    """Where the gang's machines are; None when it has none whose place is known."""
    pools = sorted(i.pool for i in candidates(aggregate, gang) if i.pool is not None)
    return PlacementDomain.of(pools[0]) if pools else None


def _zone_undecided(aggregate: JobAggregate, gang: GangNeed) -> bool:
    """Machines are on their way and no zone is known yet: asking for more could split the gang."""
    return bool(candidates(aggregate, gang)) and gang_domain(aggregate, gang) is None


def no_offer_reason(
    aggregate: JobAggregate, gang: GangNeed, considered: Sequence[RankedOffer], count: int
) -> str:
    """One sentence on why `count` more machines cannot be rented now."""
    need = need_of(aggregate.spec, gang.market, count)
    return why_none_fits(considered, replace(need, domain=gang_domain(aggregate, gang)))


def why_none(aggregate: JobAggregate, gang: GangNeed, count: int, limits: Limits) -> str:
    """The same, looking at every offer there is."""
    need = need_of(aggregate.spec, gang.market, count)
    age_max = timedelta(seconds=limits.quote_age_max_seconds)
    need = replace(need, domain=gang_domain(aggregate, gang), quote_age_max=age_max)
    return why_none_fits(rank_offers(aggregate.uow.offers.all(), need, aggregate.now), need)


def _do_with_less(aggregate: JobAggregate, why: str, limits: Limits) -> None:
    """An elastic gang begins with the machines it has, if they are enough; any other gives up."""
    if shrink_to_members(aggregate, why):
        advance_attempt(aggregate, limits)
    else:
        _end_forming(aggregate, EndReason.NO_CAPACITY, why, limits)


def _end_forming(aggregate: JobAggregate, reason: EndReason, why: str, limits: Limits) -> None:
    attempt = aggregate.attempt
    if attempt is None:
        return
    text = f"The job could not start: {why}."
    aggregate.move_attempt(attempt, AttemptEvent.OFFERS_EXHAUSTED, text)
    end_attempt(aggregate, reason, text, limits)
