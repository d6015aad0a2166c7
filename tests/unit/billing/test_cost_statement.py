"""Where the money of a small job went, against amounts worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from uuid import UUID

import pytest

from app.domain.billing.billing import Component
from app.domain.billing.cost_statement import (
    Activity,
    CostSpan,
    InstanceCosts,
    OnDemandYardstick,
    job_cost_statement,
    split,
)
from app.domain.billing.phase_timeline import (
    AttemptSteps,
    PhaseSpan,
    disjoint,
    rework_seconds,
    rework_through,
)
from app.domain.market.price_book import PriceBook, PricePoint
from trainer.protocol.agent_report import MachinePhase

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
MACHINE = UUID(int=1)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def phase(
    kind: MachinePhase, from_s: float, to_s: float, fence: int = 1,
    steps: tuple[int, int] | None = None,
) -> PhaseSpan:  # fmt: skip
    first, last = steps or (None, None)
    return PhaseSpan(kind, after(from_s), after(to_s), fence, first, last)


def compute(to_s: float, booked: int, from_s: float = 0) -> CostSpan:
    return CostSpan(Component.COMPUTE, after(from_s), after(to_s), booked)


TIMELINE = (
    phase(MachinePhase.BOOT, 0, 20),
    phase(MachinePhase.RESTORE, 20, 30, 2),
    phase(MachinePhase.TRAIN, 30, 80, 2, (41, 90)),
    phase(MachinePhase.CHECKPOINT, 80, 85, 2),
    phase(MachinePhase.EVAL, 85, 90, 2),
)
ATTEMPTS = (AttemptSteps(1, 0, 60), AttemptSteps(2, 40, 90))


def nonzero(found: dict[Activity, int]) -> dict[Activity, int]:
    return {activity: amount for activity, amount in found.items() if amount}


def test_each_second_is_put_to_what_it_was_used_for() -> None:
    costs = InstanceCosts(MACHINE, (compute(100, 100_000),), TIMELINE)
    assert nonzero(split(costs, ATTEMPTS)) == {
        Activity.BOOT: 20_000,
        Activity.RESTORE: 10_000,
        Activity.REWORK: 20_000,  # steps 41 to 60 of 41 to 90
        Activity.USEFUL: 35_000,
        Activity.CHECKPOINT: 5_000,
        Activity.IDLE: 10_000,
    }


def test_a_dearer_hour_weighs_more_for_compute_and_not_for_the_disk() -> None:
    book = PriceBook.of(
        [PricePoint(START, 100, "trace", START), PricePoint(after(50), 300, "trace", START)]
    )
    timeline = (phase(MachinePhase.BOOT, 0, 50), phase(MachinePhase.DRAIN, 50, 100))
    disk = CostSpan(Component.DISK, START, after(100), 1_000)
    prices = book.segments(START, after(100))
    costs = InstanceCosts(MACHINE, (compute(100, 4_000),), timeline, prices)
    assert nonzero(split(costs)) == {Activity.BOOT: 1_000, Activity.DRAIN: 3_000}
    assert nonzero(split(replace(costs, spans=(disk,)))) == {
        Activity.BOOT: 500,
        Activity.DRAIN: 500,
    }


def test_a_waived_machine_gives_zeros_and_gaps_can_be_gang_wait() -> None:
    waived = InstanceCosts(MACHINE, (compute(100, 0),), TIMELINE)
    assert nonzero(split(waived, ATTEMPTS)) == {}
    waiting = replace(compute(10, 777), gap_activity=Activity.GANG_WAIT)
    assert nonzero(split(InstanceCosts(MACHINE, (waiting,)))) == {Activity.GANG_WAIT: 777}


def test_what_the_minimum_adds_has_its_own_line() -> None:
    timeline = (phase(MachinePhase.BOOT, 0, 10), phase(MachinePhase.TRAIN, 10, 18))
    short = replace(compute(18, 60_000), minimum_added=timedelta(seconds=42))
    found = split(InstanceCosts(MACHINE, (short,), timeline))
    assert nonzero(found) == {
        Activity.BOOT: 10_000,
        Activity.USEFUL: 8_000,
        Activity.MINIMUM_CHARGE: 42_000,
    }
    never_ran = replace(compute(0, 60_000), minimum_added=timedelta(seconds=60))
    assert nonzero(split(InstanceCosts(MACHINE, (never_ran,)))) == {Activity.MINIMUM_CHARGE: 60_000}


def test_the_minimum_is_charged_at_the_last_price() -> None:
    book = PriceBook.of(
        [PricePoint(START, 100, "trace", START), PricePoint(after(10), 300, "trace", START)]
    )
    short = replace(compute(20, 16_000), minimum_added=timedelta(seconds=40))
    costs = InstanceCosts(MACHINE, (short,), (), book.segments(START, after(20)))
    assert nonzero(split(costs)) == {Activity.IDLE: 4_000, Activity.MINIMUM_CHARGE: 12_000}


def test_storage_and_egress_stand_outside_the_timeline() -> None:
    spans = tuple(
        CostSpan(component, START, after(100), 10)
        for component in (Component.OBJECT_STORAGE, Component.EGRESS, Component.CROSS_ZONE)
    )
    assert nonzero(split(InstanceCosts(MACHINE, spans, TIMELINE))) == {
        Activity.STORAGE: 10,
        Activity.EGRESS: 20,
    }


def test_of_overlapping_phases_the_later_begun_is_believed() -> None:
    spans = disjoint([phase(MachinePhase.DRAIN, 40, 60), phase(MachinePhase.TRAIN, 0, 50)])
    assert [(span.phase, span.to_at) for span in spans] == [
        (MachinePhase.TRAIN, after(40)),
        (MachinePhase.DRAIN, after(60)),
    ]


def test_rework_is_what_any_earlier_fence_had_reached() -> None:
    attempts = [AttemptSteps(3, 20, 100), AttemptSteps(1, 0, 60), AttemptSteps(2, 20, 30)]
    assert rework_through(attempts) == {1: 0, 2: 60, 3: 60}
    first = phase(MachinePhase.TRAIN, 0, 60, 1, (1, 60))
    second = phase(MachinePhase.TRAIN, 100, 110, 2, (21, 30))
    third = phase(MachinePhase.TRAIN, 200, 280, 3, (21, 100))
    assert rework_seconds([first], attempts) == 0
    assert rework_seconds([second], attempts) == 10
    assert rework_seconds([third], attempts) == 40
    assert rework_seconds([first, second, third], attempts) == 50
    unknown = phase(MachinePhase.TRAIN, 0, 60, 3)
    assert rework_seconds([unknown], attempts) == 0


def test_the_statement_keeps_the_two_savings_apart() -> None:
    kept = InstanceCosts(MACHINE, (compute(100, 100_000),), TIMELINE)
    waived = InstanceCosts(
        UUID(int=2), (compute(50, 0),), (phase(MachinePhase.TRAIN, 0, 50, 1, (1, 50)),),
        waived_microusd=50_000,
    )  # fmt: skip
    yardstick = OnDemandYardstick(microusd_per_hour=14_400_000, start_seconds=15, node_count=2)
    report = job_cost_statement([kept, waived], ATTEMPTS, yardstick)
    assert report.total_microusd == 100_000
    assert report.by_instance == {MACHINE: 100_000, UUID(int=2): 0}
    assert report.by_component[Component.COMPUTE] == 100_000
    assert report.waived_microusd == 50_000
    assert (report.useful_seconds, report.billed_seconds) == (85, 100)
    # net: 4,000 micro-dollars a second x 2 machines x (42.5 useful + 15 to start, begun seconds
    # whole) against all that was paid
    assert report.on_demand_comparison_microusd == 464_000
    assert report.net_saved_microusd == 364_000
    assert report.net_saved_ratio == Fraction(364, 464)
    # rate: 1,000 a second paid for the billed 100 s against 4,000
    assert report.rate_saved_ratio == Fraction(3, 4)


def test_without_an_on_demand_offer_nothing_is_claimed_to_be_saved() -> None:
    report = job_cost_statement([], (), None)
    assert report.total_microusd == 0
    assert report.net_saved_microusd is None
    assert report.net_saved_ratio is None
    assert report.rate_saved_ratio is None


def test_on_demand_has_its_own_minimum_and_its_own_start() -> None:
    """17 seconds of work on spot cost a minute; on demand they would have cost a minute, too."""
    spot = replace(compute(18, 15_300), minimum_added=timedelta(seconds=42))
    kept = InstanceCosts(MACHINE, (spot,), (phase(MachinePhase.TRAIN, 1, 18),))
    yardstick = OnDemandYardstick(3_060_000, 1.2, 1, minimum_seconds=60)
    report = job_cost_statement([kept], (), yardstick)
    assert report.on_demand_comparison_microusd == 51_000
    assert report.net_saved_ratio == Fraction(7, 10)
    gang = replace(yardstick, node_count=2)
    assert job_cost_statement([kept], (), gang).on_demand_comparison_microusd == 2 * 51_000
    long = replace(yardstick, start_seconds=100)
    assert long.run_microusd(17_000_000) == 850 * 117
    # The bill's clock runs 60 times faster: a second is a minute.
    assert replace(yardstick, billing_speed=Fraction(60)).run_microusd(1_000_000) == 850 * 132


def test_a_job_that_paid_more_says_so_and_one_without_work_compares_nothing() -> None:
    yardstick = OnDemandYardstick(3_600_000, 0, 1)
    dear = InstanceCosts(MACHINE, (compute(50, 70_000),), (phase(MachinePhase.TRAIN, 0, 50),))
    report = job_cost_statement([dear], (), yardstick)
    assert report.net_saved_microusd == -20_000
    assert report.net_saved_ratio == Fraction(-2, 5)
    idle = InstanceCosts(MACHINE, (compute(50, 70_000),), (phase(MachinePhase.SETUP, 0, 50),))
    report = job_cost_statement([idle], (), yardstick)
    assert report.on_demand_comparison_microusd is None
    assert report.net_saved_microusd is None
    assert report.net_saved_ratio is None


def test_training_of_which_nothing_was_kept_is_not_useful() -> None:
    lost = replace(phase(MachinePhase.TRAIN, 20, 80), lost=True)
    costs = InstanceCosts(MACHINE, (compute(100, 100_000),), (lost,))
    assert nonzero(split(costs)) == {Activity.REWORK: 60_000, Activity.IDLE: 40_000}


@pytest.mark.parametrize("speed", [1, 60])
def test_a_faster_bill_is_compared_at_the_same_speed(speed: int) -> None:
    yardstick = OnDemandYardstick(3_600_000, 0, 1, Fraction(speed))
    assert yardstick.cost_microusd(1_000_000) == 1_000 * speed
