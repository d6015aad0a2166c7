"""Properties of the bill, the ledger and the statement: nothing is lost, nothing is invented."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.billing.billing import BillKey, Component, bill, is_waived, rate
from app.domain.billing.billing_rules import EC2_RULES, GCE_RULES, BillingRules, SpotPricing
from app.domain.billing.cost_statement import (
    Activity,
    CostSpan,
    InstanceCosts,
    OnDemandYardstick,
    job_cost_statement,
    split,
)
from app.domain.billing.ledger import Entry, EntryKind, close_books
from app.domain.billing.machine_facts import (
    AddressRate,
    AssignmentSpan,
    DiskRate,
    MachineFacts,
    Transfer,
)
from app.domain.billing.phase_timeline import AttemptSteps, PhaseSpan
from app.domain.billing.rating_basis import RatingBasis
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.domain.market.price_book import PriceBook, PricePoint, PriceSegment
from app.domain.units.apportionment import apportion, divide_half_even
from tests.property.examples import in_full
from trainer.protocol.agent_report import MachinePhase

ORIGIN = datetime(2026, 3, 1, 9, 59, 47, 250_000, UTC)
US = timedelta(microseconds=1)
SPAN_US = 6 * 3600 * 1_000_000
FAR = ORIGIN + 3 * SPAN_US * US


def instant(offset_us: int) -> datetime:
    return ORIGIN + offset_us * US


offsets = st.one_of(
    st.integers(0, SPAN_US),
    st.integers(0, 6 * 3600).map(lambda second: second * 1_000_000),
    st.integers(0, 120).map(lambda second: second * 1_000_000),
)
rules_strategy = st.builds(
    lambda base, speed, pricing: replace(base.at_speed(speed), spot_pricing=pricing),
    st.sampled_from([EC2_RULES, GCE_RULES]),
    st.sampled_from([Fraction(1), Fraction(60), Fraction(7, 3), Fraction(1, 2)]),
    st.sampled_from(SpotPricing),
)


def price_books() -> st.SearchStrategy[PriceBook]:
    later = st.lists(st.tuples(offsets, st.integers(0, 40_000_000)), max_size=6)
    return st.builds(
        lambda first, more: PriceBook.of(
            PricePoint(at, price, "trace", at)
            for at, price in [(ORIGIN, first), *((instant(us), price) for us, price in more)]
        ),
        st.integers(0, 40_000_000),
        later,
    )


def assignment_id(number: int) -> UUID:
    return UUID(int=number + 1)


def assigned(cuts: list[int], first_us: int = 0) -> tuple[AssignmentSpan, ...]:
    """Gapless assignments from `first_us` on, one more at each cut, the last one open."""
    edges = sorted({first_us, *(cut for cut in cuts if cut > first_us)})
    ends = [*(instant(edge) for edge in edges[1:]), None]
    return tuple(
        AssignmentSpan(assignment_id(number), assignment_id(number % 2), None, instant(edge), end)
        for number, (edge, end) in enumerate(zip(edges, ends, strict=True))
    )


@dataclass(frozen=True)
class Case:
    facts: MachineFacts
    book: PriceBook
    rules: BillingRules

    @property
    def prices(self) -> tuple[PriceSegment, ...]:
        return self.book.segments(ORIGIN, FAR)

    def bill(self, until: datetime) -> dict[BillKey, int]:
        return dict(bill(self.facts, self.prices, self.rules, until))


transfers = st.builds(
    lambda at, size, price: Transfer(instant(at), size, price, "list", ORIGIN),
    offsets,
    st.integers(1, 2**45),
    st.sampled_from([10_000, 20_000, 90_000]),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ended = draw(st.none() | offsets)
    facts = MachineFacts(
        instance_id=UUID(int=0),
        market=draw(st.sampled_from(Market)),
        started_at=ORIGIN,
        ended_at=None if ended is None else instant(ended),
        ended_by=None if ended is None else draw(st.sampled_from(EndedBy)),
        assignments=assigned(draw(st.lists(offsets, max_size=4)), draw(st.sampled_from([0, 777]))),
        disk=draw(st.sampled_from([None, DiskRate(100, 80_000, "list", ORIGIN)])),
        public_ip=draw(st.sampled_from([None, AddressRate(5_000, "list", ORIGIN)])),
        transfers=tuple(draw(st.lists(transfers, max_size=3))),
    )
    return Case(facts, draw(price_books()), draw(rules_strategy))


def totals(amounts: dict[BillKey, int]) -> dict[Component, int]:
    sums: Counter[Component] = Counter()
    for key, amount in amounts.items():
        sums[key.component] += amount
    return dict(sums)


class Books:
    """A ledger as the store keeps it: appended entries, their sums per cell, the last basis."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.booked: Counter[BillKey] = Counter()
        self.basis: RatingBasis | None = None

    def close(self, case: Case, until: datetime) -> tuple[Entry, ...]:
        closed = close_books(
            case.facts, case.prices, case.rules, until=until,
            booked=dict(self.booked), previous=self.basis,
        )  # fmt: skip
        for entry in closed.entries:
            self.booked[entry.key] += entry.amount_microusd
        self.entries += closed.entries
        self.basis = RatingBasis.from_json(closed.basis.to_json())
        return closed.entries

    def standing(self) -> dict[BillKey, int]:
        return {key: amount for key, amount in self.booked.items() if amount}


