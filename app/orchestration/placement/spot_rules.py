"""Whether a job may be on spot, may go back there, and may wait for a cheaper machine.

Lives here: the room that spot needs before a deadline, what keeps a job from going to and fro (the
time since it last changed its market, and what a return must save), and the patience of a job
without a deadline. Not here: which market costs less (`evaluate_markets`), what follows from
patience (`app.domain.placement.patience`), or the last safe moment (`deadline_policy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from app.domain.deadline.live_choice import LiveChoice
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.retry_policy import MAX_SPOT_ATTEMPTS_WITHOUT_PROGRESS, spot_exhausted
from app.domain.market.offer import Market
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.patience import Patience
from app.domain.units.durations import HOUR_SECONDS
from app.orchestration.estimates.read_start_up import own_limits
from app.orchestration.estimates.work_by_gpu import left_of
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.placement.decision_log import safe_until

_USD = 1_000_000


@dataclass(frozen=True)
class OnDemandStay:
    """On-demand machines to the end: what each costs per hour, how many, and the work left on them.

    trains: they are there, and are paid on until the spot machines have registered and they have
    saved.
    """

    on_demand_usd: float
    gang: int
    work_seconds: float
    trains: bool


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


def spot_is_safe(aggregate: JobAggregate, limits: Limits, seconds: float) -> bool:
    """Whether spot may be tried and, if it fails, still be left before the last safe moment.

    seconds: the work left.
    """
    return _has_room(aggregate, limits, seconds, _two_restarts(aggregate, limits))


def may_return(aggregate: JobAggregate, limits: Limits, seconds: float) -> bool:
    """Whether a job that left spot may go back: with room, not soon after it left, and not before
    it came to a checkpoint where spot let it come to none.
    """
    if spot_is_fruitless(aggregate):
        return False
    changed_at = aggregate.job.market_changed_at
    rest = timedelta(seconds=limits.return_rest_seconds)
    rested = changed_at is None or not changed_at <= aggregate.now < changed_at + rest
    room = _return_room(aggregate, limits, seconds)
    return rested and _has_room(aggregate, limits, seconds, room)


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


def may_still_return(aggregate: JobAggregate, limits: Limits, seconds: float) -> bool:
    """Whether spot machines that were asked for are waited for still.

    Half of the room is theirs to come in: were all of it wanted still, they would be given back and
    asked for again, look after look.
    """
    room = _return_room(aggregate, limits, seconds) / 2
    return _has_room(aggregate, limits, seconds, room)


def _two_restarts(aggregate: JobAggregate, limits: Limits) -> float:
    return 2 * own_limits(aggregate, limits).restart_seconds


def _return_room(aggregate: JobAggregate, limits: Limits, seconds: float) -> float:
    """What is left to do may be off by a tenth: a return on the edge would be undone at once."""
    return max(_two_restarts(aggregate, limits), limits.return_room_share * seconds)


def _has_room(aggregate: JobAggregate, limits: Limits, seconds: float, room_seconds: float) -> bool:
    last = safe_until(aggregate, limits, seconds)
    return last is not None and aggregate.now + timedelta(seconds=room_seconds) < last


def return_repays(choice: LiveChoice, stay: OnDemandStay, limits: Limits) -> bool:
    """Whether going back to spot saves enough of what staying on-demand would cost to the end.

    The choice's own figure for on-demand counts on a later return, which is what is asked here; the
    one for spot counts with a restart.
    """
    hourly = stay.on_demand_usd * stay.gang / HOUR_SECONDS
    twice = limits.boot_p95_seconds + limits.drain_seconds if stay.trains else 0.0
    stays = hourly * stay.work_seconds
    goes = min(choice.spot, choice.wait) * stay.gang + hourly * twice
    enough = max(limits.return_saving_share * stays, limits.return_saving_microusd / _USD)
    return stays - goes >= enough


def has_left_spot(aggregate: JobAggregate, gang: GangNeed) -> bool:
    """Whether a job that may use both markets gets the gang's machines from on-demand."""
    return gang.market is Market.ON_DEMAND and aggregate.spec.effective_market() == "auto"


def could_go_back(aggregate: JobAggregate, gang: GangNeed, limits: Limits) -> bool:
    """Whether a job that left spot early has a way on where no budget bears on-demand machines."""
    if not has_left_spot(aggregate, gang) or aggregate.job.deadline_missed_at is not None:
        return False
    seconds = left_of(aggregate, gang).seconds
    return seconds is not None and spot_is_safe(aggregate, limits, seconds)


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
