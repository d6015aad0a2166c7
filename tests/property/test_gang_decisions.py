"""A gang is of one place and one market, and keeps its machines until others are there or refused.

Gangs are generated with machines of several places, markets and launches, as after a restore of the
database; offers, sizes, budgets and moves are, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from app.domain.billing.budget import BudgetOwner, ReserveWindow
from app.domain.billing.headroom import BudgetLine, Headroom
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import InstanceState
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.decide import GangState, decide
from app.domain.placement.decision import Abandon, ClaimDecision, ClaimRule, CutOver, Fill, Replace
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.methods.fill_places import FormingState
from app.domain.placement.methods.gang_machines import (
    MoveUnderWay,
    end_of_move,
    is_place_open,
    machines_for,
    place_of,
)
from app.domain.placement.methods.offer_book import GangWork, OfferBook, Shortlist
from app.domain.placement.methods.place_claimed import ClaimState
from app.domain.placement.methods.replace_lost import LackingState
from app.domain.placement.methods.size_question import SizeTerms
from app.domain.placement.methods.supply import Supply
from app.domain.placement.placement import Need, PlacementDomain
from app.domain.spec.node_range import NodeRange
from app.domain.throughput.gang_scaling import EXPECTED_SCALING
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
V100 = Hardware("V100", 1, 16, 8, 61)
POOLS = [Pool("aws", "r", zone, "type", market) for zone in "ab" for market in Market]
LAUNCHES = [UUID(int=number) for number in range(1, 4)]
MOVING = LAUNCHES[-1]
WINDOW = ReserveWindow(60, 90, 30, Fraction(1))


@dataclass(frozen=True)
class Gang:
    """A job's machines and its offers."""

    need: GangNeed
    nodes: NodeRange
    usable: list[Instance]
    move: MoveUnderWay | None
    offers: list[Offer]
    cap_microusd: int | None

    def machines(self) -> list[Instance]:
        return machines_for(self.usable, self.need, self.move)

    def supply(self, machines: list[Instance]) -> Supply:
        """Where more of them come from."""
        market = self.need.market
        need = Need((), 0, 1, market, (), 1.0, restart_seconds=360.0)
        work = GangWork(lambda _count: 36_000)
        quoted = tuple((offer, None) for offer in self.offers)
        book = OfferBook(Shortlist(quoted), need, NOW, work, place_of(machines))
        line = BudgetLine(BudgetOwner.JOB, self.cap_microusd, 0)
        terms = SizeTerms(
            self.nodes, work, NOTHING_MEASURED, EXPECTED_SCALING, None, 360.0, None, 0.0, None
        )
        return Supply(self.need.node_count, book, Headroom((line,), 0, WINDOW), terms)


def _machine(number: int, pool: Pool | None, market: Market, launch: UUID, ill: bool) -> Instance:
    state = InstanceState.REQUESTED if pool is None else InstanceState.REGISTERED
    return Instance(
        UUID(int=1_000 + number), UUID(int=9), launch, "aws", market, state, "launch", NOW, NOW,
        pool=pool, suspect=ill,
    )  # fmt: skip


@st.composite
def _gangs(draw: st.DrawFn) -> Gang:
    least = draw(st.integers(1, 3))
    most = draw(st.integers(least, 4))
    home = draw(st.sampled_from(POOLS))
    need = GangNeed(home.market, draw(st.integers(least, most)))
    usable = []
    for number in range(draw(st.integers(0, 5))):
        pool = draw(st.sampled_from([home, home, home, None, *POOLS]))
        market = home.market if pool is None else pool.market
        launch, ill = draw(st.sampled_from(LAUNCHES)), draw(st.integers(0, 9)) == 0
        usable.append(_machine(number, pool, market, launch, ill))
    move = draw(st.sampled_from([None, MoveUnderWay(MOVING, False), MoveUnderWay(MOVING, True)]))
    offers = [
        Offer(pool, V100, price, 5_000_000, "ec2", NOW, "test", available=room)
        for pool in POOLS
        for price in [draw(st.integers(1, 5_000_000))]
        for room in [draw(st.sampled_from([0, 0, 1, None] if pool == home else [0, 2, 4, None]))]
    ]
    cap = draw(st.sampled_from([None, None, None, 1_000_000, 3_000_000]))
    return Gang(need, NodeRange(least, most), usable, move, offers, cap)


def _assert_together(gang: Gang, machines: list[Instance], bids: tuple[Offer, ...]) -> None:
    """Of the gang's market; those whose place is known, and what is requested, of one place."""
    assert {one.market for one in machines} <= {gang.need.market}
    assert {bid.pool.market for bid in bids} <= {gang.need.market}
    places = {PlacementDomain.of(one.pool) for one in machines if one.pool is not None}
    assert len(places) <= 1
    if places:  # without any, the one launch takes all machines from one of the pools
        assert {PlacementDomain.of(bid.pool) for bid in bids} <= places


