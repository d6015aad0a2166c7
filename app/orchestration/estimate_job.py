"""What a spec would cost and when it would end, from prices and experience as they stand.

Lives here: turning a spec, offers and experience into the question that `app.domain.what_if`
answers. Reads only; nothing is rented. Not here: the imagined runs, or showing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from app.domain.errors import InvalidValue
from app.domain.gang_options import with_size
from app.domain.imagined_run import PoolQuote, Question
from app.domain.job_spec import JobSpec
from app.domain.kind_speed import kind_of, kind_of_choice
from app.domain.measured_work import MeasuredWork
from app.domain.offer import Market, Offer, Pool
from app.domain.placement import Considered, consider, need_of
from app.domain.pool_life import EXPERIENCE_KEPT, NO_EXPERIENCE, Experience
from app.domain.what_if import (
    PATHS,
    CurvePoint,
    Estimate,
    deadline_curve,
    earliest_finish_seconds,
    estimates,
)
from app.orchestration.read_measured import read_measured
from app.orchestration.runtime import Limits, Runtime

POOLS_MAX = 12
"""Pools that an imagined run turns to; the dearer ones would hardly ever be reached."""


@dataclass(frozen=True)
class JobEstimate:
    """The answer: figures by way of renting, what the deadline costs, and what they rest on.

    earliest_seconds: with on-demand machines at once; None where there are none. seed: the same
    one over the same prices gives the same figures. scaling: what the number of machines makes of
    the work, in words, where it is told for another number; else None.
    """

    estimates: tuple[Estimate, ...]
    curve: tuple[CurvePoint, ...]
    pools: tuple[PoolQuote, ...]
    on_demand: PoolQuote | None
    work_seconds: float
    restart_seconds: float
    earliest_seconds: float | None
    seed: int
    scaling: str | None


def estimate_job(
    runtime: Runtime,
    project_id: UUID,
    spec: JobSpec,
    seed: int,
    *,
    draw_curve: bool = True,
    paths: int = PATHS,
) -> JobEstimate:
    """The estimate of a spec as it would be submitted now, an elastic gang with its size of now.

    project_id: whose runs of the same work tell how fast it goes. draw_curve: also what other
    deadlines would cost. paths: imagined runs of each way to rent. Without any estimate where no
    pool fits: the job would wait. Raises InvalidValue when the spec does not say how much work it
    is, or when its deadline cannot be met.
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
        measured = read_measured(uow, project_id, spec, now)
        acquire = limits.on_demand_acquire_seconds
        spec = with_size(spec, quoted, now, limits.restart_seconds, acquire, measured)
        spot, on_demand = _fitting(spec, quoted, now, limits.restart_seconds, measured)
        pools = [item.offer.pool for item in spot]
        known = uow.pool_experience.of(pools, now - EXPERIENCE_KEPT, now)
    question = _question(spec, spot, on_demand, known, measured, runtime.limits, now)
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
        scaling=_scaling_told(spec, measured),
    )


def _fitting(
    spec: JobSpec,
    quoted: Sequence[tuple[Offer, datetime | None]],
    now: datetime,
    restart_seconds: float,
    measured: MeasuredWork,
) -> tuple[list[Considered], list[Considered]]:
    """Offers of both markets that fit; a cool-down passes, so it is left out of account."""
    warm = [(offer, None) for offer, _ in quoted]
    found = []
    for market in (Market.SPOT, Market.ON_DEMAND):
        need = need_of(spec, market, spec.node_count)
        need = replace(need, restart_seconds=restart_seconds, speeds=measured.speeds)
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
    measured: MeasuredWork,
    limits: Limits,
    now: datetime,
) -> Question:
    assert spec.estimate is not None
    cheapest = next(iter([*spot, *on_demand]), None)
    told, speeds = spec.estimate.gpu, measured.speeds
    reference = 1.0 if cheapest is None else speeds.of(kind_of(cheapest.offer.hardware))
    if told is not None and told.name is not None:
        reference = speeds.of(kind_of_choice(told))
    gang = measured.scaling.relative_pace(spec.node_count, spec.estimate.nodes)

    def quote(item: Considered) -> PoolQuote:
        offer, kind = item.offer, kind_of(item.offer.hardware)
        return PoolQuote(
            key=offer.pool.key,
            microusd_per_hour=offer.cost_microusd_per_hour * spec.node_count,
            speed=speeds.of(kind) / reference * gang,
            experience=known.get(offer.pool, NO_EXPERIENCE),
            speed_source=speeds.source(kind),
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


def _scaling_told(spec: JobSpec, measured: MeasuredWork) -> str | None:
    assert spec.estimate is not None
    told = {spec.node_count, spec.estimate.nodes}
    return measured.scaling.sentence(max(told)) if len(told) > 1 else None


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
