"""What a spec would cost and when it would end, from prices and experience as they stand.

Lives here: turning a spec, offers and experience into the question that `app.domain.what_if`
answers. Reads only; nothing is rented. Not here: the imagined runs, or showing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.domain.errors import InvalidValue
from app.domain.gang_options import with_size
from app.domain.gpu_catalog import relative_speed
from app.domain.imagined_run import PoolQuote, Question
from app.domain.job_spec import JobSpec
from app.domain.offer import Market, Offer, Pool
from app.domain.placement import Considered, consider, machine_speed, need_of
from app.domain.pool_life import EXPERIENCE_KEPT, NO_EXPERIENCE, Experience
from app.domain.what_if import (
    PATHS,
    CurvePoint,
    Estimate,
    deadline_curve,
    earliest_finish_seconds,
    estimates,
)
from app.orchestration.runtime import Limits, Runtime

POOLS_MAX = 12
"""Pools that an imagined run turns to; the dearer ones would hardly ever be reached."""


@dataclass(frozen=True)
class JobEstimate:
    """The answer: figures by way of renting, what the deadline costs, and what they rest on.

    earliest_seconds: with on-demand machines at once; None where there are none. seed: the same
    one over the same prices gives the same figures.
    """

    estimates: tuple[Estimate, ...]
    curve: tuple[CurvePoint, ...]
    pools: tuple[PoolQuote, ...]
    on_demand: PoolQuote | None
    work_seconds: float
    restart_seconds: float
    earliest_seconds: float | None
    seed: int


def estimate_job(
    runtime: Runtime, spec: JobSpec, seed: int, *, draw_curve: bool = True, paths: int = PATHS
) -> JobEstimate:
    """The estimate of a spec as it would be submitted now, an elastic gang with its size of now.

    draw_curve: also what other deadlines would cost. paths: imagined runs of each way to rent.
    Without any estimate where no pool fits: the job would wait. Raises InvalidValue when the spec
    does not say how much work it is, or when its deadline cannot be met.
    """
    if spec.estimate is None:
        raise InvalidValue(
            "estimate: how much work this is is not known; give `estimate: {hours: …, gpu: …}`, "
            "from a short run or `python -m trainer.training.estimate`; for one of the "
            "trainer's own models, `steps` in place of `epochs` tells it too",
            "estimate",
        )
    now = runtime.clock.now()
    with runtime.begin() as uow:
        quoted, limits = uow.offers.all(), runtime.limits
        spec = with_size(
            spec, quoted, now, limits.restart_seconds, limits.on_demand_acquire_seconds
        )
        spot, on_demand = _fitting(spec, quoted, now, limits.restart_seconds)
        pools = [item.offer.pool for item in spot]
        known = uow.pool_experience.of(pools, now - EXPERIENCE_KEPT, now)
    question = _question(spec, spot, on_demand, known, runtime.limits, now)
    _refuse_impossible(question)
    curve: tuple[CurvePoint, ...] = ()
    if draw_curve:
        curve = deadline_curve(question, runtime.entropy.replayable(seed))
    return JobEstimate(
        estimates=estimates(question, runtime.entropy.replayable(seed), paths),
        curve=curve,
        pools=question.spot,
        on_demand=question.on_demand,
        work_seconds=question.work_seconds,
        restart_seconds=question.boot_seconds,
        earliest_seconds=_earliest(question),
        seed=seed,
    )


def _fitting(
    spec: JobSpec,
    quoted: Sequence[tuple[Offer, datetime | None]],
    now: datetime,
    restart_seconds: float,
) -> tuple[list[Considered], list[Considered]]:
    """Offers of both markets that fit; a cool-down passes, so it is left out of account."""
    warm = [(offer, None) for offer, _ in quoted]
    found = []
    for market in (Market.SPOT, Market.ON_DEMAND):
        need = replace(need_of(spec, market, spec.node_count), restart_seconds=restart_seconds)
        judged = consider(warm, need, now)
        found.append([item for item in judged if item.fits][:POOLS_MAX])
    spot, on_demand = found
    asked = spec.effective_market()
    return ([] if asked == "on_demand" else spot), ([] if asked == "spot" else on_demand)


def _question(
    spec: JobSpec,
    spot: Sequence[Considered],
    on_demand: Sequence[Considered],
    known: Mapping[Pool, Experience],
    limits: Limits,
    now: datetime,
) -> Question:
    assert spec.estimate is not None
    cheapest = next(iter([*spot, *on_demand]), None)
    told = spec.estimate.gpu
    reference = 1.0 if cheapest is None else machine_speed(cheapest.offer)
    if told is not None and told.name is not None:
        reference = relative_speed(told.name, told.memory_gb or 0, told.count)
    nodes = spec.node_count / spec.estimate.nodes

    def quote(item: Considered) -> PoolQuote:
        offer = item.offer
        return PoolQuote(
            key=offer.pool.key,
            microusd_per_hour=offer.cost_microusd_per_hour * spec.node_count,
            speed=machine_speed(offer) / reference * nodes,
            experience=known.get(offer.pool, NO_EXPERIENCE),
        )

    deadline_at = spec.deadline_at(now)
    return Question(
        work_seconds=float(spec.estimate.seconds),
        spot=tuple(quote(item) for item in spot),
        on_demand=None if not on_demand else quote(on_demand[0]),
        boot_seconds=limits.restart_seconds,
        acquire_seconds=limits.on_demand_acquire_seconds,
        deadline_seconds=None if deadline_at is None else (deadline_at - now).total_seconds(),
        budget_microusd=spec.budget_microusd,
        patience_seconds=float(spec.patience_seconds),
    )


def _refuse_impossible(question: Question) -> None:
    """A deadline that even on-demand machines from now on cannot meet."""
    pool, deadline = question.on_demand, question.deadline_seconds
    if pool is None or deadline is None:
        return
    earliest = earliest_finish_seconds(question)
    if earliest <= deadline:
        return
    hours = question.work_seconds / pool.speed / 3_600
    cost = pool.microusd_per_hour * hours / 1_000_000
    raise InvalidValue(
        f"deadline: it cannot be met; with on-demand machines from now on the job would end in "
        f"{earliest / 3_600:.1f} h at the earliest, for about ${cost:,.2f}",
        "deadline",
    )


def _earliest(question: Question) -> float | None:
    return None if question.on_demand is None else earliest_finish_seconds(question)
