"""How many machines an elastic gang should have: from price, time left and expected scaling.

Lives here: what a size is expected to take, the choice among sizes, and when a running gang should
get another. The sizes that there are come
from offers judged for the least one. Not here: how gangs scale (`gang_scaling`), or which pools
there are (`placement`).

With a deadline: the cheapest size that is expected to make it. Without one, money is weighed
against time: an hour sooner counts as much as HOUR_WORTH hours of one on-demand machine. A larger
gang ends sooner, but scales worse than linearly and is interrupted as many times as often as it has
machines, so its progress is always dearer; the cheaper the market, the more of them are worth it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from app.domain.availability.hazard_models import USUAL_FACTOR
from app.domain.market.offer import Market, Offer
from app.domain.placement.expected_cost import useful_share
from app.domain.placement.placement import RankedOffer, need_of, rank_offers
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.node_range import NodeRange
from app.domain.throughput.gang_scaling import EXPECTED_SCALING, GangScaling
from app.domain.throughput.gpu_throughput import (
    NOTHING_MEASURED,
    GpuThroughput,
    gpu_shape_of,
    gpu_shape_of_choice,
)
from app.domain.throughput.measured_work import NOT_MEASURED, MeasuredWork
from app.domain.units.durations import format_duration
from app.domain.units.money import format_usd

HOUR_WORTH: Final = 1.0
"""What an hour sooner is worth without a deadline, in hours of one on-demand machine."""

DEADLINE_MARGIN: Final = 1.1
"""Expected times are stretched by so much before they are held against a deadline."""

SPOT_MARGIN: Final = 1.5
"""The same where machines are taken: how long others are waited for is in no expectation."""

RESIZE_EVERY_SECONDS: Final = 1_800.0
"""A running gang keeps its size for at least as long."""

RESIZE_GAIN_MIN: Final = 1.5
"""Another size must save so many times what the restart costs, or it would follow every price."""

SHRINK_MARGIN: Final = 1.2
"""On top of those, before a running gang gets smaller: it should not have to grow again."""


@dataclass(frozen=True, slots=True)
class SizeOption:
    """A size that can be had now: so many machines, each at a price.

    speed: of one machine, in terms of the machine that the work is counted in. hazard_factor: of
    one machine, as in `expected_cost`; None on demand, where nothing is taken. billing_speed:
    billed hours in an hour, as of an offer.
    """

    count: int
    microusd_per_hour: int
    on_demand_microusd_per_hour: int
    hazard_factor: float | None = USUAL_FACTOR
    speed: float = 1.0
    billing_speed: int = 1

    def pace(self, restart_seconds: float, scaling: GangScaling) -> float:
        """Expected progress per hour, in hours of one machine that never restarts."""
        pace = self.speed * scaling.speed_up(self.count)
        if self.hazard_factor is None:
            return pace
        return pace * useful_share(self.hazard_factor * self.count, restart_seconds)


@dataclass(frozen=True, slots=True)
class SizeQuestion:
    """What a size is chosen for.

    work_seconds: what is left, on one machine; None while nobody knows. restart_seconds: from
    asking for machines to the first step. deadline_seconds: from now, None without one; of them
    reserve_seconds are kept back for moving to on-demand. money_left_microusd: None for no cap.
    scaling: how its gangs gain by their size.
    """

    nodes: NodeRange
    work_seconds: float | None
    restart_seconds: float
    deadline_seconds: float | None = None
    reserve_seconds: float = 0.0
    money_left_microusd: int | None = None
    scaling: GangScaling = EXPECTED_SCALING


@dataclass(frozen=True, slots=True)
class SizeChoice:
    """The size, and why, as the end of a sentence for people."""

    count: int
    why: str


@dataclass(frozen=True, slots=True)
class _Outlook:
    """An option with what it is expected to take. worth: cost of progress, time included."""

    option: SizeOption
    seconds: float
    microusd: float
    worth: float


def choose_size(options: Sequence[SizeOption], question: SizeQuestion) -> SizeChoice | None:
    """The size to start with; None without an option within the range.

    A tighter deadline never gives fewer machines, and without a deadline a dearer market never
    gives more. Ties go to the smaller gang.
    """
    within = [one for one in options if question.nodes.least <= one.count <= question.nodes.most]
    if not within:
        return None
    judged = [_outlook(one, question) for one in sorted(within, key=lambda one: one.count)]
    paid_for, short = _within_money(judged, question)
    if question.deadline_seconds is None or question.work_seconds is None:
        best = min(paid_for, key=lambda one: one.worth)
        reason = "the best balance of cost and time at current prices"
    else:
        best, reason = _in_time(paid_for, question, question.deadline_seconds)
    if short:
        reason = f"{reason}, within the budget"
    if question.scaling.measured:
        reason = f"{reason}; {question.scaling.sentence(question.nodes.most)}"
    count, price = best.option.count, best.option.microusd_per_hour
    return SizeChoice(count, f"for {format_usd(count * price)} an hour {reason}")


def _outlook(option: SizeOption, question: SizeQuestion) -> _Outlook:
    pace = option.pace(question.restart_seconds, question.scaling)
    billed = option.count * option.microusd_per_hour * option.billing_speed
    seconds = question.restart_seconds + (question.work_seconds or 0.0) / pace
    worth = _worth_of(option, question, HOUR_WORTH * option.on_demand_microusd_per_hour)
    return _Outlook(option, seconds, billed * seconds / 3_600, worth)


def _within_money(
    judged: Sequence[_Outlook], question: SizeQuestion
) -> tuple[Sequence[_Outlook], bool]:
    """Those that the budget is expected to bear to the end, else the cheapest; and if any fell."""
    money = question.money_left_microusd
    if money is None or question.work_seconds is None:
        return judged, False
    affordable = [one for one in judged if one.microusd <= money]
    if not affordable:
        affordable = [min(judged, key=lambda one: one.microusd)]
    return affordable, len(affordable) < len(judged)


def _in_time(
    judged: Sequence[_Outlook], question: SizeQuestion, deadline_seconds: float
) -> tuple[_Outlook, str]:
    """The cheapest that makes the deadline, else the fastest."""
    # What is larger and no faster is out: of the rest, more machines always mean sooner.
    rising: list[_Outlook] = []
    for one in judged:
        if not rising or one.seconds < rising[-1].seconds:
            rising.append(one)
    room = deadline_seconds - question.reserve_seconds
    left = _told(max(0.0, deadline_seconds))
    in_time = [one for one in rising if one.seconds * _margin(one.option) <= room]
    if in_time:
        best = min(in_time, key=lambda one: one.microusd)
        takes = _told(best.seconds)
        text = f"the cheapest that meets the deadline in {left}, expected to take {takes}"
        return best, text
    best = rising[-1]
    takes = _told(best.seconds)
    return best, f"the fastest, expected to take {takes} with the deadline in {left}"


@dataclass(frozen=True, slots=True)
class ResizeView:
    """A running gang, and the size that would be chosen for it now.

    now, chosen: both at the prices of now. sized_seconds: since the gang began to train with its
    size; before every_seconds it stays as it is.
    """

    now: SizeOption
    chosen: SizeOption
    sized_seconds: float
    every_seconds: float = RESIZE_EVERY_SECONDS


def resize_repays(view: ResizeView, question: SizeQuestion) -> str | None:
    """Why the running gang should get the chosen size; None when it should stay as it is.

    With a deadline that the present size misses, the chosen one need only be sooner; and it gets
    smaller where that makes the deadline with SHRINK_MARGIN to spare. Otherwise what the other
    size saves, in money and without a deadline in time too, must be RESIZE_GAIN_MIN times what
    the restart costs: its machines for as long as that takes. Nothing is done while nobody knows
    what is left.
    """
    now, chosen = view.now, view.chosen
    if chosen.count == now.count or question.work_seconds is None:
        return None
    if view.sized_seconds < view.every_seconds:
        return None
    stays, moves = _outlook(now, question), _outlook(chosen, question)
    # The gang that runs has started already.
    stays_seconds = stays.seconds - question.restart_seconds
    told = f"{chosen.count} machines instead of {now.count} finish it in {_told(moves.seconds)}"
    hour = HOUR_WORTH * chosen.on_demand_microusd_per_hour
    if question.deadline_seconds is not None:
        room = question.deadline_seconds - question.reserve_seconds
        if chosen.count > now.count:
            late = stays_seconds * DEADLINE_MARGIN > room and moves.seconds < stays_seconds
            return f"the deadline is at risk: {told}" if late else None
        if moves.seconds * _margin(chosen) * SHRINK_MARGIN > room:
            return None
        hour = 0.0
    hours = question.work_seconds / 3_600
    saved = _worth_of(now, question, hour) - _worth_of(chosen, question, hour)
    machines = max(now.count, chosen.count) * chosen.microusd_per_hour
    lost = (machines + hour) * question.restart_seconds / 3_600
    if saved * hours < RESIZE_GAIN_MIN * lost:
        return None
    return (
        f"the saving is {saved * hours / max(lost, 1.0):.1f} times what the restart costs: {told}"
    )


def _worth_of(option: SizeOption, question: SizeQuestion, hour_microusd: float) -> float:
    """Micro-dollars per hour of one machine's progress, an hour of time counted at so much."""
    hourly = option.count * option.microusd_per_hour + hour_microusd
    return hourly / option.pace(question.restart_seconds, question.scaling)


