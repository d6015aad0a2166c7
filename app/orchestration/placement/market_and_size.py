"""The market and the size of a job's gang: what they rest on, and a change of either.

Lives here: what is read from rows, and the two changes written down. Not here: which size is
best (`placement.gang_size`), whether spot is safe and a return repays
(`placement.methods.spot_return`), which market costs less (`evaluate_markets`), or what follows
from patience (`app.domain.placement.patience`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.domain.billing.budget import left_microusd
from app.domain.deadline.deadline_policy import last_safe_moment
from app.domain.lifecycle.entities import Budget
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.retry_policy import MAX_SPOT_ATTEMPTS_WITHOUT_PROGRESS, spot_exhausted
from app.domain.market.offer import Market
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.methods.size_question import SizeTerms
from app.domain.placement.methods.spot_return import ReturnTerms, SpotRoom, spot_is_safe
from app.domain.placement.patience import Patience
from app.domain.throughput.gang_scaling import GangScaling, scaling_of_share
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, GpuThroughput
from app.domain.wording.machine_words import machines_in_words
from app.orchestration.estimates.attempt_measures import own_limits
from app.orchestration.estimates.work_by_gpu import gang_work, left_of
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.placement.decision_log import safe_until, start_times


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
    aggregate.record(
        JobEventKind.GANG_SIZED,
        f"The gang has {machines_in_words(count)} of {nodes}: {why}.",
        count=count,
        before=before,
        least=nodes.least,
        most=nodes.most,
    )


def turn_market(aggregate: JobAggregate, market: Market, sentence: str | None = None) -> None:
    """The job's next machines are of this market; `market_changed_at` says since when.

    sentence: of the event; None where the job only stays where it trains.
    """
    job = aggregate.job
    if job.market_mode is not market:
        job.market_mode, job.market_changed_at = market, aggregate.now
    if sentence is not None:
        leaves = market is Market.ON_DEMAND
        kind = JobEventKind.MOVED_TO_ON_DEMAND if leaves else JobEventKind.MOVED_TO_SPOT
        aggregate.record(kind, sentence)


def spot_room(aggregate: JobAggregate, limits: Limits, seconds: float) -> SpotRoom:
    """The time that is left for spot. seconds: the work left."""
    own = own_limits(aggregate, limits)
    last = safe_until(aggregate, limits, seconds)
    return SpotRoom(aggregate.now, last, own.restart_seconds, seconds)


def return_terms(limits: Limits) -> ReturnTerms:
    """When a job that left spot may go back."""
    return ReturnTerms(
        rest_seconds=limits.return_rest_seconds,
        room_share=limits.return_room_share,
        saving_share=limits.return_saving_share,
        saving_microusd=limits.return_saving_microusd,
        beside_seconds=limits.boot_p95_seconds + limits.drain_seconds,
    )


def spot_is_fruitless(aggregate: JobAggregate) -> bool:
    """Whether spot cut the job's attempts short until now, before one of them saved anything."""
    job, attempt = aggregate.job, aggregate.attempt
    count = job.attempts_without_progress
    if count < MAX_SPOT_ATTEMPTS_WITHOUT_PROGRESS:
        return False  # without a look at the attempts
    if attempt is not None and attempt.committed_step > (attempt.parent_step or 0):
        return False
    reasons = [one.end_reason for one in aggregate.uow.attempts.of_job(job.id) if one.end_reason]
    return spot_exhausted(reasons[-count:])


def has_left_spot(aggregate: JobAggregate, gang: GangNeed) -> bool:
    """Whether a job that may use both markets gets the gang's machines from on-demand."""
    return gang.market is Market.ON_DEMAND and aggregate.spec.effective_market() == "auto"


def ways_back(aggregate: JobAggregate, gang: GangNeed, limits: Limits) -> Callable[[int], bool]:
    """Whether a job that left spot early has a way on where no budget bears on-demand machines.

    It is asked for gangs of any size, and reads no row.
    """
    job, now = aggregate.job, aggregate.now
    if not has_left_spot(aggregate, gang) or job.deadline_missed_at is not None:
        return lambda _count: False
    own, start = own_limits(aggregate, limits), start_times(aggregate, limits)
    work = gang_work(aggregate, gang)

    def may_go_back(count: int) -> bool:
        seconds = work.seconds_for(count)
        if seconds is None or job.deadline_at is None:
            return False
        last = last_safe_moment(job.deadline_at, seconds, start)
        return spot_is_safe(SpotRoom(now, last, own.restart_seconds, seconds))

    return may_go_back


def patience_of(aggregate: JobAggregate, gang: GangNeed) -> Patience:
    """The patience of a job that looks for this gang as a whole.

    Of a gang that trains it begins now.
    """
    job, now = aggregate.job, aggregate.now
    trained = [one for one in aggregate.uow.attempts.of_job(job.id) if one.trained_at is not None]
    since = job.submitted_at
    if trained:
        newest = max(trained, key=lambda one: one.fence)
        live = aggregate.attempt is not None and aggregate.attempt.fence == newest.fence
        since = now if live else newest.updated_at
    waited = max(0.0, (now - since).total_seconds())
    return Patience(
        left_seconds=max(0.0, aggregate.spec.patience_seconds - waited),
        waited_seconds=waited,
        work_seconds=left_of(aggregate, gang).seconds,
    )
