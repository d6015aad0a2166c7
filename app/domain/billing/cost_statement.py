"""Where each dollar of a job went, summing exactly to what is booked.

Lives here: the split of booked costs over activities, and the job's statement with its two
savings figures. Not here: the bill (`billing`), the booking (`ledger`), phases (`phase_timeline`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from uuid import UUID

from app.domain.billing.billing import Component
from app.domain.billing.phase_timeline import (
    MICROSECOND,
    AttemptSteps,
    PhaseSpan,
    disjoint,
    rework_ends_at,
    rework_through,
)
from app.domain.billing.usage_segments import US_PER_HOUR, US_PER_SECOND
from app.domain.market.price_book import PriceSegment
from app.domain.units.apportionment import apportion, divide_half_even, divide_up
from trainer.protocol.agent_report import MachinePhase


class Activity(StrEnum):
    """What money bought. `minimum_charge` bought nothing: the machine ran shorter than its cloud
    charges at least. The last two are metered outside any machine's timeline.
    """

    USEFUL = "useful"
    REWORK = "rework"
    BOOT = "boot"
    SETUP = "setup"
    RESTORE = "restore"
    CHECKPOINT = "checkpoint"
    DRAIN = "drain"
    GANG_WAIT = "gang_wait"
    IDLE = "idle"
    MINIMUM_CHARGE = "minimum_charge"
    STORAGE = "storage"
    EGRESS = "egress"


_ACTIVITY_OF_PHASE: Mapping[MachinePhase, Activity] = {
    MachinePhase.BOOT: Activity.BOOT,
    MachinePhase.SETUP: Activity.SETUP,
    MachinePhase.IDLE: Activity.IDLE,
    MachinePhase.RESTORE: Activity.RESTORE,
    MachinePhase.GANG_WAIT: Activity.GANG_WAIT,
    MachinePhase.COMPILE: Activity.SETUP,
    MachinePhase.TRAIN: Activity.USEFUL,
    MachinePhase.CHECKPOINT: Activity.CHECKPOINT,
    MachinePhase.EVAL: Activity.USEFUL,
    MachinePhase.DRAIN: Activity.DRAIN,
}

_ACTIVITY_OFF_THE_TIMELINE: Mapping[Component, Activity] = {
    Component.OBJECT_STORAGE: Activity.STORAGE,
    Component.EGRESS: Activity.EGRESS,
    Component.CROSS_ZONE: Activity.EGRESS,
}


@dataclass(frozen=True, slots=True)
class CostSpan:
    """What is booked in one cell of the ledger, over the usage it covers.

    `gap_activity` is what seconds without a phase count as: idle, or gang_wait for a machine
    that is assigned to an attempt which does not train yet. `minimum_added`: for how much longer
    than that usage the cell is charged, because of the cloud's minimum.
    """

    component: Component
    from_at: datetime
    to_at: datetime
    booked_microusd: int
    gap_activity: Activity = Activity.IDLE
    minimum_added: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class InstanceCosts:
    """One machine's part in a job: its booked cells, what it did, and the prices it ran at.

    `prices` weigh compute seconds; they may be empty (then every second weighs the same).
    """

    instance_id: UUID
    spans: tuple[CostSpan, ...]
    timeline: tuple[PhaseSpan, ...] = ()
    prices: tuple[PriceSegment, ...] = ()
    waived_microusd: int = 0


@dataclass(frozen=True, slots=True)
class OnDemandYardstick:
    """What one machine of the cheapest acceptable on-demand offer would have cost.

    `start_seconds` (wall) is one boot and start-up of one machine, `node_count` the gang's size;
    `billing_speed` turns wall seconds into billed ones, and `minimum_seconds` and
    `granularity_seconds` are billed ones, as in the billing rules.
    """

    microusd_per_hour: int
    start_seconds: float
    node_count: int
    billing_speed: Fraction = Fraction(1)
    minimum_seconds: int = 0
    granularity_seconds: int = 1

    def cost_microusd(self, machine_us: int) -> int:
        """Cost of so many wall microseconds of one machine, whatever the least charge is."""
        billed = machine_us * self.billing_speed.numerator * self.microusd_per_hour
        return divide_half_even(billed, US_PER_HOUR * self.billing_speed.denominator)

    def run_microusd(self, useful_us: int) -> int:
        """Cost of one uninterrupted run with so many useful machine-microseconds in all.

        Each machine of the gang boots and starts up once, and is charged as its cloud does: begun
        seconds count whole, and there is a minimum.
        """
        start_us = round(self.start_seconds * US_PER_SECOND)
        each_us = divide_up(useful_us, self.node_count) + start_us
        billed = each_us * self.billing_speed.numerator
        grain = self.granularity_seconds * US_PER_SECOND * self.billing_speed.denominator
        least = self.minimum_seconds * US_PER_SECOND * self.billing_speed.denominator
        charged = max(divide_up(billed, grain) * grain, least) * self.node_count
        hour = US_PER_HOUR * self.billing_speed.denominator
        return divide_half_even(charged * self.microusd_per_hour, hour)


@dataclass(frozen=True, slots=True)
class JobCostStatement:
    """A job's money. Each of the three tables sums to `total_microusd`.

    net (the headline): `on_demand_comparison_microusd` is on-demand for the useful machine time
    plus one boot and start-up of the gang, with on-demand's own least charge; `net_saved_microusd`
    is that less everything the job paid, and negative when the job paid more.
    rate: how much less one billed compute hour cost than on-demand; waived time is not billed.
    Figures that need an on-demand offer, a divisor that is 0, or useful work are None.
    """

    total_microusd: int
    by_component: Mapping[Component, int]
    by_activity: Mapping[Activity, int]
    by_instance: Mapping[UUID, int]
    waived_microusd: int
    useful_seconds: int
    billed_seconds: int
    on_demand_comparison_microusd: int | None
    net_saved_microusd: int | None
    net_saved_ratio: Fraction | None
    rate_saved_ratio: Fraction | None


def split_span(
    span: CostSpan,
    timeline: Sequence[PhaseSpan],
    prices: Sequence[PriceSegment],
    through: Mapping[int, int],
) -> dict[Activity, int]:
    """One cell's booked micro-dollars by activity, summing exactly to `booked_microusd`.

    Weights are seconds times price for compute, seconds for what costs the same every hour. The
    booked amount is what is shared, so a waived cell gives zeros. `timeline` must be disjoint
    (`phase_timeline.disjoint`); `through` is `phase_timeline.rework_through`.
    """
    off_timeline = _ACTIVITY_OFF_THE_TIMELINE.get(span.component)
    if off_timeline is not None:
        return {off_timeline: span.booked_microusd}
    weigh_by = prices if span.component is Component.COMPUTE else ()
    weights: dict[Activity, int] = {}
    for activity, from_at, to_at in _activities(span, timeline, through):
        weight = _weight(from_at, to_at, weigh_by)
        weights[activity] = weights.get(activity, 0) + weight
    if span.minimum_added:
        # At the price of the last second, as in the bill.
        price = weigh_by[-1].microusd_per_hour if weigh_by else 1
        weights[Activity.MINIMUM_CHARGE] = span.minimum_added // MICROSECOND * price
    if not any(weights.values()):
        return {span.gap_activity: span.booked_microusd}
    return apportion(span.booked_microusd, weights)


def split_time(
    span: CostSpan, timeline: Sequence[PhaseSpan], through: Mapping[int, int]
) -> dict[Activity, timedelta]:
    """The wall time of one cell by activity, with what the minimum adds; parameters as above.

    Nothing for what is metered outside any machine's timeline.
    """
    if span.component in _ACTIVITY_OFF_THE_TIMELINE:
        return {}
    found: dict[Activity, timedelta] = {}
    for activity, from_at, to_at in _activities(span, timeline, through):
        found[activity] = found.get(activity, timedelta()) + (to_at - from_at)
    if span.minimum_added:
        found[Activity.MINIMUM_CHARGE] = span.minimum_added
    return found


def split(costs: InstanceCosts, attempts: Iterable[AttemptSteps] = ()) -> dict[Activity, int]:
    """One machine's booked cost by activity; the sum is exactly what its spans hold."""
    timeline, through = disjoint(costs.timeline), rework_through(attempts)
    totals = dict.fromkeys(Activity, 0)
    for span in costs.spans:
        for activity, amount in split_span(span, timeline, costs.prices, through).items():
            totals[activity] += amount
    return totals


