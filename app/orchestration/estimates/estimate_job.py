"""What a spec would cost and when it would end, from prices and experience as they stand.

Lives here: turning a spec, offers and experience into the question that `estimate.job_estimate`
answers. Reads only; nothing is rented. Not here: the simulated runs, or showing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from app.domain.availability.hazard_by_age import EXPERIENCE_KEPT, NO_EXPERIENCE, Experience
from app.domain.billing.billing_rules import RULES
from app.domain.estimate.job_estimate import (
    PATHS,
    CurvePoint,
    Forecast,
    deadline_curve,
    earliest_finish_seconds,
    estimates,
)
from app.domain.estimate.simulated_run import EstimateInput, PoolQuote
from app.domain.market.offer import Market, Offer, Pool
from app.domain.placement.gang_size import with_size
from app.domain.placement.in_time import TimeLeft, in_time
from app.domain.placement.placement import RankedOffer, need_of, rank_offers, work_alike
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.trainer_work import pause_seconds, why_not_described
from app.domain.throughput.gpu_throughput import gpu_shape_of, gpu_shape_of_choice
from app.domain.throughput.measured_run import GpuShape
from app.domain.throughput.measured_work import MeasuredWork
from app.domain.units.durations import billed_as, format_duration, whole_minutes
from app.domain.units.errors import InvalidValue, ProblemKind, SpecError
from app.domain.units.money import format_usd
from app.orchestration.estimates.attempt_measures import read_measured, read_start_up, with_start_up
from app.orchestration.frame.runtime import Limits, Runtime

POOLS_MAX = 12
"""Pools that a simulated run turns to; the dearer ones would hardly ever be reached."""


@dataclass(frozen=True)
class JobEstimate:
    """The answer: figures by way of renting, what the deadline costs, and what they rest on.

    earliest_seconds: with on-demand machines at once, of which acquire_seconds are a reserve for
    getting them, so that a run may end sooner; None where there are none. seed: the same one over
    the same prices gives the same figures. scaling: what the number of machines makes of the work,
    in words, where it is told for another number; else None. node_count: the machines of the gang.
    """

    estimates: tuple[Forecast, ...]
    curve: tuple[CurvePoint, ...]
    pools: tuple[PoolQuote, ...]
    on_demand: PoolQuote | None
    work_seconds: float
    restart_seconds: float
    earliest_seconds: float | None
    acquire_seconds: float
    seed: int
    scaling: str | None
    node_count: int


def estimate_job(
    runtime: Runtime,
    project_id: UUID,
    spec: JobSpec,
    seed: int,
    *,
    compare: bool = True,
    paths: int = PATHS,
    submitted_at: datetime | None = None,
) -> JobEstimate:
    """The estimate of a spec as it would be submitted now, an elastic gang with its size of now.

    project_id: whose runs of the same work tell how fast it goes. compare: also the other ways to
    rent, and what other deadlines would cost. paths: simulated runs of each way to rent.
    submitted_at: of a job that is in the queue already; time counts from there. Without any
    estimate where no pool fits: the job would wait. Raises InvalidValue when the spec does not say
    how much work it is, and SpecError when its deadline has passed or cannot be met.
    """
    asked = ask(runtime, project_id, spec, submitted_at)
    question = asked.question
    curve: tuple[CurvePoint, ...] = ()
    if compare:
        curve = deadline_curve(question, runtime.entropy.replayable(seed))
    return JobEstimate(
        estimates=estimates(question, runtime.entropy.replayable(seed), paths, compare=compare),
        curve=curve,
        pools=question.spot,
        on_demand=question.on_demand,
        work_seconds=question.work_seconds,
        restart_seconds=question.boot_seconds,
        earliest_seconds=asked.earliest_seconds,
        acquire_seconds=question.acquire_seconds,
        seed=seed,
        scaling=asked.scaling,
        node_count=question.gang,
    )


@dataclass(frozen=True)
class EstimateRequest:
    """A spec as a question, its earliest possible finish and its gang's scaling, as `JobEstimate`
    has them.
    """

    question: EstimateInput
    earliest_seconds: float | None
    scaling: str | None


def ask(
    runtime: Runtime, project_id: UUID, spec: JobSpec, submitted_at: datetime | None = None
) -> EstimateRequest:
    """What is to be simulated of a spec; parameters and errors as of `estimate_job`."""
    if spec.estimate is None:
        raise InvalidValue(why_not_described(spec), "estimate")
    now = runtime.clock.now()
    begin = submitted_at or now
    spec.require_deadline_ahead(begin)
    with runtime.begin() as uow:
        quoted = uow.offers.all()
        limits = with_start_up(runtime.limits, read_start_up(uow, project_id, spec.to_json()))
        measured = read_measured(uow, project_id, spec, now)
        acquire = limits.on_demand_acquire_seconds
        spec = with_size(spec, quoted, now, limits.restart_seconds, acquire, measured)
        spot, on_demand = _fitting(spec, quoted, now, limits.restart_seconds, measured)
        pools = [item.offer.pool for item in spot]
        known = uow.pool_experience.of(pools, now - EXPERIENCE_KEPT, now)
    question, quickest = _question(spec, spot, on_demand, known, measured, limits, begin)
    if quickest is not None:
        _refuse_impossible(quickest)
    earliest = None if quickest is None else earliest_finish_seconds(quickest)
    return EstimateRequest(question, earliest, _scaling_told(spec, measured))


def _fitting(
    spec: JobSpec,
    quoted: Sequence[tuple[Offer, datetime | None]],
    now: datetime,
    restart_seconds: float,
    measured: MeasuredWork,
) -> tuple[list[RankedOffer], list[RankedOffer]]:
    """Offers of both markets that fit; a cool-down passes, so it is left out of account.

    Of on-demand machines all kinds: a dearer one may be the only one in time.
    """
    warm = [(offer, None) for offer, _ in quoted]
    found = []
    for market in (Market.SPOT, Market.ON_DEMAND):
        need = need_of(spec, market, spec.node_count)
        need = replace(need, restart_seconds=restart_seconds, speeds=measured.speeds)
        judged = rank_offers(warm, need, now)
        found.append([item for item in judged if item.fits])
    spot, on_demand = found[0][:POOLS_MAX], found[1]
    asked = spec.effective_market()
    return ([] if asked == "on_demand" else spot), ([] if asked == "spot" else on_demand)


def _question(
    spec: JobSpec,
    spot: Sequence[RankedOffer],
    on_demand: Sequence[RankedOffer],
    known: Mapping[Pool, Experience],
    measured: MeasuredWork,
    limits: Limits,
    begin: datetime,
) -> tuple[EstimateInput, EstimateInput | None]:
    """What is asked, and the same with the quickest on-demand machines; None: there are none."""
    assert spec.estimate is not None
    cheapest = next(iter([*spot, *on_demand]), None)
    speeds = measured.speeds
    told = _told_for(spec, cheapest)
    reference = 1.0 if told is None else speeds.of(told)
    gang = measured.scaling.relative_pace(spec.node_count, spec.estimate.nodes)
    work, pauses = float(spec.estimate.seconds), pause_seconds(spec)

    def quote(item: RankedOffer) -> PoolQuote:
        offer, kind = item.offer, gpu_shape_of(item.offer.hardware)
        quicker = speeds.of(kind) / reference
        # What was measured has the pauses in it.
        by_kind = 1.0 if speeds.is_measured(kind) else quicker
        by_gang = 1.0 if measured.scaling.measured else gang
        return PoolQuote(
            key=offer.pool.key,
            billing_speed=offer.billing_speed,
            microusd_per_hour=offer.cost_microusd_per_hour * spec.node_count,
            speed=quicker / by_kind * gang / by_gang * with_pauses(work, pauses, by_kind * by_gang),
            experience=known.get(offer.pool, NO_EXPERIENCE),
            speed_source=speeds.source(kind),
            minimum_seconds=RULES[offer.cloud].minimum_seconds if offer.cloud in RULES else 0,
        )

    deadline_at = spec.deadline_at(begin)
    seconds = None if deadline_at is None else (deadline_at - begin).total_seconds()
    question = EstimateInput(
        work_seconds=work,
        spot=tuple(quote(item) for item in spot),
        on_demand=None,
        boot_seconds=limits.restart_seconds,
        acquire_seconds=limits.on_demand_acquire_seconds,
        deadline_seconds=seconds,
        budget_microusd=spec.budget_microusd,
        patience_seconds=float(spec.patience_seconds),
        gang=spec.node_count,
    )
    if not on_demand or told is None:
        return question, None
    quickest = max(map(quote, on_demand), key=lambda pool: pool.speed)
    if seconds is not None:
        left = seconds - question.acquire_seconds - question.boot_seconds
        faster = gang if measured.scaling.measured else with_pauses(work, pauses, gang)
        on_demand = in_time(on_demand, speeds, TimeLeft(left, work / faster, told))
    own = replace(question, on_demand=quote(on_demand[0]))
    return own, replace(question, on_demand=quickest)


def with_pauses(work_seconds: float, pauses: float, speed: float) -> float:
    """How much faster work gets that is computed so much faster, and whose pauses stay as long.

    pauses: seconds of the work; at most all of it.
    """
    stay = min(pauses, work_seconds)
    return work_seconds / ((work_seconds - stay) / speed + stay)


def _told_for(spec: JobSpec, cheapest: RankedOffer | None) -> GpuShape | None:
    """The kind that the work is told for: the estimate's, which is a V100 where it names none.

    Where one kind alone is accepted, and the estimate names none, that one: as of a job that runs
    (`work_by_gpu`, `estimate_remaining`).
    """
    assert spec.estimate is not None
    told = spec.estimate.gpu
    if (told is not None and told.name is not None) or not work_alike(spec):
        return gpu_shape_of_choice(told)
    return None if cheapest is None else gpu_shape_of(cheapest.offer.hardware)


def _scaling_told(spec: JobSpec, measured: MeasuredWork) -> str | None:
    assert spec.estimate is not None
    told = {spec.node_count, spec.estimate.nodes}
    if len(told) == 1:
        return None
    scaling = measured.scaling
    sentence = scaling.sentence(max(told))
    if scaling.measured:
        return sentence
    if spec.trainer is None:
        return f"{sentence}; that counts all of the command's time, its pauses, too"
    pauses = round(min(pause_seconds(spec), spec.estimate.seconds))
    if not pauses:
        return sentence
    return f"{sentence}; {format_duration(pauses)} of pauses stay as long"


def _refuse_impossible(quickest: EstimateInput) -> None:
    """A deadline that even on-demand machines from now on cannot meet."""
    pool, deadline = quickest.on_demand, quickest.deadline_seconds
    if pool is None or deadline is None:
        return
    earliest = earliest_finish_seconds(quickest)
    if earliest <= deadline:
        return
    billed = quickest.boot_seconds + quickest.work_seconds / pool.speed
    got = whole_minutes(quickest.acquire_seconds)
    reserve = f"with {got} reserved to get the machines, " if quickest.acquire_seconds else ""
    cost = format_usd(round(pool.microusd(billed)))
    raise SpecError.of(
        f"deadline: it cannot be met; even on-demand from now on, {reserve}the job would end "
        f"in {whole_minutes(earliest)}, for about {cost}{billed_as(pool.billing_speed)}",
        "deadline",
        ProblemKind.IMPOSSIBLE,
    )
