"""The size of a job's gang: what it depends on, read from rows, and the choice written down.

Not here: the rule (`placement.gang_size`), or which offers there are (`read_offers`).
"""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.billing.budget import left_microusd
from app.domain.lifecycle.entities import Budget
from app.domain.lifecycle.events import JobEventKind
from app.domain.market.offer import Market
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.methods.size_question import SizeTerms
from app.domain.throughput.gang_scaling import GangScaling, scaling_of_share
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, GpuThroughput
from app.orchestration.estimates.attempt_measures import own_limits
from app.orchestration.estimates.work_by_gpu import gang_work
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits


def size_terms(
    aggregate: JobAggregate,
    gang: GangNeed,
    limits: Limits,
    budgets: Sequence[Budget] = (),
    *,
    speeds: GpuThroughput = NOTHING_MEASURED,
    learned: GangScaling | None = None,
) -> SizeTerms:
    """What a size depends on, as the job stands.

    gang: as it is now: its market, and the size whose work is known. budgets: those whose money
    bounds the choice. learned: how gangs scale as measured by now; else as the job keeps it.
    """
    job, spec, attempt = aggregate.job, aggregate.spec, aggregate.attempt
    limits = own_limits(aggregate, limits)
    unspent = (left_microusd(budget.cap_microusd, budget.spent_microusd) for budget in budgets)
    caps = [max(0, microusd) for microusd in unspent if microusd is not None]
    to_deadline = None
    if job.deadline_at is not None and job.deadline_missed_at is None:
        to_deadline = (job.deadline_at - aggregate.now).total_seconds()
    may_move = gang.market is Market.SPOT and spec.effective_market() == "auto"
    reserve = limits.on_demand_acquire_seconds + limits.restart_seconds
    return SizeTerms(
        nodes=spec.nodes,
        work=gang_work(aggregate, gang),
        speeds=speeds,
        scaling=learned or scaling_of_share(job.serial_share),
        running=None if attempt is None else attempt.node_count,
        restart_seconds=limits.restart_seconds,
        deadline_seconds=to_deadline,
        reserve_seconds=reserve if may_move else 0.0,
        money_left_microusd=min(caps, default=None),
    )


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