def job_cost_statement(
    costs: Sequence[InstanceCosts],
    attempts: Sequence[AttemptSteps],
    yardstick: OnDemandYardstick | None,
) -> JobCostStatement:
    """The statement over all machines that worked for a job."""
    through = rework_through(attempts)
    by_component = dict.fromkeys(Component, 0)
    by_activity = dict.fromkeys(Activity, 0)
    by_instance: dict[UUID, int] = {}
    useful_us = billed_us = 0
    for machine in costs:
        for span in machine.spans:
            by_component[span.component] += span.booked_microusd
        for activity, amount in split(machine, attempts).items():
            by_activity[activity] += amount
        booked = sum(span.booked_microusd for span in machine.spans)
        by_instance[machine.instance_id] = by_instance.get(machine.instance_id, 0) + booked
        useful_us += _useful_us(machine, through)
        if machine.waived_microusd == 0:
            billed_us += _compute_us(machine)
    total = sum(by_component.values())
    compared = same_time = None
    if yardstick is not None:
        compared = yardstick.run_microusd(useful_us) if useful_us else None
        same_time = yardstick.cost_microusd(billed_us)
    return JobCostStatement(
        total_microusd=total,
        by_component=by_component,
        by_activity=by_activity,
        by_instance=by_instance,
        waived_microusd=sum(machine.waived_microusd for machine in costs),
        useful_seconds=useful_us // US_PER_SECOND,
        billed_seconds=billed_us // US_PER_SECOND,
        on_demand_comparison_microusd=compared,
        net_saved_microusd=None if compared is None else compared - total,
        net_saved_ratio=_saved_ratio(total, compared),
        rate_saved_ratio=_saved_ratio(by_component[Component.COMPUTE], same_time),
    )


