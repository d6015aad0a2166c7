"""The last safe moment, and acquire before release."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from app.domain.deadline.deadline_policy import (
    DeadlineAction,
    DeadlineView,
    StartTimes,
    decide,
    last_safe_moment,
    seems_slower,
)
from app.domain.market.offer import Market

DEADLINE = datetime(2026, 3, 2, 12, tzinfo=UTC)
START = StartTimes(60, 240, 120, 1_800)
VIEW = DeadlineView(
    deadline_at=DEADLINE,
    remaining_seconds=3600,
    start=START,
    running_on=Market.SPOT,
)
LAST_SAFE = DEADLINE - timedelta(seconds=3600 + 60 + 240 + 120 + 1800)
SECOND = timedelta(seconds=1)


def test_the_last_safe_moment_leaves_room_for_all_of_it() -> None:
    assert last_safe_moment(DEADLINE, 3600, START) == LAST_SAFE


def test_spot_until_the_last_safe_moment_then_on_demand_before_release() -> None:
    before = decide(VIEW, LAST_SAFE - SECOND)
    assert (before.action, before.last_safe_at) == (DeadlineAction.SPOT, LAST_SAFE)
    assert before.sentence == "Spot is safe for another 1s."
    at = decide(VIEW, LAST_SAFE)
    assert at.action is DeadlineAction.ACQUIRE_ON_DEMAND
    assert at.unsafe_since_at is None
    assert "the spot attempt continues" in at.sentence
    registered = decide(replace(VIEW, on_demand_registered=True), LAST_SAFE)
    assert registered.action is DeadlineAction.YIELD_TO_ON_DEMAND
    settled = replace(VIEW, on_demand_registered=True, running_on=None)
    assert decide(settled, LAST_SAFE).action is DeadlineAction.STAY_ON_DEMAND
    waiting = decide(replace(VIEW, running_on=None), LAST_SAFE)
    assert waiting.action is DeadlineAction.ACQUIRE_ON_DEMAND
    assert "the job waits" in waiting.sentence


def test_it_acts_early_enough_that_the_next_look_is_not_too_late() -> None:
    looking = replace(VIEW, look_again_seconds=30)
    assert decide(looking, LAST_SAFE - 31 * SECOND).action is DeadlineAction.SPOT
    assert decide(looking, LAST_SAFE - 30 * SECOND).action is DeadlineAction.ACQUIRE_ON_DEMAND


def test_a_little_progress_does_not_undo_the_move() -> None:
    moving = replace(VIEW, moving_to_on_demand=True, remaining_seconds=3000)
    assert decide(moving, LAST_SAFE).action is DeadlineAction.ACQUIRE_ON_DEMAND


def test_it_says_since_when_the_deadline_is_unsafe() -> None:
    late = decide(VIEW, LAST_SAFE + SECOND)
    assert late.unsafe_since_at == LAST_SAFE
    moving = replace(VIEW, moving_to_on_demand=True, running_on=None)
    reserve = timedelta(seconds=1800)
    assert decide(moving, LAST_SAFE + reserve).unsafe_since_at is None
    assert decide(moving, LAST_SAFE + reserve + SECOND).unsafe_since_at == LAST_SAFE + reserve


def test_spot_only_jobs_stay_and_are_told() -> None:
    found = decide(replace(VIEW, on_demand_allowed=False), LAST_SAFE + SECOND)
    assert (found.action, found.unsafe_since_at) == (DeadlineAction.SPOT, LAST_SAFE)
    assert "may not use on-demand" in found.sentence


def test_on_demand_stays_on_demand_and_needs_no_reserve() -> None:
    running = replace(VIEW, running_on=Market.ON_DEMAND)
    in_time = decide(running, DEADLINE - timedelta(seconds=3700))
    assert in_time.action is DeadlineAction.STAY_ON_DEMAND
    assert in_time.sentence == "The job runs on-demand with 1m 40s to spare."
    late = decide(running, DEADLINE - timedelta(seconds=3500))
    assert late.action is DeadlineAction.STAY_ON_DEMAND
    assert late.unsafe_since_at == DEADLINE - timedelta(seconds=3600)
    no_deadline = decide(replace(running, deadline_at=None), DEADLINE)
    assert no_deadline.action is DeadlineAction.STAY_ON_DEMAND


def test_without_deadline_or_estimate_spot_goes_on() -> None:
    assert decide(replace(VIEW, deadline_at=None), DEADLINE).action is DeadlineAction.SPOT
    unknown = decide(replace(VIEW, remaining_seconds=None), DEADLINE - SECOND)
    assert unknown.action is DeadlineAction.SPOT
    assert "remaining work is unknown" in unknown.sentence
    assert unknown.last_safe_at is None


def test_a_missed_deadline_does_not_stop_the_work() -> None:
    missed = decide(VIEW, DEADLINE + timedelta(minutes=5))
    assert missed.action is DeadlineAction.SPOT
    assert missed.sentence == "The deadline passed 5m ago; the job continues at the lowest price."


# --- a pace that seems slower than the estimate ---------------------------------------------------

SLOWER = replace(VIEW, estimated_seconds=1_800, look_again_seconds=30, sure_after_seconds=60)
LAST_SAFE_BY_ESTIMATE = LAST_SAFE + timedelta(seconds=1_800)


def test_a_slower_pace_is_acted_on_when_it_was_seen_for_a_while() -> None:
    doubted = decide(SLOWER, LAST_SAFE)
    assert doubted.action is DeadlineAction.SPOT
    assert "measured again" in doubted.sentence
    assert doubted.last_safe_at == LAST_SAFE
    soon = replace(SLOWER, slower_since_at=LAST_SAFE - timedelta(seconds=59))
    assert decide(soon, LAST_SAFE).action is DeadlineAction.SPOT
    sure = replace(SLOWER, slower_since_at=LAST_SAFE - timedelta(seconds=60))
    assert decide(sure, LAST_SAFE).action is DeadlineAction.ACQUIRE_ON_DEMAND


def test_it_is_acted_on_at_once_when_the_estimate_says_the_same() -> None:
    before = LAST_SAFE_BY_ESTIMATE - timedelta(seconds=31)
    assert decide(SLOWER, before).action is DeadlineAction.SPOT
    after = LAST_SAFE_BY_ESTIMATE - timedelta(seconds=30)
    assert decide(SLOWER, after).action is DeadlineAction.ACQUIRE_ON_DEMAND


def test_a_pace_that_stays_slow_costs_no_time() -> None:
    """It is noticed so early that the job leaves spot at the last safe moment all the same."""
    noticed = LAST_SAFE - timedelta(seconds=90)
    assert not seems_slower(SLOWER, noticed - SECOND)
    assert seems_slower(SLOWER, noticed)
    view = replace(SLOWER, slower_since_at=noticed)
    assert decide(view, LAST_SAFE - timedelta(seconds=31)).action is DeadlineAction.SPOT
    due = decide(view, LAST_SAFE - timedelta(seconds=30))
    assert due.action is DeadlineAction.ACQUIRE_ON_DEMAND


def test_without_an_estimate_one_look_is_not_enough_either() -> None:
    view = replace(SLOWER, estimated_seconds=None)
    assert decide(view, LAST_SAFE).action is DeadlineAction.SPOT
    sure = replace(view, slower_since_at=LAST_SAFE - timedelta(seconds=60))
    assert decide(sure, LAST_SAFE).action is DeadlineAction.ACQUIRE_ON_DEMAND


def test_an_attempt_on_demand_has_its_start_before_it() -> None:
    begins = replace(VIEW, running_on=Market.ON_DEMAND, start_left_seconds=400)
    at = DEADLINE - timedelta(seconds=3_600 + 400)
    assert decide(begins, at).unsafe_since_at is None
    assert decide(begins, at + SECOND).unsafe_since_at == at
