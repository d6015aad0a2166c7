"""What a job that is being stopped still does, and how its machines left, in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Attempt, Job
from app.domain.lifecycle.job import StopCause
from app.domain.lifecycle.verdict import MemberOutcome

STOP_NOW_SECONDS: Final = 1.0
"""How long a job may still run that is cancelled at once."""

_CAUSES: Final = {
    StopCause.PAUSE: "Pausing",
    StopCause.BUDGET: "The budget is used up",
    StopCause.MAX_DURATION: "The job has run for max_duration",
    StopCause.DEADLINE: "The deadline has passed",
    StopCause.USER: "Cancelling",
}
_REASON_WORDS: Final = {
    EndReason.USER_CANCELLED: "a person cancelled the job",
    EndReason.USER_PAUSED: "a person paused the job",
}


def why_stopping(job: Job, attempt: Attempt | None, now: datetime) -> str:
    """Why a job stops, and what it still does: "Cancelling: its machines are released next."."""
    return f"{_CAUSES[job.stop_cause or StopCause.USER]}: {_course(job, attempt, now)}"


def drained_words(
    outcomes: Sequence[str | None], reason: EndReason, attempt: Attempt, committed_step: int
) -> str:
    """How a gang left that was told to: "saved" only where the attempt has committed a checkpoint.

    A machine whose trainer was killed has saved nothing. committed_step: the job's newest.
    """
    saved = attempt.committed_at is not None and MemberOutcome.STOPPED not in outcomes
    did = "saved and stopped" if saved else "stopped"
    why = _REASON_WORDS.get(reason) or reason.value.replace("_", " ")
    newest = ""
    if committed_step:
        newest = f" The newest checkpoint is of step {committed_step}."
    elif attempt.committed_at is None and attempt.parent_fence is None:
        newest = " No checkpoint has been saved."
    return f"Every machine {did}: {why}.{newest}"


def _course(job: Job, attempt: Attempt | None, now: datetime) -> str:
    """What is next.

    Only the end of the drain is stored, not whether a person said "at once". A drain that ends
    within moments of the order may also be one that began with a notice, and saves meanwhile.
    """
    draining = attempt is not None and attempt.state is AttemptState.DRAINING
    until = attempt.drain_until_at if attempt is not None and draining else None
    if until is None:
        return "its machines are released next."
    at_once = timedelta(seconds=STOP_NOW_SECONDS)
    if until <= (job.stop_ordered_at or now) + at_once:
        return "it ends at once; what is not saved by then is lost, and its machines are released."
    if until <= now + at_once:
        return "its time to save is over, and its machines are released next."
    return "a program that can save does so first, then its machines are released."
