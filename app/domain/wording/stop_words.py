"""Why an attempt ended, and how its machines left, in words; why a job is stopping: `why_words`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.domain.billing.budget import WITHIN_BUDGET
from app.domain.lifecycle.attempt_verdict import MemberOutcome
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Attempt

STOP_NOW_SECONDS: Final = 1.0
"""How long a job may still run that is cancelled at once."""

_REASON_WORDS: Final = {
    EndReason.FINISHED: "the work is finished",
    EndReason.SPOT_INTERRUPTED: "the cloud interrupted a machine",
    EndReason.CONTACT_LOST: "the contact to a machine was lost",
    EndReason.MACHINE_FAILED: "a machine failed",
    EndReason.GPU_FAULT: "a GPU failed",
    EndReason.AGENT_FAILED: "the agent of a machine failed",
    EndReason.FENCED_OFF: "a later attempt took its place",
    EndReason.NO_CAPACITY: "no pool had the machines",
    EndReason.REGISTRATION_TIMEOUT: "a machine did not register in time",
    EndReason.RESIZED: "the number of machines changed",
    EndReason.MIGRATED: "the job moved to other machines",
    EndReason.PREPARATION_FAILED: "a machine could not be prepared",
    EndReason.STORE_UNAVAILABLE: "an object store could not be reached",
    EndReason.DISK_FULL: "a disk was full",
    EndReason.STALLED: "no step was finished in time",
    EndReason.USER_ERROR: "the program failed",
    EndReason.UNKNOWN: "the reason is unknown",
    EndReason.OUT_OF_MEMORY: "memory ran out",
    EndReason.CONFIGURATION_REJECTED: "the configuration was refused",
    EndReason.CREDENTIALS: "access was denied",
    EndReason.USER_CANCELLED: "a person cancelled the job",
    EndReason.USER_PAUSED: "a person paused the job",
    EndReason.BUDGET_EXHAUSTED: f"it was time to stop, {WITHIN_BUDGET}",
    EndReason.DEADLINE_PASSED: "the deadline has passed",
    EndReason.MAX_DURATION_REACHED: "the job has run for its max_duration",
    EndReason.NO_PROGRESS: "no newer checkpoint was saved",
    EndReason.MAX_WAIT_REACHED: "no machine came within max_wait",
}


def reason_words(reason: EndReason) -> str:
    """Why an attempt ended, as a clause: "the cloud interrupted a machine"."""
    return _REASON_WORDS[reason]


def drained_words(
    outcomes: Sequence[str | None], reason: EndReason, attempt: Attempt, committed_step: int
) -> str:
    """How a gang left that was told to: "saved" only where the attempt has committed a checkpoint.

    A machine whose trainer was killed has saved nothing. committed_step: the job's newest.
    """
    saved = attempt.committed_at is not None and MemberOutcome.STOPPED not in outcomes
    did = "saved and stopped" if saved else "stopped"
    newest = ""
    if committed_step:
        newest = f" The newest checkpoint is of step {committed_step:,}."
    elif attempt.committed_at is None and attempt.parent_fence is None:
        newest = " No checkpoint has been saved."
    return f"Every machine {did}: {reason_words(reason)}.{newest}"
