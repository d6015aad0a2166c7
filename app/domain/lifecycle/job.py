"""A job's states, events and table, and how an order to stop it plays out.

Not here: what an attempt or an instance does (`attempt`, `instance`), whether a retry is due
(`retry_policy`), and the stored fields of a job (`entities`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.transition_table import TransitionRow, TransitionTable


class JobState(StrEnum):
    """Where a job stands. Waiting for capacity is `queued` or `recovering` with a reason."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    STOPPING = "stopping"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobEvent(StrEnum):
    """What can happen to a job."""

    CLAIMED = "claimed"
    ATTEMPT_STARTED = "attempt_started"
    ATTEMPT_SUCCEEDED = "attempt_succeeded"
    COMPLETION_FOUND = "completion_found"
    ATTEMPT_ENDED_FRESH = "attempt_ended_fresh"
    ATTEMPT_ENDED_RETRYABLE = "attempt_ended_retryable"
    ATTEMPT_ENDED_FATAL = "attempt_ended_fatal"
    STOP_ORDERED = "stop_ordered"
    STOPPED_FOR_USER = "stopped_for_user"
    STOPPED_FOR_LIMIT = "stopped_for_limit"
    STOPPED_FOR_BUDGET = "stopped_for_budget"
    STOPPED_FOR_PAUSE = "stopped_for_pause"
    RESUMED = "resumed"
    BUDGET_PERIOD_BEGAN = "budget_period_began"
    GIVEN_UP = "given_up"


class StopCause(StrEnum):
    """Why a job was told to stop, weakest first: a recorded cause is only ever raised."""

    PAUSE = "pause"
    BUDGET = "budget"
    MAX_DURATION = "max_duration"
    DEADLINE = "deadline"
    USER = "user"

    @property
    def rank(self) -> int:
        """Position in the order of strength; higher wins."""
        return list(StopCause).index(self)


class BudgetKind(StrEnum):
    """Which budget has stopped a job, or paused it. Values are stored and shown."""

    JOB = "job"
    PROJECT = "project"
    PROJECT_MONTH = "project_month"
    DEPLOYMENT_MONTH = "deployment_month"


MONTHLY_BUDGETS: Final = frozenset({BudgetKind.PROJECT_MONTH, BudgetKind.DEPLOYMENT_MONTH})
"""A job that one of these has paused goes on by itself once there is money again."""


class AttemptEnding(StrEnum):
    """What an attempt's end means to its job, once the retry policy has spoken."""

    SUCCEEDED = "succeeded"
    RETRYABLE = "retryable"
    FATAL = "fatal"


TERMINAL_JOB_STATES: Final = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
LIVE_JOB_STATES: Final = frozenset(JobState) - TERMINAL_JOB_STATES
# Only these may own a live attempt; a database constraint says the same.
ATTEMPT_JOB_STATES: Final = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
CLAIMABLE_JOB_STATES: Final = frozenset({JobState.QUEUED, JobState.RECOVERING})

_Q, _R = JobState.QUEUED, JobState.RECOVERING
_START, _RUN, _STOP, _PAUSE = (
    JobState.STARTING,
    JobState.RUNNING,
    JobState.STOPPING,
    JobState.PAUSED,
)

_COMMANDS: Final = frozenset(
    {
        JobEvent.CLAIMED,
        JobEvent.STOP_ORDERED,
        JobEvent.STOPPED_FOR_USER,
        JobEvent.STOPPED_FOR_LIMIT,
        JobEvent.STOPPED_FOR_BUDGET,
        JobEvent.STOPPED_FOR_PAUSE,
        JobEvent.RESUMED,
        JobEvent.BUDGET_PERIOD_BEGAN,
        JobEvent.GIVEN_UP,
    }
)

