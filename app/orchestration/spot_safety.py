"""Whether a job with a deadline may be on spot, and whether one that left it could go back.

Not here: which market costs less (`weigh_markets`), or the last safe moment itself, which forces a
job off spot (`app.domain.deadline_policy`).
"""

from __future__ import annotations

from datetime import timedelta

from app.domain.offer import Market
from app.orchestration.aggregate import JobAggregate
from app.orchestration.note_decisions import safe_until, work_seconds
from app.orchestration.runtime import Limits


def spot_is_safe(
    aggregate: JobAggregate, limits: Limits, seconds: float, *, asked_for: bool = False
) -> bool:
    """Whether spot may be tried and, if it fails, still be left before the last safe moment.

    asked_for: its machines are on their way. Half of the room is theirs to come in: were all of it
    wanted still, they would be given back and asked for again, look after look.
    """
    last = safe_until(aggregate, limits, seconds)
    room = timedelta(seconds=(1 if asked_for else 2) * limits.restart_seconds)
    return last is not None and aggregate.now + room < last


def could_go_back(aggregate: JobAggregate, limits: Limits) -> bool:
    """Whether a job that left spot early has a way on where no budget bears on-demand machines."""
    job, seconds = aggregate.job, work_seconds(aggregate)
    left = job.market_mode is Market.ON_DEMAND and aggregate.spec.effective_market() == "auto"
    if not left or seconds is None or job.deadline_missed_at is not None:
        return False
    return spot_is_safe(aggregate, limits, seconds)