@given(_gangs(), st.data())
def test_an_attempt_is_never_formed_over_two_places_or_two_markets(
    gang: Gang, data: st.DataObject
) -> None:
    machines = gang.machines()
    members = machines[: data.draw(st.integers(0, min(len(machines), gang.need.node_count)))]
    idle = [one for one in machines if one not in members]
    is_open = is_place_open(machines)
    missing = gang.need.node_count - len(machines)
    supply = gang.supply(machines) if missing > 0 else None
    forming = FormingState(
        gang.need.node_count, gang.nodes.least, len(members), tuple(one.id for one in idle),
        is_open, supply=supply,
    )  # fmt: skip
    fill = decide(GangState(forming=forming))
    assert isinstance(fill, Fill)
    placed = [*members, *(one for one in idle if one.id in fill.placed)]
    assert len(placed) <= gang.need.node_count
    if is_open:
        assert fill.request is None, "a second launch could end in another place"
    _assert_together(gang, placed, () if fill.request is None else fill.request.bids)


@given(st.integers(1, 4), st.integers(0, 4), st.booleans())
def test_stray_machines_never_part_the_members_of_an_attempt(
    count: int, strays: int, first: bool
) -> None:
    """However many there are, and whichever place comes first by name."""
    home, other = (POOLS[0], POOLS[-2]) if first else (POOLS[-2], POOLS[0])
    pools = [*[home] * count, *[other] * strays]
    usable = [
        _machine(number, pool, pool.market, LAUNCHES[0], ill=False)
        for number, pool in enumerate(pools)
    ]
    members = {one.id for one in usable[:count]}
    machines = machines_for(usable, GangNeed(home.market, count), None, members)
    assert {one.id for one in machines} == members


@given(_gangs())
def test_what_the_next_attempt_lacks_is_requested_beside_what_stays(gang: Gang) -> None:
    end = end_of_move(gang.usable, gang.need, gang.move, trains=False)
    usable, move = gang.usable, gang.move
    if move is not None and isinstance(end, CutOver):
        # The old machines are left for the new ones only when all of these are there.
        assert sum(one.launch_id == move.launch_id for one in usable) >= gang.need.node_count
        move = replace(move, is_on=True)
    elif move is not None and isinstance(end, Abandon):
        usable, move = [one for one in usable if one.launch_id != move.launch_id], None
    machines = machines_for(usable, gang.need, move)
    known = len(machines) < gang.need.node_count and not is_place_open(machines)
    supply = gang.supply(machines) if known else None
    decision = decide(GangState(lacking=LackingState(gang.need, len(machines), end, supply)))
    request = decision.request if isinstance(decision, Replace) else None
    _assert_together(gang, machines, () if request is None else request.bids)
    if request is not None and machines:
        assert len(machines) + request.least >= gang.nodes.least


@given(_gangs())
def test_a_claim_keeps_its_survivors_until_their_replacement_is_refused(gang: Gang) -> None:
    machines = machines_for(gang.usable, gang.need, None)[: gang.need.node_count]
    supply, is_one_coming = gang.supply(machines), any(one.pool is None for one in machines)
    claim = decide(
        GangState(
            claim=ClaimState(
                gang.need, tuple(one.id for one in machines), supply, lambda _count: False,
                is_one_coming=is_one_coming, claimed_with=len(machines),
            )
        )
    )  # fmt: skip
    assert isinstance(claim, ClaimDecision)
    kept = [one for one in machines if one.id not in claim.given_up]
    if claim.rule is ClaimRule.START and not is_place_open(machines):
        _assert_together(gang, kept, claim.bids)
    if claim.given_up:
        assert not is_one_coming, "its outcome is not known"
        assert len(machines) < gang.nodes.least, "they are enough"
        missing = gang.need.node_count - len(machines)
        least = max(1, min(missing, gang.nodes.least - len(machines)))
        beside = supply.offers.judge(least, gang.need.node_count)
        assert not any(item.fits for item in beside), "the others are to be had beside them"
        assert any(item.fits for item in claim.considered)


@given(st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))
def test_while_a_replacement_is_coming_the_others_wait_for_it(
    here: int, coming: int, missing: int
) -> None:
    """Beside them there is no room, and elsewhere there is."""
    home, other = POOLS[0], POOLS[-2]
    count = here + coming + missing
    usable = [
        _machine(number, home if number < here else None, home.market, LAUNCHES[0], ill=False)
        for number in range(here + coming)
    ]
    offers = [
        Offer(pool, V100, 1_000_000, 5_000_000, "ec2", NOW, "test", available=room)
        for pool, room in ((home, 0), (other, None))
    ]
    nodes, need = NodeRange(count, count), GangNeed(home.market, count)
    gang = Gang(need, nodes, usable, None, offers, None)
    state = ClaimState(
        need, tuple(one.id for one in usable), gang.supply(usable), lambda _count: False,
        is_one_coming=coming > 0, claimed_with=len(usable),
    )  # fmt: skip
    claim = decide(GangState(claim=state))
    assert isinstance(claim, ClaimDecision)
    assert bool(claim.given_up) is (coming == 0)
    assert (claim.rule is ClaimRule.NO_OFFER) is (coming > 0)