def _margin(option: SizeOption) -> float:
    return DEADLINE_MARGIN if option.hazard_factor is None else SPOT_MARGIN


def _told(seconds: float) -> str:
    """To the minute, as an expectation is no better."""
    return format_duration(max(60, round(seconds / 60) * 60))


def size_options(
    considered: Iterable[RankedOffer],
    sizes: Iterable[int],
    speeds: GpuThroughput = NOTHING_MEASURED,
) -> list[SizeOption]:
    """For each size, the first of the fitting offers that has room for it; none where none has."""
    fitting = [item.offer for item in considered if item.fits]
    options = []
    for count in sizes:
        offer = next((one for one in fitting if has_room(one, count)), None)
        if offer is not None:
            options.append(size_option(offer, count, fitting[0], speeds))
    return options


def size_option(
    offer: Offer, count: int, counted_in: Offer, speeds: GpuThroughput = NOTHING_MEASURED
) -> SizeOption:
    """So many machines of one offer; their speed in terms of another offer's."""
    return SizeOption(
        count=count,
        microusd_per_hour=offer.cost_microusd_per_hour,
        on_demand_microusd_per_hour=offer.on_demand_microusd_per_hour,
        hazard_factor=offer.hazard_factor if offer.pool.market is Market.SPOT else None,
        speed=speeds.of(gpu_shape_of(offer.hardware))
        / speeds.of(gpu_shape_of(counted_in.hardware)),
        billing_speed=offer.billing_speed,
    )


