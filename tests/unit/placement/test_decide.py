"""The order of decisions about a job's machines, and what no transition may do."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.availability.gang_hazard import MachineLife
from app.domain.billing.budget import BudgetOwner, ReserveWindow
from app.domain.billing.headroom import BudgetLine, Headroom
from app.domain.deadline.deadline_policy import DeadlineAction, DeadlineDecision
from app.domain.deadline.live_choice import LiveChoice
from app.domain.deadline.policy_state import PlacementAction
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.decide import (
    GangState,
    MoveState,
    PromiseState,
    RunningTransition,
    decide,
    follow,
)
from app.domain.placement.decision import (
    Abandon,
    AbandonReason,
    AcquireOnDemand,
    Complete,
    CutOver,
    Fill,
    MachineRequest,
    MarketDecision,
    MarketRule,
    MoveDecision,
    Replace,
    Transition,
)
from app.domain.placement.fit_verdict import FitVerdict
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.market_choice import Beginning, MarketState, choose_market
from app.domain.placement.methods.fill_places import FormingState
from app.domain.placement.methods.replace_lost import LackingState
from app.domain.placement.migration import Candidate, CurrentPlacement, MoveTerms, pool_name
from app.domain.placement.placement import RankedOffer

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LEAVING = RunningTransition(Transition.LEAVE_SPOT, wanted=2, coming=1, here=0, least=2)
NEW = MachineLife(0.0, 1.0)
WINDOW = ReserveWindow(60, 90, 30)


MOVE = MoveState(
    CurrentPlacement("a", 1.0, (NEW,), 1.0, 60.0),
    (),
    MoveTerms(1.0, 1.0, 0.1, 0),
    (),
)


def promise(action: DeadlineAction, *, early: bool, unsafe: bool = False) -> PromiseState:
    since = NOW if unsafe else None
    return PromiseState(DeadlineDecision(action, "", NOW, since), early, can_yield=True)


def market(
    running_on: Market | None = None,
    *,
    mode: Market = Market.SPOT,
    in_queue: bool = False,
    verdict: PlacementAction = PlacementAction.SPOT,
    on_demand: float = 5.0,
    covered: float = math.inf,
    begins: Beginning = Beginning.POSSIBLE,
) -> MarketState:
    return MarketState(
        market=mode,
        gang=2,
        choice=LiveChoice(verdict, None, 9.0, 2.0, on_demand, (), ()),
        fruitless=False,
        spot_is_safe=True,
        may_return=True,
        repays=True,
        covers=lambda usd: usd <= covered,
        begins=lambda _market: begins,
        running_on=running_on,
        in_queue=in_queue,
    )


def test_finished_work_comes_before_everything() -> None:
    state = GangState(
        finished=True, promise=promise(DeadlineAction.ACQUIRE_ON_DEMAND, early=False), move=MOVE
    )
    assert decide(state) == Complete()


def test_the_last_safe_moment_comes_before_a_transition_that_could_be_abandoned() -> None:
    late = promise(DeadlineAction.ACQUIRE_ON_DEMAND, early=False)
    acquire = AcquireOnDemand(late.decision)
    assert decide(GangState(promise=late, transition=LEAVING)) == acquire


def test_before_it_a_departure_without_machines_is_abandoned_and_a_whole_one_goes_on() -> None:
    early = promise(DeadlineAction.ACQUIRE_ON_DEMAND, early=True)
    abandoned = Abandon(Transition.LEAVE_SPOT, AbandonReason.NOT_STARTED)
    assert decide(GangState(promise=early, transition=LEAVING)) == abandoned
    whole = RunningTransition(Transition.LEAVE_SPOT, wanted=2, coming=2, here=1, least=2)
    assert decide(GangState(promise=early, transition=whole)) == AcquireOnDemand(early.decision)


@pytest.mark.parametrize(
    ("action", "unsafe"),
    [
        (DeadlineAction.ACQUIRE_ON_DEMAND, False),
        (DeadlineAction.YIELD_TO_ON_DEMAND, False),
        (DeadlineAction.SPOT, True),
    ],
)
def test_costs_are_weighed_only_while_the_deadline_is_safe(
    action: DeadlineAction, unsafe: bool
) -> None:
    state = GangState(promise=promise(action, early=False, unsafe=unsafe), market=market())
    assert not isinstance(decide(state), MarketDecision)
    safe = promise(DeadlineAction.SPOT, early=True)
    assert isinstance(decide(GangState(promise=safe, market=market())), MarketDecision)


def test_lost_machines_are_replaced_before_costs_are_weighed() -> None:
    gang, end = GangNeed(Market.SPOT, 2), Abandon(Transition.MOVE, AbandonReason.INCOMPLETE)
    lacking = LackingState(gang, survivors=1, move=end)
    assert decide(GangState(lacking=lacking, market=market(), move=MOVE)) == Replace(gang, end)


def test_open_places_get_machines_at_hand_first() -> None:
    idle = tuple(UUID(int=number) for number in range(3))
    forming = FormingState(node_count=2, least=2, members=1, idle=idle)
    assert decide(GangState(forming=forming, move=MOVE)) == Fill(idle[:1], 2)


def test_what_is_not_due_says_nothing() -> None:
    assert decide(GangState()) is None
    assert decide(GangState(move=MOVE)) == MoveDecision(None, "No other pool fits.")


def test_a_gang_moves_only_where_the_budgets_cover_both_gangs_for_a_while() -> None:
    pool = Pool("aws", "us-west-2", "us-west-2b", "p3.2xlarge", Market.SPOT)
    offer = Offer(pool, Hardware("V100", 1, 16, 8, 61), 900_000, 3_000_000, "ec2", NOW, "test")
    there = Candidate(pool_name(pool), 900_000.0, 1.0, (NEW,))
    fits = RankedOffer(offer, FitVerdict.FITS, "fits")
    dear = CurrentPlacement("a", 3e6, (NEW,), 1.0, 86_400.0)

    state = replace(MOVE, here=dear, candidates=(there,), considered=(fits,))

    def decided(cap_microusd: int, held_microusd: int) -> MoveDecision | None:
        line = BudgetLine(BudgetOwner.JOB, cap_microusd=cap_microusd, spent_microusd=0)
        headroom = Headroom((line,), held_microusd, WINDOW)
        found = decide(GangState(move=replace(state, headroom=headroom)))
        assert found is None or isinstance(found, MoveDecision)
        return found

    unread = decide(GangState(move=state))
    assert isinstance(unread, MoveDecision)
    assert (unread.to, unread.request) == (pool_name(pool), None)

    # The new machine costs 225,000 in its first 15 minutes, and 60,000 in the window of 180 s with
    # the minute that is billed at least.
    covered = decided(325_000, held_microusd=100_000)
    assert covered is not None
    assert covered.request == MachineRequest(1, 1, (offer,), (fits,), 325_000)
    assert decided(324_999, held_microusd=100_000) is None
    assert decided(2 * (400_000 + 60_000), held_microusd=400_000) is not None
    assert decided(2 * (400_000 + 60_000) - 1, held_microusd=400_000) is None


@given(
    st.builds(
        RunningTransition,
        kind=st.sampled_from(Transition),
        wanted=st.integers(1, 4),
        coming=st.integers(0, 4),
        here=st.integers(0, 4),
        least=st.integers(1, 4),
        attempt_ended=st.booleans(),
        too_late=st.booleans(),
        affordable=st.booleans(),
        can_abandon=st.booleans(),
        can_cut_over=st.booleans(),
    )
)
def test_no_gang_makes_way_before_all_of_its_successors_are_here(one: RunningTransition) -> None:
    decision = follow(one)
    if isinstance(decision, CutOver):
        assert one.here >= one.wanted
        assert one.can_cut_over
    if isinstance(decision, Abandon):
        assert one.can_abandon
    if one.can_abandon and not one.affordable:
        assert isinstance(decision, Abandon)


def test_spot_is_left_only_where_the_budget_covers_on_demand_machines_to_the_end() -> None:
    costs_less = PlacementAction.ON_DEMAND
    left = choose_market(market(Market.SPOT, verdict=costs_less, covered=10.0))
    assert left is not None
    assert (left.rule, left.market) == (MarketRule.ON_DEMAND_COSTS_LESS, Market.ON_DEMAND)
    assert choose_market(market(Market.SPOT, verdict=costs_less, covered=9.9)) is None
    full = Beginning.UNAFFORDABLE
    assert choose_market(market(verdict=costs_less, in_queue=True, begins=full)) is None


def test_a_job_that_waits_for_on_demand_machines_is_not_turned_without_a_claim() -> None:
    waits = choose_market(market(mode=Market.ON_DEMAND))
    assert waits is not None
    assert not waits.turns
    claimed = choose_market(market(mode=Market.ON_DEMAND, in_queue=True))
    assert claimed is not None
    assert (claimed.rule, claimed.market) == (MarketRule.SPOT_COSTS_LESS, Market.SPOT)


def test_a_running_job_returns_only_where_the_choice_is_spot() -> None:
    trains = Market.ON_DEMAND
    back = choose_market(market(trains, mode=Market.ON_DEMAND))
    assert back is not None
    assert back.turns
    stays = choose_market(market(trains, mode=Market.ON_DEMAND, verdict=PlacementAction.WAIT))
    assert stays == MarketDecision(
        MarketRule.STAYING, trains, LiveChoice(PlacementAction.WAIT, None, 9.0, 2.0, 5.0, (), ())
    )
