"""What people may command a job to do, in which states, and the sentence where it is too late.

Not here: what a command does (`gang.stop_job`), or orders by a limit, which the table
of `job` alone decides on.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from app.domain.lifecycle.job import LIVE_JOB_STATES, TERMINAL_JOB_STATES, JobState, StopCause
from app.domain.units.errors import CommandRefused


class JobCommand(StrEnum):
    """What a person may say to a job."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"


_AT_WORK: Final = frozenset(
    {JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.RECOVERING}
)
COMMANDED_STATES: Final = {
    JobCommand.CANCEL: LIVE_JOB_STATES,
    JobCommand.PAUSE: _AT_WORK,
    JobCommand.RESUME: frozenset({JobState.PAUSED}),
}
"""The jobs that a command to all of a project is meant for."""

_PAUSES: Final = frozenset({StopCause.PAUSE, StopCause.BUDGET})
_ENDED: Final = {
    JobState.SUCCEEDED: "This job has already succeeded",
    JobState.FAILED: "This job has already failed",
    JobState.CANCELLED: "This job is already cancelled",
}
_STOPPING: Final = {
    StopCause.USER: "This job is being cancelled",
    StopCause.MAX_DURATION: "This job is being stopped, as it has run for its max_duration",
    StopCause.DEADLINE: "This job is being stopped, as its deadline has passed",
}


def require_possible(
    command: JobCommand, name: str, state: JobState, stop_cause: StopCause | None
) -> None:
    """Raises CommandRefused, with what to do instead, where the command makes no sense.

    name: the job's. stop_cause: why it is stopping, if it is.
    """
    refused = _why_not(command, name, state, stop_cause)
    if refused is not None:
        raise CommandRefused(refused)


def has_happened(command: JobCommand, state: JobState, stop_cause: StopCause | None) -> bool:
    """Whether the job is where the command would bring it, or on its way there."""
    stopping = state is JobState.STOPPING
    if command is JobCommand.CANCEL:
        return state is JobState.CANCELLED or (stopping and stop_cause is StopCause.USER)
    if command is JobCommand.PAUSE:
        return state is JobState.PAUSED or (stopping and stop_cause in _PAUSES)
    return state in _AT_WORK


def _why_not(
    command: JobCommand, name: str, state: JobState, stop_cause: StopCause | None
) -> str | None:
    if state in TERMINAL_JOB_STATES:
        if command is JobCommand.RESUME:
            again = f"submit it under another name: `lowtide submit --from {name}`."
            return f"{_ENDED[state]}. To run it again, {again}"
        return f"{_ENDED[state]}: there is nothing to {command}."
    if command is JobCommand.PAUSE and state is JobState.PAUSED:
        return f"This job is already paused. Resume it with `lowtide resume {name}`."
    if command is JobCommand.RESUME and state in _AT_WORK:
        where = "waiting for machines" if state is JobState.QUEUED else state.value
        return f"This job is already {where}: there is nothing to resume."
    if command is JobCommand.CANCEL or state is not JobState.STOPPING:
        return None
    if stop_cause not in _PAUSES and stop_cause is not None:
        return f"{_STOPPING[stop_cause]}, so it cannot be {command}d."
    if command is JobCommand.PAUSE:
        return f"This job is already being paused. Follow it: `lowtide watch {name}`."
    return f"This job is still being paused. Once it is, resume it with `lowtide resume {name}`."