def has_room(offer: Offer, count: int) -> bool:
    """Whether the pool is said to give so many machines; one that says nothing may."""
    return offer.available is None or offer.available >= count


def with_size(
    spec: JobSpec,
    quoted: Sequence[tuple[Offer, datetime | None]],
    now: datetime,
    restart_seconds: float,
    acquire_seconds: float,
    measured: MeasuredWork = NOT_MEASURED,
) -> JobSpec:
    """The spec with the number of machines that its gang would have if it were placed now.

    quoted: offers with the ends of their cool-downs. acquire_seconds: as for the last safe moment.
    """
    if not spec.nodes.is_elastic:
        return spec
    market = Market.ON_DEMAND if spec.effective_market() == "on_demand" else Market.SPOT
    need = replace(need_of(spec, market, spec.nodes.least), speeds=measured.speeds)
    considered = rank_offers(quoted, need, now)
    count = _planned_size(spec, considered, now, restart_seconds, acquire_seconds, measured)
    return spec.model_copy(update={"nodes": NodeRange(count, count)})


def _planned_size(
    spec: JobSpec,
    considered: Sequence[RankedOffer],
    now: datetime,
    restart_seconds: float,
    acquire_seconds: float,
    measured: MeasuredWork,
) -> int:
    """The size that would be chosen; the least where no offer fits."""
    nodes, estimate, deadline_at = spec.nodes, spec.estimate, spec.deadline_at(now)
    scaling = measured.scaling
    work = None if estimate is None else estimate.seconds * scaling.speed_up(estimate.nodes)
    first = next((item.offer for item in considered if item.fits), None)
    told = None if estimate is None else estimate.gpu
    if work is not None and first is not None and told is not None and told.name is not None:
        here = gpu_shape_of(first.hardware)
        work = measured.speeds.seconds_on(here, work, gpu_shape_of_choice(told))
    question = SizeQuestion(
        nodes=nodes,
        work_seconds=work,
        restart_seconds=restart_seconds,
        deadline_seconds=None if deadline_at is None else (deadline_at - now).total_seconds(),
        reserve_seconds=(
            acquire_seconds + restart_seconds if spec.effective_market() == "auto" else 0.0
        ),
        money_left_microusd=spec.budget_microusd,
        scaling=scaling,
    )
    sizes = range(nodes.least, nodes.most + 1)
    choice = choose_size(size_options(considered, sizes, measured.speeds), question)
    return nodes.least if choice is None else choice.count
