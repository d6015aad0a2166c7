"""What a job that is being stopped still does, in words: it saves first, or it ends at once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from app.domain.attempt import AttemptState
from app.domain.entities import Attempt, Job
from app.domain.job import StopCause

STOP_NOW_SECONDS: Final = 1.0
"""How long a job may still run that is cancelled at once."""

_CAUSES: Final = {
    StopCause.PAUSE: "Pausing",
    StopCause.BUDGET: "The budget is used up",
    StopCause.MAX_DURATION: "The job has run for max_duration",
    StopCause.DEADLINE: "The deadline has passed",
    StopCause.USER: "Cancelling",
}


def why_stopping(job: Job, attempt: Attempt | None, now: datetime) -> str:
    """Why a job stops, and what it still does: "Cancelling: its machines are released next."."""
    return f"{_CAUSES[job.stop_cause or StopCause.USER]}: {_course(job, attempt, now)}"


def _course(job: Job, attempt: Attempt | None, now: datetime) -> str:
    """What is next.

    Only the end of the drain is stored, not whether a person said "at once": the drain tells it,
    since nothing saves in so short a time.
    """
    draining = attempt is not None and attempt.state is AttemptState.DRAINING
    until = attempt.drain_until_at if attempt is not None and draining else None
    if until is None:
        return "its machines are released next."
    at_once = timedelta(seconds=STOP_NOW_SECONDS)
    if until <= (job.stop_ordered_at or now) + at_once:
        return "it ends at once, without saving first, and its machines are released."
    if until <= now + at_once:
        return "its time to save is over, and its machines are released next."
    return "a program that can save does so first, then its machines are released."
