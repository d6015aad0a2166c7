"""Whether another attempt follows, how long to wait for it, and how long a pool is left alone.

Pure arithmetic over the reason's row in `end_reason`: jitter is handed in, and the instants are
the caller's. Not here: why an attempt ended (`attempt_verdict`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from app.domain.lifecycle.end_reason import CoolDownScope, EndClass, EndReason, facts_of
from app.domain.lifecycle.job import AttemptEnding

MAX_ATTEMPTS_WITHOUT_PROGRESS: Final = 10
"""Billed attempts in a row without a newer committed step, after which the job is given up."""

MAX_SPOT_ATTEMPTS_WITHOUT_PROGRESS: Final = 5
"""So many of them that spot cut short, after which a job that may use on-demand machines does."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits double from `first_seconds` up to `max_seconds`."""

    first_seconds: float
    max_seconds: float


_BACKOFFS: Final = {
    EndReason.NO_CAPACITY: Backoff(30, 600),
    EndReason.REGISTRATION_TIMEOUT: Backoff(60, 900),
    EndReason.PREPARATION_FAILED: Backoff(30, 600),
    EndReason.STORE_UNAVAILABLE: Backoff(15, 600),
    EndReason.DISK_FULL: Backoff(15, 300),
    EndReason.STALLED: Backoff(30, 300),
    EndReason.UNKNOWN: Backoff(30, 600),
}
BACKOFF_SECONDS_MAX: Final = max(backoff.max_seconds for backoff in _BACKOFFS.values())

_POOL_COOL_DOWN_SECONDS: Final = {
    EndReason.NO_CAPACITY: 300,
    EndReason.REGISTRATION_TIMEOUT: 900,
    EndReason.CONTACT_LOST: 300,
    EndReason.GPU_FAULT: 600,
}
# Beyond this the doubling has long reached every maximum; it keeps the power small.
_DOUBLINGS_MAX: Final = 16


def backoff_seconds(reason: EndReason, consecutive: int, jitter: float) -> float:
    """Seconds to wait before the attempt after the `consecutive`-th end (from 1) for `reason`.

    0 for reasons that retry at once. `jitter` in [0, 1) spreads the wait over its upper half, so
    it never exceeds the reason's maximum. Raises ValueError outside these ranges, or for a reason
    that allows no retry.
    """
    if consecutive < 1:
        raise ValueError(f"consecutive counts from 1, not {consecutive}")
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter is in [0, 1), not {jitter}")
    if not facts_of(reason).retryable:
        raise ValueError(f"{reason} allows no other attempt, so there is nothing to wait for")
    if facts_of(reason).end_class is EndClass.RETRY_NOW:
        return 0.0
    backoff = _BACKOFFS[reason]
    doublings = min(consecutive - 1, _DOUBLINGS_MAX)
    full = min(backoff.first_seconds * (1 << doublings), backoff.max_seconds)
    return full * (1 + jitter) / 2


def may_retry(
    reason: EndReason,
    *,
    retries: int,
    retries_used: int,
    exit_code: int | None = None,
    retry_on_exit_codes: Collection[int] = (),
) -> bool:
    """Whether an attempt that ended for `reason` may be followed by another.

    `retries_used` counts the earlier ends that count against `retries`. When exit codes are named,
    a user's error is retried only for one of them.
    """
    facts = facts_of(reason)
    if not facts.retryable:
        return False
    if not may_retry_code(reason, exit_code, retry_on_exit_codes):
        return False
    return not facts.counts_against_retries or retries_used < retries


def may_retry_code(
    reason: EndReason, exit_code: int | None, retry_on_exit_codes: Collection[int]
) -> bool:
    """Whether the job's list of exit codes, where it has one, allows another attempt."""
    codes_named = reason is EndReason.USER_ERROR and bool(retry_on_exit_codes)
    return not codes_named or exit_code in retry_on_exit_codes


def ending_of(
    reason: EndReason,
    *,
    retries: int,
    retries_used: int,
    exit_code: int | None = None,
    retry_on_exit_codes: Collection[int] = (),
) -> AttemptEnding:
    """What the attempt's end means to its job; arguments as for `may_retry`.

    An attempt that left because we stopped it has nothing wrong with it: it is retryable, and the
    ordered stop decides what becomes of the job.
    """
    facts = facts_of(reason)
    if facts.end_class is EndClass.SUCCESS:
        return AttemptEnding.SUCCEEDED
    if facts.end_class in (EndClass.CANCELLED, EndClass.PAUSED, EndClass.FAILED):
        return AttemptEnding.RETRYABLE
    again = may_retry(
        reason,
        retries=retries,
        retries_used=retries_used,
        exit_code=exit_code,
        retry_on_exit_codes=retry_on_exit_codes,
    )
    return AttemptEnding.RETRYABLE if again else AttemptEnding.FATAL


def retries_exhausted(reason: EndReason, *, retries: int, retries_used: int) -> bool:
    """Whether another attempt would follow, had not earlier ends used the retries up."""
    facts = facts_of(reason)
    return facts.retryable and facts.counts_against_retries and 0 < retries <= retries_used


def progress_exhausted(attempts_without_progress: int) -> bool:
    """Whether billed attempts without a newer committed step have reached their bound."""
    return attempts_without_progress >= MAX_ATTEMPTS_WITHOUT_PROGRESS


def spot_exhausted(without_progress: Collection[EndReason]) -> bool:
    """Whether spot took the machines too often for the job to come to a checkpoint on them.

    without_progress: why the attempts since the newest checkpoint ended.
    """
    taken = sum(reason is EndReason.SPOT_INTERRUPTED for reason in without_progress)
    return taken >= MAX_SPOT_ATTEMPTS_WITHOUT_PROGRESS


def pool_cool_down_seconds(reason: EndReason) -> int:
    """Seconds for which the pool gets no new launch after `reason`; 0 where none is due."""
    if facts_of(reason).cool_down is not CoolDownScope.POOL:
        return 0
    return _POOL_COOL_DOWN_SECONDS[reason]
