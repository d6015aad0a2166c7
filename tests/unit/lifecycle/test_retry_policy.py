"""Waits, retries and cool-downs, and that the table of end reasons is whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.lifecycle.end_reason import END_REASONS, CoolDownScope, EndClass, EndReason
from app.domain.lifecycle.job import AttemptEnding
from app.domain.lifecycle.retry_policy import (
    BACKOFF_SECONDS_MAX,
    backoff_seconds,
    ending_of,
    may_retry,
    pool_cool_down_seconds,
    progress_exhausted,
    retries_exhausted,
)

RETRYABLE = [reason for reason, facts in END_REASONS.items() if facts.retryable]
LATER = [r for r in RETRYABLE if END_REASONS[r].end_class is EndClass.RETRY_AFTER_BACKOFF]

# reason, class, counts: the words of the rules, written a second time by hand.
TABLE = """
finished success -
spot_interrupted retry_now no
contact_lost retry_now no
machine_failed retry_now no
gpu_fault retry_now no
agent_failed retry_now no
fenced_off retry_now no
no_capacity retry_after_backoff no
registration_timeout retry_after_backoff no
resized retry_now no
migrated retry_now no
preparation_failed retry_after_backoff yes
store_unavailable retry_after_backoff yes
disk_full retry_after_backoff yes
stalled retry_after_backoff yes
user_error retry_now yes
unknown retry_after_backoff no
out_of_memory fatal yes
configuration_rejected fatal -
credentials fatal -
user_cancelled cancelled -
user_paused paused -
budget_exhausted paused -
deadline_passed failed -
max_duration_reached failed -
no_progress failed -
max_wait_reached failed -
"""


def test_the_table_of_reasons_is_whole_and_as_written():
    written = [line.split() for line in TABLE.strip().splitlines()]
    assert [row[0] for row in written] == [reason.value for reason in EndReason]
    for name, end_class, counts in written:
        facts = END_REASONS[EndReason(name)]
        assert facts.end_class == end_class, name
        assert facts.counts_against_retries is (counts == "yes"), name


@given(st.sampled_from(LATER), st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_waits_are_bounded_and_never_shrink(reason: EndReason, consecutive: int, jitter: float):
    wait = backoff_seconds(reason, consecutive, jitter)
    assert 0 < wait <= BACKOFF_SECONDS_MAX
    assert backoff_seconds(reason, consecutive + 1, jitter) >= wait


def test_waits_double_up_to_the_reasons_maximum():
    waits = [backoff_seconds(EndReason.NO_CAPACITY, n, 0.0) for n in range(1, 8)]
    assert waits == [15, 30, 60, 120, 240, 300, 300]
    assert backoff_seconds(EndReason.NO_CAPACITY, 1, 0.5) == 22.5
    assert backoff_seconds(EndReason.SPOT_INTERRUPTED, 9, 0.9) == 0


@pytest.mark.parametrize(
    ("reason", "consecutive", "jitter", "complaint"),
    [
        (EndReason.STALLED, 0, 0.0, "counts from 1"),
        (EndReason.STALLED, 1, 1.0, "jitter"),
        (EndReason.CREDENTIALS, 1, 0.0, "no other attempt"),
    ],
)
def test_a_wait_that_makes_no_sense_is_refused(
    reason: EndReason, consecutive: int, jitter: float, complaint: str
):
    with pytest.raises(ValueError, match=complaint):
        backoff_seconds(reason, consecutive, jitter)


@pytest.mark.parametrize("reason", list(EndReason))
def test_only_what_counts_uses_up_retries(reason: EndReason):
    facts = END_REASONS[reason]
    assert may_retry(reason, retries=3, retries_used=2) is facts.retryable
    expected = facts.retryable and not facts.counts_against_retries
    assert may_retry(reason, retries=3, retries_used=3) is expected


def test_named_exit_codes_restrict_the_retries_of_user_errors_only():
    def again(reason: EndReason, exit_code: int | None) -> bool:
        return may_retry(
            reason, retries=1, retries_used=0, exit_code=exit_code, retry_on_exit_codes=[17]
        )

    assert again(EndReason.USER_ERROR, 17)
    assert not again(EndReason.USER_ERROR, 1)
    assert not again(EndReason.USER_ERROR, None)
    assert again(EndReason.STALLED, 1)


@pytest.mark.parametrize(
    ("reason", "used", "ending"),
    [
        (EndReason.FINISHED, 0, AttemptEnding.SUCCEEDED),
        (EndReason.SPOT_INTERRUPTED, 99, AttemptEnding.RETRYABLE),
        (EndReason.USER_ERROR, 2, AttemptEnding.RETRYABLE),
        (EndReason.USER_ERROR, 3, AttemptEnding.FATAL),
        (EndReason.OUT_OF_MEMORY, 0, AttemptEnding.FATAL),
        (EndReason.BUDGET_EXHAUSTED, 99, AttemptEnding.RETRYABLE),
        (EndReason.USER_CANCELLED, 0, AttemptEnding.RETRYABLE),
    ],
)
def test_what_an_end_means_to_the_job(reason: EndReason, used: int, ending: AttemptEnding):
    assert ending_of(reason, retries=3, retries_used=used) is ending


def test_ten_attempts_without_progress_are_the_bound():
    assert not progress_exhausted(9)
    assert progress_exhausted(10)


def test_pools_cool_down_exactly_where_the_table_says_so():
    for reason, facts in END_REASONS.items():
        has_pause = pool_cool_down_seconds(reason) > 0
        assert has_pause is (facts.cool_down is CoolDownScope.POOL), reason
    assert END_REASONS[EndReason.SPOT_INTERRUPTED].cool_down is not CoolDownScope.POOL
    assert END_REASONS[EndReason.SPOT_INTERRUPTED].same_pool_last


@pytest.mark.parametrize(
    ("reason", "retries", "used", "told"),
    [
        (EndReason.USER_ERROR, 3, 3, True),
        (EndReason.USER_ERROR, 3, 2, False),
        (EndReason.USER_ERROR, 0, 0, False),
        # No retry was denied it for their number: it has none, however many are left.
        (EndReason.OUT_OF_MEMORY, 3, 3, False),
        (EndReason.NO_PROGRESS, 3, 3, False),
        (EndReason.SPOT_INTERRUPTED, 3, 3, False),
    ],
)
def test_retries_are_exhausted_only_where_one_would_follow(
    reason: EndReason, retries: int, used: int, told: bool
):
    assert retries_exhausted(reason, retries=retries, retries_used=used) is told
