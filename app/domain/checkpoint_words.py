"""Why a job has no checkpoint to fetch, in words: not any more, never, or not yet."""

from __future__ import annotations

from app.domain.job import TERMINAL_JOB_STATES, JobState


def why_no_checkpoint(subject: str, state: JobState, *, removed: bool) -> str:
    """The sentence without its full stop. subject: the job, as the sentence begins with it;
    removed: whether one was there and has been removed since."""
    if removed:
        return f"{subject} has no checkpoint any more: all of them have been removed"
    if state in TERMINAL_JOB_STATES:
        return f"{subject} saved no checkpoint, and has ended"
    if state is JobState.PAUSED:
        return f"{subject} saved no checkpoint: when resumed, it starts again from the beginning"
    return (
        f"{subject} has no checkpoint yet: the first one is committed a while after training begins"
    )
