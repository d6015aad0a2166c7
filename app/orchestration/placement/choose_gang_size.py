"""The size of a job's gang, from the offers and what is known of its work.

Lives here: the question put to `placement.gang_size`, and the choice written down. Not here: the
rule, or which offers there are (`fill_gang.offers_for`).
"""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.billing.budget import left_microusd
from app.domain.lifecycle.entities import Budget
from app.domain.lifecycle.events import JobEventKind
from app.domain.market.offer import Market, Offer
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.gang_size import SizeChoice, SizeQuestion, choose_size, size_options
from app.domain.placement.placement import RankedOffer, work_alike
from app.domain.throughput.gang_scaling import GangScaling, scaling_of_share
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, GpuThroughput, gpu_shape_of
from app.orchestration.estimates.read_start_up import own_limits
from app.orchestration.estimates.work_by_gpu import left_of, told_for
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits


def size_question(
    aggregate: JobAggregate,
    gang: GangNeed,
    limits: Limits,
    budgets: Sequence[Budget] = (),
    *,
    counted_in: Offer | None = None,
    speeds: GpuThroughput = NOTHING_MEASURED,
    learned: GangScaling | None = None,
) -> SizeQuestion:
    """What a size is to be chosen for, as the job stands between two attempts.

    gang: as it is now: its market, and the size whose work is known. budgets: those whose money
    bounds the choice. counted_in: whose machines the options' speeds are told in. learned: how
    gangs scale as measured by now; else as the job keeps it.
    """
    job, spec, now = aggregate.job, aggregate.spec, aggregate.now
    limits = own_limits(aggregate, limits)
    left = left_of(aggregate, gang)
    seconds: float | None = left.seconds
    if seconds is not None and counted_in is not None and not work_alike(spec):
        here = gpu_shape_of(counted_in.hardware)
        seconds = speeds.seconds_on(here, seconds, told_for(aggregate, left))
    scaling = learned or scaling_of_share(job.serial_share)
    attempt = aggregate.attempt
    running = gang.node_count if attempt is None else attempt.node_count
    unspent = (left_microusd(budget.cap_microusd, budget.spent_microusd) for budget in budgets)
    caps = [max(0, microusd) for microusd in unspent if microusd is not None]
    to_deadline = None
    if job.deadline_at is not None and job.deadline_missed_at is None:
        to_deadline = (job.deadline_at - now).total_seconds()
    may_move = gang.market is Market.SPOT and spec.effective_market() == "auto"
    reserve = limits.on_demand_acquire_seconds + limits.restart_seconds
    return SizeQuestion(
        nodes=spec.nodes,
        work_seconds=None if seconds is None else seconds * scaling.speed_up(running),
        restart_seconds=limits.restart_seconds,
        deadline_seconds=to_deadline,
        reserve_seconds=reserve if may_move else 0.0,
        money_left_microusd=min(caps, default=None),
        scaling=scaling,
    )


def choose_gang_size(
    aggregate: JobAggregate,
    gang: GangNeed,
    considered: Sequence[RankedOffer],
    limits: Limits,
    budgets: Sequence[Budget] = (),
    speeds: GpuThroughput = NOTHING_MEASURED,
) -> SizeChoice | None:
    """The size for the next gang of a job without machines; None where no offer has room.

    considered: offers judged for the least size.
    """
    nodes = aggregate.spec.nodes
    options = size_options(considered, range(nodes.least, nodes.most + 1), speeds)
    question = size_question(
        aggregate, gang, limits, budgets, counted_in=first_of(considered), speeds=speeds
    )
    return choose_size(options, question)


def first_of(considered: Sequence[RankedOffer]) -> Offer | None:
    """The offer that the options of sizes are told in; None where none fits."""
    return next((item.offer for item in considered if item.fits), None)


def set_size(aggregate: JobAggregate, count: int, why: str) -> None:
    """The gang that is formed now, or next, has so many machines; said where it had others."""
    nodes, before = aggregate.spec.nodes, aggregate.job.node_count
    if count == before:
        return
    aggregate.job.node_count = count
    machines = "1 machine" if count == 1 else f"{count} machines"
    aggregate.record(
        JobEventKind.GANG_SIZED,
        f"The gang has {machines} of {nodes}: {why}.",
        count=count,
        before=before,
        least=nodes.least,
        most=nodes.most,
    )
