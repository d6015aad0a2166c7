"""The state that a deadline's decisions are made from, read under the job's lock.

Lives here: the promise, a change of market under way, and what a change of market would mean, for a
job that trains or waits and for one that is being claimed. Not here: the rules (`placement.decide`,
`deadline_policy`), or what costs are expected (`evaluate_markets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from app.domain.billing.budget import left_microusd
from app.domain.deadline.deadline_policy import (
    DeadlineAction,
    DeadlineView,
    decide,
    without_launches,
)
from app.domain.deadline.live_choice import LiveChoice
from app.domain.lifecycle.attempt import (
    LIVE_ATTEMPT_STATES,
    TRAINING_ATTEMPT_STATES,
    AttemptState,
)
from app.domain.lifecycle.entities import Budget
from app.domain.lifecycle.instance import InstanceState
from app.domain.market.offer import Market, Pool
from app.domain.placement.decide import PromiseState, RunningTransition
from app.domain.placement.decision import Transition
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.market_choice import Beginning, MarketState, choose_market
from app.domain.placement.methods.offer_book import Shortlist
from app.domain.placement.methods.replace_lost import LackingState, replace_lost
from app.domain.placement.methods.spot_return import (
    OnDemandStay,
    may_return,
    may_still_return,
    return_repays,
    spot_is_safe,
)
from app.domain.placement.placement import bids_for_best_region
from app.domain.throughput.start_up import seconds_to_first_step
from app.orchestration.estimates.estimate_remaining import WorkLeft
from app.orchestration.estimates.work_by_gpu import WorkByGpu, left_of
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.reserve_budget import read_headroom
from app.orchestration.placement.decision_log import start_times
from app.orchestration.placement.evaluate_markets import JobProgress, MarketValues
from app.orchestration.placement.market_and_size import (
    has_left_spot,
    return_terms,
    spot_is_fruitless,
    spot_room,
)
from app.orchestration.placement.read_launch_room import freeze_of
from app.orchestration.placement.read_offers import offer_book
from app.orchestration.transitions.gather_gang import lacking_state

_USD = 1_000_000


def deadline_view(
    aggregate: JobAggregate, work: WorkByGpu, left: WorkLeft, limits: Limits, look_seconds: float
) -> DeadlineView:
    """The job with respect to its deadline. look_seconds: until the next look, at most."""
    job = aggregate.job
    by_estimate = replace(left, seconds=left.estimate_seconds, estimated=True)
    registered = [
        instance
        for instance in aggregate.living()
        if instance.state is InstanceState.REGISTERED and instance.market is Market.ON_DEMAND
    ]
    return DeadlineView(
        deadline_at=job.deadline_at,
        remaining_seconds=work.on_demand_seconds(aggregate, left),
        start=start_times(aggregate, limits),
        start_left_seconds=round(_start_left(aggregate, left, limits)),
        running_on=_running_on(aggregate),
        moving_to_on_demand=job.market_mode is Market.ON_DEMAND,
        on_demand_registered=len(registered) >= job.node_count,
        on_demand_allowed=aggregate.spec.effective_market() != "spot",
        look_again_seconds=round(look_seconds),
        estimated_seconds=work.on_demand_seconds(aggregate, by_estimate),
        slower_since_at=job.slower_since_at,
        sure_after_seconds=round(limits.slower_pace_seconds),
    )


def promise_state(aggregate: JobAggregate, view: DeadlineView, limits: Limits) -> PromiseState:
    """What the deadline asks for now."""
    attempt = aggregate.attempt
    trains = attempt is not None and attempt.state in TRAINING_ATTEMPT_STATES
    early, decision = _spot_would_be_safe(view, aggregate.now), decide(view, aggregate.now)
    freeze = freeze_of(aggregate)
    if freeze is not None:
        decision = without_launches(decision, freeze.sentence, aggregate.now)
    lacking = None
    if decision.action is DeadlineAction.ACQUIRE_ON_DEMAND:
        lacking = _on_demand_beside(aggregate, limits, early=early)
    return PromiseState(decision, early, can_yield=trains, lacking=lacking)


def _on_demand_beside(
    aggregate: JobAggregate, limits: Limits, *, early: bool
) -> LackingState | None:
    """The on-demand gang beside what trains, once the job has left spot.

    A spot attempt that still forms makes way, and its job is claimed.
    """
    job, attempt, gang = aggregate.job, aggregate.attempt, aggregate.gang_need
    if attempt is None:
        return None
    if job.market_mode is Market.SPOT:
        if attempt.state is AttemptState.PROVISIONING:
            return None
        gang = GangNeed(Market.ON_DEMAND, min(job.node_count, attempt.node_count))
    return lacking_state(aggregate, gang, limits, can_do_without=early)


def market_transition(
    aggregate: JobAggregate, view: DeadlineView, limits: Limits, *, early: bool
) -> RunningTransition | None:
    """A change of market under way, from the request of the new machines on.

    From the last safe moment on a departure is none that could be abandoned.
    """
    job, attempt, seconds = aggregate.job, aggregate.attempt, view.remaining_seconds
    if attempt is None or attempt.state not in TRAINING_ATTEMPT_STATES:
        return None
    if view.running_on in (None, job.market_mode):
        return None
    coming = [
        one for one in aggregate.usable() if one.market is job.market_mode and not one.suspect
    ]
    here = sum(one.state is InstanceState.REGISTERED for one in coming)
    transition = RunningTransition(
        Transition.RETURN_TO_SPOT, job.node_count, len(coming), here, least=1
    )
    if job.market_mode is Market.SPOT:
        too_late = seconds is None or not may_still_return(
            spot_room(aggregate, limits, seconds), return_terms(limits)
        )
        affordable = read_headroom(aggregate, limits).covers_both()
        return replace(transition, too_late=too_late, affordable=affordable)
    if not early or seconds is None:
        return None
    whole = len(coming) >= job.node_count
    return replace(
        transition,
        kind=Transition.LEAVE_SPOT,
        least=job.node_count,
        affordable=not whole or read_headroom(aggregate, limits).covers_both(),
        can_abandon=spot_is_safe(spot_room(aggregate, limits, seconds)),
    )


def market_beside(
    aggregate: JobAggregate, view: DeadlineView, values: MarketValues, limits: Limits
) -> MarketState | None:
    """What another market would mean for a job that trains or waits; None while it forms."""
    job, attempt, progress = aggregate.job, aggregate.attempt, _progress(aggregate, view)
    choice = None if progress is None else values.choose(aggregate, progress, limits)
    if progress is None or choice is None:
        return None
    gang = job.node_count if attempt is None else attempt.node_count
    stay = OnDemandStay(values.on_demand_usd, gang, progress.work_seconds, trains=True)
    budgets = aggregate.uow.money.budgets(job.project_id, job.budget_id)
    covers = partial(_cover, budgets, _left_in_months(aggregate, progress.work_seconds))
    state = _market_state(aggregate, choice, stay, limits, covers, _possible)
    state = replace(state, running_on=progress.running_on)
    turn = choose_market(state)
    if attempt is None or turn is None or not turn.turns:
        return state
    return _with_gang_beside(aggregate, state, turn.market, limits)


def _with_gang_beside(
    aggregate: JobAggregate, state: MarketState, market: Market, limits: Limits
) -> MarketState:
    """With the gang of the other market that would be requested beside the one that trains."""
    job, attempt, lacking = aggregate.job, aggregate.attempt, None
    if attempt is not None and job.moving_launch_id is None:
        gang = GangNeed(market, min(job.node_count, attempt.node_count))
        lacking = lacking_state(aggregate, gang, limits, can_do_without=True, both_affordable=True)
    if lacking is not None and (lacking.is_whole or replace_lost(lacking) is not None):
        return replace(state, beside=lacking)
    return replace(state, begins=_unaffordable)


def _possible(_market: Market) -> Beginning:
    return Beginning.POSSIBLE


def _unaffordable(_market: Market) -> Beginning:
    return Beginning.UNAFFORDABLE


def market_in_queue(
    aggregate: JobAggregate,
    values: MarketValues | None,
    by_market: Mapping[Market, Shortlist],
    budgets: Sequence[Budget],
    limits: Limits,
) -> MarketState | None:
    """The same for a job that is claimed without machines.

    values: None where there is nothing to weigh, as when no on-demand offer serves the job.
    by_market: the offers of each. Nothing is weighed when the work is not known.
    """
    job, left = aggregate.job, left_of(aggregate)
    if job.deadline_missed_at is not None:
        return None
    if values is None:
        left_spot = Market.SPOT in by_market and has_left_spot(aggregate, aggregate.gang_need)
        seconds, choice, price = (left.seconds if left_spot else None), None, 0.0
    else:
        seconds, price = values.work.on_demand_seconds(aggregate, left), values.on_demand_usd
        progress = None if seconds is None else JobProgress(seconds)
        choice = None if progress is None else values.choose(aggregate, progress, limits)
    if seconds is None or (values is not None and choice is None):
        return None

    begins = _beginnings(aggregate, by_market, budgets, limits)
    stay = OnDemandStay(price, job.node_count, seconds, trains=False)
    covers = partial(_cover, budgets, _left_in_months(aggregate, seconds))
    state = _market_state(aggregate, choice, stay, limits, covers, begins)
    return replace(state, in_queue=True)


def _market_state(
    aggregate: JobAggregate,
    choice: LiveChoice | None,
    stay: OnDemandStay,
    limits: Limits,
    covers: Callable[[float], bool],
    begins: Callable[[Market], Beginning],
) -> MarketState:
    market, terms = aggregate.job.market_mode, return_terms(limits)
    left_spot, fruitless = market is Market.ON_DEMAND, spot_is_fruitless(aggregate)
    room = spot_room(aggregate, limits, stay.work_seconds)
    changed_at = aggregate.job.market_changed_at
    return MarketState(
        market=market,
        gang=stay.gang,
        choice=choice,
        fruitless=not left_spot and fruitless,
        spot_is_safe=left_spot and spot_is_safe(room),
        may_return=left_spot and may_return(room, terms, changed_at, fruitless=fruitless),
        repays=left_spot and choice is not None and return_repays(choice, stay, terms),
        covers=covers,
        begins=begins,
    )


def _beginnings(
    aggregate: JobAggregate,
    by_market: Mapping[Market, Shortlist],
    budgets: Sequence[Budget],
    limits: Limits,
) -> Callable[[Market], Beginning]:
    """Whether a market serves the smallest gang, and the budgets cover it; nothing is reserved.

    All rows are read here: each answer judges offers that may be thousands.
    """
    size, least = aggregate.job.node_count, aggregate.spec.nodes.least
    books = {
        market: offer_book(aggregate, GangNeed(market, size), limits, None, among=among)
        for market, among in by_market.items()
    }
    headroom = read_headroom(aggregate, limits, budgets)

    def begins(market: Market) -> Beginning:
        bids = bids_for_best_region(books[market].judge(least, size, anywhere=True))
        if not bids:
            return Beginning.NO_OFFER
        covered = headroom.bids_covered(bids, least)
        return Beginning.POSSIBLE if covered.bids else Beginning.UNAFFORDABLE

    return begins


def _left_in_months(aggregate: JobAggregate, work_seconds: float) -> list[tuple[int, float]]:
    """What each budget of this month has left, and how much of the work falls into the month."""
    found = []
    for month in aggregate.uow.monthly_budgets.over(aggregate.job.project_id):
        if month is not None:
            seconds = max(0.0, (month.ends_at - aggregate.now).total_seconds())
            share = 1.0 if work_seconds <= seconds else seconds / work_seconds
            found.append((month.cap_microusd - month.spent_microusd, share))
    return found


def _cover(budgets: Sequence[Budget], months: Sequence[tuple[int, float]], usd: float) -> bool:
    """Whether what every budget has left would pay for so much; months: as `_left_in_months`."""
    left = (left_microusd(budget.cap_microusd, budget.spent_microusd) for budget in budgets)
    return all(microusd is None or microusd >= usd * _USD for microusd in left) and all(
        microusd >= usd * _USD * share for microusd, share in months
    )


def _spot_would_be_safe(view: DeadlineView, now: datetime) -> bool:
    """Whether it would be, had the job not left it."""
    not_left = replace(view, moving_to_on_demand=False, on_demand_registered=False)
    decision = decide(not_left, now)
    return decision.action is DeadlineAction.SPOT and decision.unsafe_since_at is None


def _progress(aggregate: JobAggregate, view: DeadlineView) -> JobProgress | None:
    """None where there is nothing to be said yet: while a gang forms, or the work is not known."""
    attempt = aggregate.attempt
    if view.remaining_seconds is None:
        return None
    if attempt is None:
        return JobProgress(view.remaining_seconds) if not aggregate.usable() else None
    if attempt.state not in TRAINING_ATTEMPT_STATES or view.running_on is None:
        return None
    pool = _running_in(aggregate) if view.running_on is Market.SPOT else None
    if view.running_on is Market.SPOT and pool is None:
        return None
    return JobProgress(
        view.remaining_seconds, view.running_on, pool, float(view.start_left_seconds)
    )


def _start_left(aggregate: JobAggregate, left: WorkLeft, limits: Limits) -> float:
    """Seconds until the live attempt steps: what is left of its restart, or of its start-up."""
    attempt = aggregate.attempt
    if attempt is None:
        return 0.0
    before = limits.boot_p95_seconds + limits.restore_seconds
    passed = (aggregate.now - attempt.created_at).total_seconds()
    return seconds_to_first_step(attempt.state, before - passed, left.start_seconds)


def _running_in(aggregate: JobAggregate) -> Pool | None:
    """The spot pool of the live attempt's machines; the first by name of several."""
    machines = [aggregate.instances[member.instance_id] for member in aggregate.members]
    pools = {one.pool for one in machines if one.pool is not None and one.market is Market.SPOT}
    return min(pools, default=None)


def _running_on(aggregate: JobAggregate) -> Market | None:
    attempt = aggregate.attempt
    if attempt is None or attempt.state not in LIVE_ATTEMPT_STATES:
        return None
    markets = {aggregate.instances[m.instance_id].market for m in aggregate.members}
    if not markets:
        return None
    return Market.SPOT if Market.SPOT in markets else Market.ON_DEMAND