def nonzero(amounts: dict[BillKey, int]) -> dict[BillKey, int]:
    return {key: amount for key, amount in amounts.items() if amount}


@settings(deadline=None)
@given(cases(), offsets)
def test_each_component_is_its_exact_cost_rounded_once(case: Case, until_us: int) -> None:
    case = replace(case, rules=replace(case.rules, spot_pricing=SpotPricing.PIECEWISE))
    until = instant(until_us)
    facts, speed = case.facts, case.rules.billing_speed
    ended = facts.ended_at is not None and facts.ended_at <= until
    end = facts.ended_at if ended and facts.ended_at else until
    exact, seconds = Fraction(0), Fraction((end - ORIGIN) // US, 1_000_000) * speed
    for segment in case.book.segments(ORIGIN, end):
        length = Fraction((segment.to_at - segment.from_at) // US, 1_000_000) * speed
        exact += segment.microusd_per_hour * length / 3600
    charged = max(Fraction(60), Fraction(-(-seconds // 1))) if ended else seconds
    last_price = case.book.segments(ORIGIN, end)[-1].microusd_per_hour
    exact += last_price * (charged - seconds) / 3600
    found = totals(case.bill(until))
    compute = 0 if is_waived(facts, case.rules, until) else round(exact)
    assert found.get(Component.COMPUTE, 0) == compute
    if facts.disk is not None:
        disk = Fraction(100 * 80_000) * charged / (730 * 3600)
        assert found.get(Component.DISK, 0) == round(disk)
    if facts.public_ip is not None:
        assert found.get(Component.PUBLIC_IP, 0) == round(Fraction(5_000) * charged / 3600)
    brought = sum(
        Fraction(one.size_bytes * one.microusd_per_gb, 2**30)
        for one in facts.transfers
        if ended or one.at <= until
    )
    assert found.get(Component.EGRESS, 0) == round(brought)


@settings(deadline=None)
@given(cases(), st.lists(offsets, max_size=8))
def test_entries_sum_to_the_bill_after_every_closing(case: Case, looks: list[int]) -> None:
    books = Books()
    for until in sorted(map(instant, looks)):
        books.close(case, until)
        assert books.standing() == nonzero(case.bill(until))
    books.close(case, FAR)
    assert books.standing() == nonzero(case.bill(FAR))
    assert books.close(case, FAR) == ()


@settings(deadline=None)
@given(st.lists(cases(), min_size=2, max_size=4), st.lists(offsets, min_size=4, max_size=4))
def test_entries_follow_any_revision_of_the_inputs(revised: list[Case], looks: list[int]) -> None:
    books = Books()
    for case, until in zip(revised, sorted(map(instant, looks)), strict=False):
        for entry in books.close(case, until):
            assert entry.usage_from_at <= entry.usage_to_at
            assert entry.amount_microusd != 0
        assert books.standing() == nonzero(case.bill(until))


@settings(deadline=None)
@given(cases(), offsets, offsets)
def test_a_running_machine_only_ever_adds_and_leaves_past_cells_alone(
    case: Case, one: int, other: int
) -> None:
    case = replace(case, facts=replace(case.facts, ended_at=None, ended_by=None))
    earlier, later = instant(min(one, other)), instant(max(one, other))
    before, after = case.bill(earlier), case.bill(later)
    lines = rate(case.facts, case.prices, case.rules, earlier)
    newest = max((line.usage_to_at for line in lines), default=earlier)
    for line in lines:
        assert after[line.key] >= before[line.key]
        # What is told one by one may come at any time of its hour.
        told = line.key.component is Component.EGRESS
        is_over = line.key.usage_hour_at + timedelta(hours=1) <= earlier
        if is_over if told else line.usage_to_at < newest:
            assert after[line.key] == before[line.key]


@settings(deadline=None)
@given(cases(), transfers, offsets)
def test_a_transfer_told_after_the_end_is_booked_and_nothing_else_moves(
    case: Case, late: Transfer, ended_us: int
) -> None:
    facts = replace(case.facts, ended_at=instant(ended_us), ended_by=EndedBy.US)
    books = Books()
    books.close(replace(case, facts=facts), FAR)
    before = books.standing()
    told = replace(case, facts=replace(facts, transfers=(*facts.transfers, late)))
    for entry in books.close(told, FAR):
        assert entry.key.component is Component.EGRESS
    assert books.standing() == nonzero(told.bill(FAR))
    others = {key: n for key, n in before.items() if key.component is not Component.EGRESS}
    assert others.items() <= books.standing().items()


@settings(deadline=None)
@given(cases(), st.lists(offsets, min_size=1, max_size=6))
def test_time_alone_makes_accruals_only(case: Case, looks: list[int]) -> None:
    case = replace(case, facts=replace(case.facts, ended_at=None, ended_by=None))
    books = Books()
    for until in sorted(map(instant, looks)):
        assert all(entry.kind is EntryKind.ACCRUAL for entry in books.close(case, until))


@settings(deadline=None)
@given(cases(), st.integers(0, 3_599), offsets)
def test_an_interruption_in_the_free_hour_leaves_no_compute(
    case: Case, billed_second: int, look_us: int
) -> None:
    rules = EC2_RULES.at_speed(case.rules.billing_speed)
    ended_us = int(billed_second * 1_000_000 / rules.billing_speed)
    facts = replace(
        case.facts, market=Market.SPOT, ended_at=instant(ended_us),
        ended_by=EndedBy.CLOUD_INTERRUPTION,
    )  # fmt: skip
    running = replace(facts, ended_at=None, ended_by=None)
    books = Books()
    books.close(Case(running, case.book, rules), instant(look_us))
    books.close(Case(facts, case.book, rules), instant(max(look_us, ended_us)))
    assert totals(dict(books.booked)).get(Component.COMPUTE, 0) == 0
    assert books.standing() == nonzero(Case(facts, case.book, rules).bill(FAR))


@settings(deadline=None)
@given(cases(), st.lists(offsets, max_size=5), offsets)
def test_splitting_assignments_moves_no_total(case: Case, cuts: list[int], until: int) -> None:
    other = replace(case, facts=replace(case.facts, assignments=assigned(cuts)))
    assert totals(case.bill(instant(until))) == totals(other.bill(instant(until)))


@settings(deadline=None)
@given(cases(), st.lists(offsets, max_size=6), offsets)
def test_refining_price_segments_changes_no_cell(case: Case, cuts: list[int], until: int) -> None:
    finer: list[PriceSegment] = []
    for segment in case.prices:
        inside = sorted(at for at in map(instant, cuts) if segment.from_at < at < segment.to_at)
        edges = [segment.from_at, *inside, segment.to_at]
        for from_at, to_at in pairwise(edges):
            finer.append(replace(segment, from_at=from_at, to_at=to_at))
    at = instant(until)
    assert bill(case.facts, finer, case.rules, at) == case.bill(at)
    coarse = close_books(
        case.facts, case.prices, case.rules, until=at, booked={}, previous=None
    ).basis
    fine = close_books(case.facts, finer, case.rules, until=at, booked={}, previous=None).basis
    assert coarse == fine


@settings(max_examples=in_full(15), deadline=None)
@given(cases(), st.integers(1, 150))
def test_a_second_at_a_time_is_the_same_as_at_once(case: Case, seconds: int) -> None:
    books = Books()
    for second in range(seconds + 1):
        books.close(case, ORIGIN + timedelta(seconds=second))
    at_once = Books()
    at_once.close(case, ORIGIN + timedelta(seconds=seconds))
    assert books.standing() == at_once.standing()


@settings(deadline=None)
@given(st.integers(-(10**9), 10**9), st.lists(st.integers(0, 10**12), min_size=1, max_size=8))
def test_shares_sum_to_the_total_and_stay_within_one(total: int, weights: list[int]) -> None:
    weights[0] += 1
    shares = apportion(total, dict(enumerate(weights)))
    assert sum(shares.values()) == total
    for place, weight in enumerate(weights):
        assert abs(shares[place] - Fraction(total * weight, sum(weights))) < 1


@settings(deadline=None)
@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
def test_half_even_division_is_the_languages_own(numerator: int, denominator: int) -> None:
    assert divide_half_even(numerator, denominator) == round(Fraction(numerator, denominator))


@st.composite
def timelines(draw: st.DrawFn) -> tuple[PhaseSpan, ...]:
    spans = []
    for _ in range(draw(st.integers(0, 7))):
        from_us, to_us = sorted((draw(offsets), draw(offsets)))
        phase = draw(st.sampled_from(MachinePhase))
        first = draw(st.none() | st.integers(1, 500))
        last = None if first is None else first + draw(st.integers(0, 200))
        fence = draw(st.none() | st.integers(1, 4))
        spans.append(PhaseSpan(phase, instant(from_us), instant(to_us), fence, first, last))
    return tuple(spans)


@settings(deadline=None)
@given(
    cases(), timelines(), offsets, st.sampled_from([Activity.IDLE, Activity.GANG_WAIT]),
    st.lists(st.integers(0, 600), max_size=4),
)  # fmt: skip
def test_a_statement_sums_exactly_to_what_is_booked(
    case: Case, timeline: tuple[PhaseSpan, ...], until: int, gap: Activity, reached: list[int]
) -> None:
    lines = rate(case.facts, case.prices, case.rules, instant(until))
    spans = tuple(
        CostSpan(
            line.key.component, line.usage_from_at, line.usage_to_at, line.amount_microusd, gap
        )
        for line in lines
    )
    spans += (CostSpan(Component.EGRESS, ORIGIN, FAR, 1_234_567),)
    machine = InstanceCosts(case.facts.instance_id, spans, timeline, case.prices)
    attempts = [AttemptSteps(fence, 0, step) for fence, step in enumerate(reached, start=1)]
    booked = sum(span.booked_microusd for span in spans)
    assert sum(split(machine, attempts).values()) == booked
    report = job_cost_statement(
        [machine], attempts, OnDemandYardstick(3_060_000, 90, 1, case.rules.billing_speed)
    )
    assert report.total_microusd == booked
    for table in (report.by_component, report.by_activity, report.by_instance):
        assert sum(table.values()) == booked
    told = totals({line.key: line.amount_microusd for line in lines})
    assert report.by_activity[Activity.EGRESS] == 1_234_567 + told.get(Component.EGRESS, 0)
