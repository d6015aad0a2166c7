"""The order in which decisions about a job's machines are made: read METHODS from top to bottom.

A trigger (a claim, a fact, a timer) gathers the state that its methods look at, asks `decide` in
its own transaction, and has `apply_decision` write the rows. A method whose state was not gathered
is not due and says nothing; the first that says something decides. Nothing here reads or writes a
row. Not here: the arithmetic of a method (`methods` and the files beside this one).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.domain.billing.headroom import Headroom
from app.domain.deadline.deadline_policy import DeadlineAction, DeadlineDecision
from app.domain.placement.decision import (
    Abandon,
    AbandonReason,
    AcquireOnDemand,
    Complete,
    CutOver,
    Decision,
    MachineRequest,
    Resize,
    Transition,
)
from app.domain.placement.gang_size import (
    ResizeView,
    SizeChoice,
    SizeOption,
    SizeQuestion,
    choose_size,
    resize_repays,
)
from app.domain.placement.market_choice import MarketState, choose_market
from app.domain.placement.methods.fill_places import FormingState, fill_places
from app.domain.placement.methods.place_claimed import ClaimState, place_claimed
from app.domain.placement.methods.replace_lost import LackingState, replace_lost
from app.domain.placement.methods.supply import Supply
from app.domain.placement.migration import (
    Candidate,
    CurrentPlacement,
    MoveTerms,
    decide_move,
    pool_name,
)
from app.domain.placement.placement import RankedOffer


@dataclass(frozen=True, slots=True)
class RunningTransition:
    """The machines of a transition, as they are now.

    wanted: how many it takes. coming: of them, those requested or here; fewer than least are given
    back. here: those that have registered. attempt_ended: what it began beside no longer trains.
    too_late: they are not waited for any longer. affordable: the budgets go on covering both gangs.
    can_abandon, can_cut_over: whether the gang may go on as it is, and whether it may yield.
    """

    kind: Transition
    wanted: int
    coming: int
    here: int
    least: int
    attempt_ended: bool = False
    too_late: bool = False
    affordable: bool = True
    can_abandon: bool = True
    can_cut_over: bool = True


def follow(transition: RunningTransition) -> CutOver | Abandon | None:
    """What is to be done about it now; None: it is waited for."""
    why = _why_abandon(transition)
    if why is not None and transition.can_abandon:
        return Abandon(transition.kind, why)
    if transition.here >= transition.wanted and transition.can_cut_over:
        return CutOver(transition.kind)
    return None


def _why_abandon(transition: RunningTransition) -> AbandonReason | None:
    if transition.attempt_ended:
        return AbandonReason.ATTEMPT_ENDED
    if transition.coming < transition.least:
        return AbandonReason.NOT_STARTED
    if transition.too_late:
        return AbandonReason.TOO_LATE
    return None if transition.affordable else AbandonReason.UNAFFORDABLE


@dataclass(frozen=True, slots=True)
class PromiseState:
    """What a deadline asks for. early: spot would be safe still, had the job not left it.

    can_yield: its attempt can save and make way. lacking: the on-demand machines that are missing
    beside it, where it is time to request them.
    """

    decision: DeadlineDecision
    early: bool
    can_yield: bool
    lacking: LackingState | None = None


@dataclass(frozen=True, slots=True)
class SizeState:
    """The sizes that a gang which trains could have now, its own among them.

    count: its size, for sized_seconds now. every_seconds: how long it keeps a size at least.
    supply: where the machines to grow by come from.
    """

    options: Sequence[SizeOption]
    question: SizeQuestion
    count: int
    sized_seconds: float
    every_seconds: float
    supply: Supply


@dataclass(frozen=True, slots=True)
class MoveState:
    """A gang that trains and may move, with the gangs that it could be instead.

    considered: the offers that those were made of. headroom: what the budgets cover beside it; None
    until a move repays, as who reads the budgets locks them.
    """

    here: CurrentPlacement
    candidates: Sequence[Candidate]
    terms: MoveTerms
    considered: tuple[RankedOffer, ...]
    headroom: Headroom | None = None


@dataclass(frozen=True)
class GangState:
    """A job under its lock, as far as the methods that are due look at it.

    finished: an earlier attempt has saved the final checkpoint. forming, lacking: a gang with open
    places, and one whose next attempt will have some.
    """

    finished: bool = False
    promise: PromiseState | None = None
    transition: RunningTransition | None = None
    forming: FormingState | None = None
    lacking: LackingState | None = None
    market: MarketState | None = None
    claim: ClaimState | None = None
    size: SizeState | None = None
    move: MoveState | None = None


def decide(state: GangState) -> Decision | None:
    """The first decision of METHODS; None: everything stays as it is."""
    return next((found for method in METHODS if (found := method(state)) is not None), None)


def _completion(state: GangState) -> Decision | None:
    return Complete() if state.finished else None


def _last_safe_moment(state: GangState) -> Decision | None:
    """From the last safe moment on nothing else is looked at until on-demand machines are here."""
    return None if state.promise is None or state.promise.early else _acquire(state.promise)


def _running_transition(state: GangState) -> Decision | None:
    """Before that, a departure from spot is followed like every other transition."""
    found = None if state.transition is None else follow(state.transition)
    return _acquire(state.promise) if found is None and state.promise is not None else found


def _replace(state: GangState) -> Decision | None:
    """Open places first: a gang that forms lacks nothing else."""
    if state.forming is not None:
        return fill_places(state.forming)
    return None if state.lacking is None else replace_lost(state.lacking)


def _market(state: GangState) -> Decision | None:
    """A job that is no longer safe, or whose machines are on their way, weighs no costs."""
    if state.promise is not None:
        settled = (DeadlineAction.SPOT, DeadlineAction.STAY_ON_DEMAND)
        decision = state.promise.decision
        if decision.action not in settled or decision.unsafe_since_at is not None:
            return None
    chosen = None if state.market is None else choose_market(state.market)
    if chosen is None or state.market is None or state.market.beside is None:
        return chosen
    return replace(chosen, beside=replace_lost(state.market.beside)) if chosen.turns else chosen


def _claim(state: GangState) -> Decision | None:
    return None if state.claim is None else place_claimed(state.claim)


def _size(state: GangState) -> Decision | None:
    size = state.size
    choice = None if size is None else choose_size(size.options, size.question)
    if size is None or choice is None:
        return None
    now, chosen = (
        next(one for one in size.options if one.count == count)
        for count in (size.count, choice.count)
    )
    view = ResizeView(now, chosen, size.sized_seconds, size.every_seconds)
    why = resize_repays(view, size.question)
    if why is None:
        return None
    to, more = SizeChoice(chosen.count, why), chosen.count - size.count
    if more <= 0:
        return Resize(to)
    request, _ = size.supply.request(size.supply.exactly(more), more)
    return None if request is None else Resize(to, request)


def _move(state: GangState) -> Decision | None:
    """While new machines start both gangs cost money: the budgets must cover both for a while.

    Without the budgets it is only where to: ask again with them.
    """
    move = state.move
    found = None if move is None else decide_move(move.here, move.candidates, move.terms)
    if move is None or found is None or found.to is None or move.headroom is None:
        return found
    fitting = (one.offer for one in move.considered if one.fits)
    offer = next(one for one in fitting if pool_name(one.pool) == found.to)
    count = len(move.here.machines)
    covered = move.headroom.bids_covered([offer], count)
    if not covered.bids or not move.headroom.covers_both([offer] * count):
        return None
    held = covered.reserved_microusd
    return replace(found, request=MachineRequest(count, count, (offer,), move.considered, held))


def _acquire(promise: PromiseState) -> Decision | None:
    action = promise.decision.action
    if action is DeadlineAction.ACQUIRE_ON_DEMAND:
        lacking = None if promise.lacking is None else replace_lost(promise.lacking)
        return AcquireOnDemand(promise.decision, lacking)
    if action is DeadlineAction.YIELD_TO_ON_DEMAND and promise.can_yield:
        return CutOver(Transition.LEAVE_SPOT)
    return None


METHODS: Final[tuple[Callable[[GangState], Decision | None], ...]] = (
    _completion,
    _last_safe_moment,
    _running_transition,
    _replace,
    _market,
    _claim,
    _size,
    _move,
)
