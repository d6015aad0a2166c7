"""Why a job waits, starts, saves, stops or has ended: one sentence, the same for every reader.

The list of jobs, a job's page, the API and the command line all show what `why` returns. A reason
that a rule has stored (a wait, an end) is that sentence; any other is made from stored values. Not
here: the sentence of a wait (`claim_jobs` stores it in the words of `no_offer` or `market_words`,
and before a retry `end_attempt`); what a job does before its first step, or its figures
(`app.web.job_sentences`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.domain.billing.budget import WITHIN_BUDGET
from app.domain.deployment.disk_full import DISK_FULL_SENTENCE
from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.end_reason import COUNTED_END_REASONS
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, JobState, StopCause
from app.domain.market.offer import Pool
from app.domain.units.durations import format_duration
from app.domain.wording.checkpoint_words import where_it_continues
from app.domain.wording.machine_words import gang_words, machines_in_words, zone_words
from app.domain.wording.stop_words import STOP_NOW_SECONDS

_STOP_CAUSES: Final = {
    StopCause.PAUSE: "Pausing",
    StopCause.BUDGET: f"Stopping, {WITHIN_BUDGET}",
    StopCause.MAX_DURATION: "The job has run for max_duration",
    StopCause.DEADLINE: "The deadline has passed",
    StopCause.USER: "Cancelling",
}
_STOPS: Final = (".", "!", "?", "…")


@dataclass(frozen=True, slots=True)
class LastEnd:
    """How the newest attempt that has ended did so. committed_step: the job's, saved by then."""

    reason: str
    message: str | None
    committed_step: int


@dataclass(frozen=True, slots=True)
class LiveAttempt:
    """The attempt that is under way. drain_until_at: when its time to save is over."""

    state: AttemptState
    node_count: int
    drain_cause: DrainCause | None = None
    drain_until_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobStanding:
    """What of a job's rows its reason is made of: the whole of it, in the list as on its page.

    nodes: as its spec has them: a number, or "2..4". interrupted: of its machines, those that the
    cloud is about to take. registered: the pools of those whose agent has registered, one each.
    disk_full: of any of them. has_checkpoint: asked of a job that recovers, for any other it may be
    False.
    """

    state: JobState
    submitted_at: datetime
    node_count: int
    nodes: int | str
    committed_step: int = 0
    wait_reason: str | None = None
    end_message: str | None = None
    ended_at: datetime | None = None
    stop_cause: StopCause | None = None
    stop_ordered_at: datetime | None = None
    last_end: LastEnd | None = None
    attempt: LiveAttempt | None = None
    registered: tuple[Pool | None, ...] = ()
    interrupted: int = 0
    disk_full: bool = False
    has_checkpoint: bool = False


def why(job: JobStanding, now: datetime) -> str | None:
    """Why the job is where it is, as a sentence; None while it simply trains."""
    match job.state:
        case JobState.SUCCEEDED:
            return _succeeded(job)
        case JobState.FAILED | JobState.CANCELLED:
            return _sentence(job.end_message)
        case JobState.PAUSED:
            return _sentence(job.end_message) or "Paused. Its checkpoints are kept."
        case JobState.QUEUED | JobState.RECOVERING:
            return _sentence(job.wait_reason) or _waiting(job)
        case JobState.STOPPING:
            return f"{_STOP_CAUSES[job.stop_cause or StopCause.USER]}: {_stopping(job, now)}"
        case JobState.STARTING | JobState.RUNNING:
            return _joined(_attempting(job, job.attempt, now), _last_failure(job))


def _succeeded(job: JobStanding) -> str:
    took = ""
    if job.ended_at is not None:
        seconds = (job.ended_at - job.submitted_at).total_seconds()
        took = f", {format_duration(seconds)} after it was submitted"
    at = f" at step {job.committed_step:,}" if job.committed_step else ""
    return f"Finished{at}{took}."


def _waiting(job: JobStanding) -> str:
    failure = _last_failure(job)
    if job.state is JobState.QUEUED:
        return _joined(failure, "In the queue: looking for machines next.") or ""
    if failure is None:
        last = job.last_end
        because = "" if last is None else f" ({last.reason.replace('_', ' ')})"
        failure = f"The last attempt ended{because}."
    start, because = where_it_continues(job.committed_step, saved=job.has_checkpoint)
    return f"{failure} {start} as soon as machines are found{because}."


def _stopping(job: JobStanding, now: datetime) -> str:
    """What is next.

    Only the end of the drain is stored, not whether a person said "at once". A drain that ends
    within moments of the order may also be one that began with a notice, and saves meanwhile.
    """
    attempt = job.attempt
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


def _attempting(job: JobStanding, attempt: LiveAttempt | None, now: datetime) -> str | None:
    if attempt is None:
        return "The next attempt is starting."
    match attempt.state:
        case AttemptState.PROVISIONING:
            return _forming(len(job.registered), attempt.node_count)
        case AttemptState.PREPARING:
            where = zone_words(job.registered)
            gang = gang_words(attempt.node_count, job.nodes)
            connects = " and connecting to each other" if attempt.node_count > 1 else ""
            return f"{gang}{where}: restoring{connects}."
        case AttemptState.DRAINING:
            return _draining(job, attempt, now)
        case AttemptState.SETTLING:
            return "The attempt ended; checking why before the next one."
        case _:
            return DISK_FULL_SENTENCE if job.disk_full else None


def _forming(ready: int, count: int) -> str:
    machines = machines_in_words(count)
    if ready == 0:
        return f"{machines} {'is' if count == 1 else 'are'} being started."
    verb = "is" if ready == 1 else "are"
    return f"{ready} of {machines} {verb} ready; waiting for the rest."


def _draining(job: JobStanding, attempt: LiveAttempt, now: datetime) -> str:
    if attempt.drain_cause is DrainCause.INTERRUPTION:
        machines = machines_in_words(job.interrupted or 1)
        return f"The cloud interrupts {machines}{_in(attempt, now)}: saving a checkpoint."
    if attempt.drain_cause is DrainCause.YIELD:
        if attempt.node_count != job.node_count:
            machines = machines_in_words(job.node_count)
            return f"Saving a checkpoint to continue with {machines}."
        return "Saving a checkpoint to move to other machines."
    return "Saving a checkpoint before the machines are released."


def _in(attempt: LiveAttempt, now: datetime) -> str:
    if attempt.drain_until_at is None:
        return ""
    seconds = (attempt.drain_until_at - now).total_seconds()
    return f" in {format_duration(seconds)}" if seconds >= 1 else " now"


def _last_failure(job: JobStanding) -> str | None:
    """What is said of the last attempt, of a job that tries again after a failure of its own.

    None as soon as it has saved more than that attempt had.
    """
    last = job.last_end
    if last is None or last.reason not in COUNTED_END_REASONS:
        return None
    waits = job.state in CLAIMABLE_JOB_STATES or job.state is JobState.STARTING
    trains = job.state is JobState.RUNNING and job.committed_step <= last.committed_step
    return _sentence(last.message) if waits or trains else None


def _joined(*sentences: str | None) -> str | None:
    return " ".join(one for one in sentences if one) or None


def _sentence(stored: str | None) -> str | None:
    """With a capital letter and a full stop; None for nothing."""
    text = (stored or "").strip()
    if not text:
        return None
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith(_STOPS) else '.'}"
