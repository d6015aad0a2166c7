"""The sizes that an elastic gang could have, from offers judged for its least size.

Lives here: offers as options, and the size that a spec would get if it were placed now. Not here:
the choice among sizes (`gang_size`), or the verdicts on offers (`placement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from app.domain.market.offer import Market, Offer
from app.domain.placement.gang_size import SizeOption, SizeQuestion, choose_size
from app.domain.placement.placement import RankedOffer, need_of, rank_offers
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.node_range import NodeRange
from app.domain.throughput.gpu_throughput import (
    NOTHING_MEASURED,
    GpuThroughput,
    gpu_shape_of,
    gpu_shape_of_choice,
)
from app.domain.throughput.measured_work import NOT_MEASURED, MeasuredWork


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