JOB_TRANSITIONS: Final = TransitionTable(
    "job",
    states=JobState,
    events=JobEvent,
    commands=_COMMANDS,
    facts=frozenset(JobEvent) - _COMMANDS,
    terminal=TERMINAL_JOB_STATES,
    rows=(
        TransitionRow((_Q, _R), JobEvent.CLAIMED, _START),
        TransitionRow((_START,), JobEvent.ATTEMPT_STARTED, _RUN),
        TransitionRow((_START, _RUN, _STOP), JobEvent.ATTEMPT_SUCCEEDED, JobState.SUCCEEDED),
        TransitionRow(
            (_Q, _R, _START, _RUN, _STOP, _PAUSE),
            JobEvent.COMPLETION_FOUND,
            JobState.SUCCEEDED,
            "the lineage holds a final manifest",
        ),
        TransitionRow((_START,), JobEvent.ATTEMPT_ENDED_FRESH, _Q, "the job has never trained"),
        TransitionRow((_START, _RUN), JobEvent.ATTEMPT_ENDED_RETRYABLE, _R),
        TransitionRow((_START, _RUN, _STOP), JobEvent.ATTEMPT_ENDED_FATAL, JobState.FAILED),
        TransitionRow((_START, _RUN), JobEvent.STOP_ORDERED, _STOP),
        TransitionRow(
            (_STOP,), JobEvent.STOP_ORDERED, _STOP, "a stronger cause replaces the recorded one"
        ),
        TransitionRow((_Q, _R, _PAUSE, _STOP), JobEvent.STOPPED_FOR_USER, JobState.CANCELLED),
        TransitionRow(
            (_Q, _R, _PAUSE, _STOP),
            JobEvent.STOPPED_FOR_LIMIT,
            JobState.FAILED,
            "max_duration, or a deadline with on_deadline: stop",
        ),
        TransitionRow((_Q, _R, _STOP), JobEvent.STOPPED_FOR_BUDGET, _PAUSE),
        TransitionRow((_Q, _R, _STOP), JobEvent.STOPPED_FOR_PAUSE, _PAUSE),
        TransitionRow((_PAUSE,), JobEvent.RESUMED, _Q),
        TransitionRow(
            (_PAUSE,), JobEvent.BUDGET_PERIOD_BEGAN, _Q, "the budget of the month has money again"
        ),
        TransitionRow(
            (_Q, _R),
            JobEvent.GIVEN_UP,
            JobState.FAILED,
            "no progress, max_wait, or a configuration that cannot work",
        ),
    ),
)

_STOPPED: Final = {
    StopCause.PAUSE: (JobEvent.STOPPED_FOR_PAUSE, EndReason.USER_PAUSED),
    StopCause.BUDGET: (JobEvent.STOPPED_FOR_BUDGET, EndReason.BUDGET_EXHAUSTED),
    StopCause.MAX_DURATION: (JobEvent.STOPPED_FOR_LIMIT, EndReason.MAX_DURATION_REACHED),
    StopCause.DEADLINE: (JobEvent.STOPPED_FOR_LIMIT, EndReason.DEADLINE_PASSED),
    StopCause.USER: (JobEvent.STOPPED_FOR_USER, EndReason.USER_CANCELLED),
}


def raise_stop_cause(old: StopCause | None, new: StopCause) -> StopCause:
    """The cause to record when `new` arrives over `old`: the stronger of the two."""
    if old is None or new.rank > old.rank:
        return new
    return old


def stopped_event(cause: StopCause) -> JobEvent:
    """The event that completes a stop ordered for `cause`."""
    return _STOPPED[cause][0]


def stop_end_reason(cause: StopCause) -> EndReason:
    """The end reason that a stop ordered for `cause` writes on the job and on its attempt."""
    return _STOPPED[cause][1]


def event_for_stop(state: JobState, cause: StopCause) -> JobEvent:
    """The event an order to stop becomes: a drain first where an attempt may be alive.

    For any other state it is the completing event at once, which the table refuses where the
    order makes no sense (a second pause, a finished job).
    """
    return JobEvent.STOP_ORDERED if state in ATTEMPT_JOB_STATES else stopped_event(cause)


def outcome_when_stop_ordered(ending: AttemptEnding, cause: StopCause) -> JobEvent:
    """What the job sees when its attempt ends while a stop for `cause` is ordered.

    Success always wins and a retryable end becomes the stop. A fatal end fails the job unless
    the user or a limit (max_duration, deadline) had asked for the end anyway.
    """
    if ending is AttemptEnding.SUCCEEDED:
        return JobEvent.ATTEMPT_SUCCEEDED
    if ending is AttemptEnding.FATAL and cause in (StopCause.PAUSE, StopCause.BUDGET):
        return JobEvent.ATTEMPT_ENDED_FATAL
    return stopped_event(cause)


def event_when_attempt_ended(
    ending: AttemptEnding, *, ever_trained: bool, stop_cause: StopCause | None
) -> JobEvent:
    """The job event for an attempt's end, with or without an ordered stop.

    `ever_trained` is about the job, not the attempt: a job with progress behind it goes to
    `recovering` and keeps its place ahead of the queue even if this attempt never trained.
    """
    if stop_cause is not None:
        return outcome_when_stop_ordered(ending, stop_cause)
    if ending is AttemptEnding.SUCCEEDED:
        return JobEvent.ATTEMPT_SUCCEEDED
    if ending is AttemptEnding.FATAL:
        return JobEvent.ATTEMPT_ENDED_FATAL
    return JobEvent.ATTEMPT_ENDED_RETRYABLE if ever_trained else JobEvent.ATTEMPT_ENDED_FRESH
