"""Why an attempt or a job ended: the closed list, and one table of what each reason means.

Not here: which reason applies (`attempt_verdict`) and how long to wait before trying again
(`retry_policy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class EndReason(StrEnum):
    """Every reason there is. A new one needs a row in END_REASONS and a line in the docs."""

    FINISHED = "finished"
    SPOT_INTERRUPTED = "spot_interrupted"
    CONTACT_LOST = "contact_lost"
    MACHINE_FAILED = "machine_failed"
    GPU_FAULT = "gpu_fault"
    AGENT_FAILED = "agent_failed"
    FENCED_OFF = "fenced_off"
    NO_CAPACITY = "no_capacity"
    REGISTRATION_TIMEOUT = "registration_timeout"
    RESIZED = "resized"
    MIGRATED = "migrated"
    PREPARATION_FAILED = "preparation_failed"
    STORE_UNAVAILABLE = "store_unavailable"
    DISK_FULL = "disk_full"
    STALLED = "stalled"
    USER_ERROR = "user_error"
    UNKNOWN = "unknown"
    OUT_OF_MEMORY = "out_of_memory"
    CONFIGURATION_REJECTED = "configuration_rejected"
    CREDENTIALS = "credentials"
    USER_CANCELLED = "user_cancelled"
    USER_PAUSED = "user_paused"
    BUDGET_EXHAUSTED = "budget_exhausted"
    DEADLINE_PASSED = "deadline_passed"
    MAX_DURATION_REACHED = "max_duration_reached"
    NO_PROGRESS = "no_progress"
    MAX_WAIT_REACHED = "max_wait_reached"


class EndClass(StrEnum):
    """What follows from a reason."""

    SUCCESS = "success"
    RETRY_NOW = "retry_now"
    RETRY_AFTER_BACKOFF = "retry_after_backoff"
    FATAL = "fatal"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    FAILED = "failed"


class CoolDownScope(StrEnum):
    """What is left alone for a while: nothing, the whole pool, or the one machine.

    A cloud does not let us name a host, so `host` means: release this instance and never hold it
    for the next attempt. Where the host itself is broken, its pool rests as well: the place that
    was just given back would be the first to be given to us again.
    """

    NONE = "none"
    POOL = "pool"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class EndReasonFacts:
    """One row of the table. `same_pool_last`: the pool may serve again, but not as first choice."""

    end_class: EndClass
    counts_against_retries: bool = False
    cool_down: CoolDownScope = CoolDownScope.NONE
    same_pool_last: bool = False

    @property
    def retryable(self) -> bool:
        """Whether the reason alone would allow another attempt."""
        return self.end_class in (EndClass.RETRY_NOW, EndClass.RETRY_AFTER_BACKOFF)


_NOW, _LATER = EndClass.RETRY_NOW, EndClass.RETRY_AFTER_BACKOFF
_POOL, _HOST = CoolDownScope.POOL, CoolDownScope.HOST

END_REASONS: Final[dict[EndReason, EndReasonFacts]] = {
    EndReason.FINISHED: EndReasonFacts(EndClass.SUCCESS),
    EndReason.SPOT_INTERRUPTED: EndReasonFacts(_NOW, same_pool_last=True),
    EndReason.CONTACT_LOST: EndReasonFacts(_NOW, cool_down=_POOL),
    EndReason.MACHINE_FAILED: EndReasonFacts(_NOW, cool_down=_HOST),
    EndReason.GPU_FAULT: EndReasonFacts(_NOW, cool_down=_POOL),
    EndReason.AGENT_FAILED: EndReasonFacts(_NOW, cool_down=_HOST),
    # The next attempt gets a fence beyond the one that was met.
    EndReason.FENCED_OFF: EndReasonFacts(_NOW),
    EndReason.NO_CAPACITY: EndReasonFacts(_LATER, cool_down=_POOL),
    EndReason.REGISTRATION_TIMEOUT: EndReasonFacts(_LATER, cool_down=_POOL),
    EndReason.RESIZED: EndReasonFacts(_NOW),
    EndReason.MIGRATED: EndReasonFacts(_NOW),
    EndReason.PREPARATION_FAILED: EndReasonFacts(_LATER, counts_against_retries=True),
    EndReason.STORE_UNAVAILABLE: EndReasonFacts(_LATER, counts_against_retries=True),
    # Another machine begins with an empty disk. It counts, for the job may fill that one, too.
    EndReason.DISK_FULL: EndReasonFacts(_LATER, counts_against_retries=True, cool_down=_HOST),
    EndReason.STALLED: EndReasonFacts(_LATER, counts_against_retries=True),
    EndReason.USER_ERROR: EndReasonFacts(_NOW, counts_against_retries=True),
    # What nobody can explain is not held against the user; the bound on attempts without progress
    # still ends it.
    EndReason.UNKNOWN: EndReasonFacts(_LATER),
    EndReason.OUT_OF_MEMORY: EndReasonFacts(EndClass.FATAL, counts_against_retries=True),
    EndReason.CONFIGURATION_REJECTED: EndReasonFacts(EndClass.FATAL),
    EndReason.CREDENTIALS: EndReasonFacts(EndClass.FATAL),
    EndReason.USER_CANCELLED: EndReasonFacts(EndClass.CANCELLED),
    EndReason.USER_PAUSED: EndReasonFacts(EndClass.PAUSED),
    EndReason.BUDGET_EXHAUSTED: EndReasonFacts(EndClass.PAUSED),
    EndReason.DEADLINE_PASSED: EndReasonFacts(EndClass.FAILED),
    EndReason.MAX_DURATION_REACHED: EndReasonFacts(EndClass.FAILED),
    # The two ways of giving up that no single attempt can cause: they end a job, never an attempt.
    EndReason.NO_PROGRESS: EndReasonFacts(EndClass.FAILED),
    EndReason.MAX_WAIT_REACHED: EndReasonFacts(EndClass.FAILED),
}
COUNTED_END_REASONS: Final = frozenset(
    reason for reason, facts in END_REASONS.items() if facts.counts_against_retries
)
"""Failures of the job's own, which use its retries up."""


def facts_of(reason: EndReason) -> EndReasonFacts:
    """The table's row for `reason`."""
    return END_REASONS[reason]
