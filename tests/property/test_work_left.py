"""Rate and work left from whatever trainers report: finite, never negative, never out of nothing.

Steps fall, jump, repeat or are 10^18, clocks jump in the first step, and rates are zero. Not here:
single histories with their figures (tests/unit/agent/test_step_pace.py,
tests/unit/orchestration/test_estimate_remaining.py).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import assume, given
from hypothesis import strategies as st

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Contact, Job
from app.domain.lifecycle.job import JobState
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.orchestration.estimates.attempt_measures import hear_pace, keep_pace, pace_of
from app.orchestration.estimates.estimate_remaining import (
    SECONDS_MAX,
    WorkLeft,
    record_training,
    work_left,
)
from trainer.agent.rules.step_pace import JUMP_RATIO, StepPace
from trainer.protocol.agent_report import Pace

NOW = datetime(2026, 3, 1, tzinfo=UTC)
STEPS = st.one_of(
    st.integers(0, 50), st.integers(0, 10**6), st.sampled_from([10**18, 2**62, 2**63 - 1])
)
INSTANTS = st.one_of(st.floats(0.0, 5_000.0), st.sampled_from([0.0, 1e-9, 1e9]))
LINES = st.lists(st.tuples(STEPS, INSTANTS), max_size=25)
SECONDS = st.one_of(st.just(0.0), st.floats(0.0, 1e6), st.just(1e15))


def _paced(lines: list[tuple[int, float]], parent: int | None, started_at: float) -> StepPace:
    pace = StepPace(started_at)
    for step, now in lines:
        pace = pace.seen(step, parent, now)
    return pace


def _job(total: int | None, **fields: object) -> Job:
    known: dict[str, object] = {
        "id": UUID(int=1), "project_id": UUID(int=2), "name": "work", "spec": {}, "spec_digest": "",
        "state": JobState.RUNNING, "priority": 50, "node_count": 1, "submitted_at": NOW,
        "updated_at": NOW, "queue_rank_at": NOW, "capacity_key": "", "budget_id": UUID(int=3),
        "total_steps": total,
    }  # fmt: skip
    return Job(**{**known, **fields})  # type: ignore[arg-type]


def _spec(hours: float | None) -> JobSpec:
    estimate = {} if hours is None else {"estimate": {"hours": hours, "gpu": "V100"}}
    return parse_spec({"run": "true", "resources": {"gpu": "V100"}, **estimate})


def _attempt(fence: int, parent: int | None, trained_at: datetime) -> Attempt:
    return Attempt(
        UUID(int=10 + fence), UUID(int=1), fence, AttemptState.RUNNING, 1, NOW, NOW, NOW,
        parent_step=parent, trained_at=trained_at,
    )  # fmt: skip


def _contact(fence: int, pace: Pace | None, step: int | None) -> Contact:
    contact = Contact(UUID(int=4), "s", 1, NOW, "train", fence=fence, step=step, step_at=NOW)
    hear_pace(contact, pace)
    return contact


def _assert_sane(left: WorkLeft) -> None:
    assert left.seconds is None or 0 <= left.seconds <= SECONDS_MAX
    assert left.to_the_end is None or 0 <= left.to_the_end <= SECONDS_MAX
    assert left.estimate_seconds is None or 0 <= left.estimate_seconds <= SECONDS_MAX
    assert left.steps_per_second is None or 0 < left.steps_per_second < math.inf
    assert 0 <= left.start_seconds < math.inf
    assert left.step >= 0


@given(LINES, st.none() | STEPS, INSTANTS)
def test_what_an_agent_measures_of_any_lines_is_finite_and_in_order(
    lines: list[tuple[int, float]], parent: int | None, started_at: float
):
    told = _paced(lines, parent, started_at).told
    if told is not None:
        assert 0 < told.first_step <= told.last_step <= max(step for step, _ in lines)
        assert 0 <= told.stepping_seconds < math.inf
        assert 0 <= told.start_up_seconds < math.inf


@given(
    stride=st.integers(1, 50),
    before=st.integers(0, 30),
    jump=st.integers(1, 10**18),
    after=st.integers(3, 30),
)
def test_a_jump_is_no_training(stride: int, before: int, jump: int, after: int):
    """A line a second, and somewhere a counter that is set: the rate stays that of the steps."""
    assume(jump > JUMP_RATIO * stride)
    steps = [stride * (number + 1) for number in range(1 + before)]
    steps += [steps[-1] + jump + stride * number for number in range(after)]
    lines = [(step, 100.0 + number) for number, step in enumerate(steps)]
    told = _paced(lines, None, 0.0).told
    assert told is not None
    assert told.start_up_seconds == 100.0
    made = told.last_step - told.first_step
    assert made == stride * told.stepping_seconds


@given(st.floats(1.0, 1e6), st.lists(st.floats(0.0, 1e6), min_size=2, max_size=20))
def test_steps_that_fall_or_repeat_never_quicken_the_pace(started_at: float, waits: list[float]):
    """Two trainers make the same steps; one of them also makes some again."""
    now, even, redone = started_at, StepPace(started_at), StepPace(started_at)
    for number, wait in enumerate(waits):
        now += wait
        even = even.seen(number + 1, None, now)
        redone = redone.seen(number + 1, None, now)
        redone = redone.seen(max(0, number - 3), None, now)
    assert redone.told == even.told


@given(
    lines=LINES,
    parent=st.none() | STEPS,
    total=st.none() | STEPS,
    hours=st.none() | st.floats(0.01, 8_760.0),
    trained=st.tuples(STEPS, SECONDS),
    committed=STEPS,
    start_up=st.none() | st.floats(0.0, 1e6),
    ago=st.floats(-1e4, 1e7),
)
def test_work_left_is_finite_whatever_is_reported(
    lines: list[tuple[int, float]],
    parent: int | None,
    total: int | None,
    hours: float | None,
    trained: tuple[int, float],
    committed: int,
    start_up: float | None,
    ago: float,
):
    job = _job(
        total, trained_steps=trained[0], trained_seconds=trained[1], committed_step=committed,
        start_up_seconds=start_up,
    )  # fmt: skip
    spec, live = _spec(hours), _attempt(1, parent, NOW - timedelta(seconds=ago))
    step = max((step for step, _ in lines), default=None)
    contact = _contact(1, _paced(lines, parent, 10.0).told, step)
    left = work_left(job, spec, live, [contact], NOW)
    _assert_sane(left)
    if hours is not None and left.estimated:
        assert left.seconds is not None
        assert left.seconds <= max(1.0, math.ceil(hours * 3600) + 1), "more than the estimate"
    keep_pace(live, [pace_of(contact)])
    record_training(job, spec, live)
    _assert_sane(work_left(job, spec, None, [], NOW))


ATTEMPTS = st.lists(
    st.tuples(
        st.integers(0, 400),  # steps it makes
        st.floats(0.0, 1.0),  # the share of them that it saves
        st.floats(0.05, 20.0),  # seconds a step
        st.floats(0.0, 1_200.0),  # start-up
    ),
    min_size=1,
    max_size=6,
)


@given(ATTEMPTS, st.integers(100, 5_000), st.none() | st.floats(0.01, 50.0))
def test_through_an_interruption_work_left_rises_by_what_was_unsaved_at_most(
    attempts: list[tuple[int, float, float, float]], total: int, hours: float | None
):
    job, spec, parent = _job(total), _spec(hours), None
    for fence, (steps, share, step_seconds, start_up) in enumerate(attempts, 1):
        first = (parent or 0) + 1
        last = min(total, first + steps)
        took = step_seconds * (last - first)
        live = _attempt(fence, parent, NOW - timedelta(seconds=start_up + took))
        contact = _contact(fence, Pace(first, last, took, start_up), last)
        live.committed_step = job.committed_step = (parent or 0) + int(
            share * (last - (parent or 0))
        )
        before = work_left(job, spec, live, [contact], NOW)
        keep_pace(live, [pace_of(contact)])
        record_training(job, spec, live)
        after = work_left(job, spec, None, [], NOW)
        _assert_sane(after)
        assert (before.seconds is None) == (after.seconds is None)
        if before.seconds is not None and after.seconds is not None:
            # What a step takes, by the same mix of rate and estimate as what is left.
            unsaved = (last - job.committed_step) / max(1, total - job.committed_step)
            assert after.seconds - before.seconds <= after.seconds * unsaved + 1
        parent = job.committed_step


SAVES = st.lists(
    st.tuples(st.floats(0.0, 1_200.0), st.floats(0.0, 4_000.0), st.floats(0.0, 4_000.0)),
    min_size=1,
    max_size=6,
)


@given(SAVES, st.floats(0.5, 50.0))
def test_a_command_without_steps_keeps_what_it_saved_over_attempts(
    saves: list[tuple[float, float, float]], hours: float
):
    """Of each attempt: its start-up, training up to its last save, and training after it."""
    job, spec, kept = _job(None), _spec(hours), 0.0
    for fence, (start_up, saved, unsaved) in enumerate(saves, 1):
        job.start_up_seconds = start_up
        live = _attempt(fence, None, NOW - timedelta(seconds=start_up + saved + unsaved))
        assert live.trained_at is not None
        live.committed_at = live.trained_at + timedelta(seconds=start_up + saved)
        before = work_left(job, spec, live, [], NOW)
        record_training(job, spec, live)
        after = work_left(job, spec, None, [], NOW)
        kept += saved
        assert before.seconds is not None
        assert after.seconds is not None
        assert after.seconds <= before.seconds + 1, "what was saved is lost"
        least = 0.1 * hours * 3600
        expected = max(hours * 3600 - kept, least, 1.0)
        assert abs(after.seconds - expected) <= 2