def _saved_ratio(paid_microusd: int, compared_microusd: int | None) -> Fraction | None:
    return 1 - Fraction(paid_microusd, compared_microusd) if compared_microusd else None


def _activities(
    span: CostSpan, timeline: Sequence[PhaseSpan], through: Mapping[int, int]
) -> list[tuple[Activity, datetime, datetime]]:
    """The cost span cut into activities, without a gap."""
    found: list[tuple[Activity, datetime, datetime]] = []
    reached = span.from_at
    for phase in timeline:
        if phase.to_at <= span.from_at or phase.from_at >= span.to_at:
            continue
        redone_until = rework_ends_at(phase, through)
        pieces = (
            (span.gap_activity, reached, phase.from_at),
            (Activity.REWORK, phase.from_at, redone_until),
            (_ACTIVITY_OF_PHASE[phase.phase], redone_until, phase.to_at),
        )
        for activity, piece_from, piece_to in pieces:
            from_at, to_at = max(piece_from, span.from_at), min(piece_to, span.to_at)
            if from_at < to_at:
                found.append((activity, from_at, to_at))
        reached = phase.to_at
    if reached < span.to_at:
        found.append((span.gap_activity, reached, span.to_at))
    return found


def _weight(from_at: datetime, to_at: datetime, prices: Sequence[PriceSegment]) -> int:
    """Microseconds, each times its price when there are prices."""
    if not prices:
        return (to_at - from_at) // MICROSECOND
    weight = 0
    for price in prices:
        length_us = (min(to_at, price.to_at) - max(from_at, price.from_at)) // MICROSECOND
        weight += max(0, length_us) * price.microusd_per_hour
    return weight


def _useful_us(machine: InstanceCosts, through: Mapping[int, int]) -> int:
    timeline = disjoint(machine.timeline)
    return sum(
        (to_at - from_at) // MICROSECOND
        for span in machine.spans
        if span.component is Component.COMPUTE
        for activity, from_at, to_at in _activities(span, timeline, through)
        if activity is Activity.USEFUL
    )


def _compute_us(machine: InstanceCosts) -> int:
    return sum(
        (span.to_at - span.from_at) // MICROSECOND
        for span in machine.spans
        if span.component is Component.COMPUTE
    )
