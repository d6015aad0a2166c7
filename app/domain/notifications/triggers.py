"""What notifications are about, and which line of a job's history is one.

Not here: what they say (`message`), or who is told (`app.orchestration.frame.tell_channels`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.events import HistoryKind, JobEventKind
from app.domain.lifecycle.job import JobEvent, JobState


class Trigger(StrEnum):
    """What a rule waits for. Values are stored; never reuse or rename one."""

    STARTED = "started"
    """A job trains for the first time."""
    INTERRUPTED = "interrupted"
    """The cloud has taken a machine of a job, and its attempt ended."""
    WAITING = "waiting"
    """A job has waited for machines for longer than the rule says."""
    DEADLINE_AT_RISK = "deadline_at_risk"
    """A job may miss its deadline, or has missed it."""
    BUDGET = "budget"
    """A budget has come to one of its thresholds, or has paused a job."""
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    MACHINE_LEAKED = "machine_leaked"
    """A cloud lists a machine that the database did not know."""
    BOOKS_DIFFER = "books_differ"
    """Reports of costs and the ledger say different amounts."""
    DEPLOYMENT_BUDGET = "deployment_budget"
    """The deployment's budget of the month has come to one of its thresholds."""


OF_DEPLOYMENT: Final = frozenset(
    {Trigger.MACHINE_LEAKED, Trigger.BOOKS_DIFFER, Trigger.DEPLOYMENT_BUDGET}
)
"""These concern all projects at once, so only an admin makes a rule for them."""

OF_JOB: Final = (
    Trigger.STARTED,
    Trigger.INTERRUPTED,
    Trigger.DEADLINE_AT_RISK,
    Trigger.BUDGET,
    Trigger.FAILED,
    Trigger.SUCCEEDED,
)
"""What the channels are told that a job's own `notify` names. How long a wait is too long, a rule
says.
"""

_INTERRUPTIONS: Final = frozenset({JobEvent.ATTEMPT_ENDED_RETRYABLE, JobEvent.ATTEMPT_ENDED_FRESH})
_ENDS: Final = {JobState.FAILED: Trigger.FAILED, JobState.SUCCEEDED: Trigger.SUCCEEDED}
_OTHERS: Final[dict[HistoryKind, Trigger]] = {
    JobEventKind.DEADLINE_UNSAFE: Trigger.DEADLINE_AT_RISK,
    JobEventKind.DEADLINE_MISSED: Trigger.DEADLINE_AT_RISK,
    JobEvent.STOPPED_FOR_BUDGET: Trigger.BUDGET,
}


def trigger_of(
    kind: HistoryKind, to_state: str | None, reason: object, *, has_trained: bool
) -> Trigger | None:
    """What a line of a job's history triggers, None for most.

    to_state: of the job, where the line is about the job. reason: why an attempt ended.
    has_trained: whether the job trained before this line.
    """
    if kind in _OTHERS:
        return _OTHERS[kind]
    if not isinstance(kind, JobEvent):
        return None
    if kind is JobEvent.ATTEMPT_STARTED:
        return None if has_trained else Trigger.STARTED
    if kind in _INTERRUPTIONS:
        return Trigger.INTERRUPTED if reason == EndReason.SPOT_INTERRUPTED else None
    return None if to_state is None else _ENDS.get(JobState(to_state))
