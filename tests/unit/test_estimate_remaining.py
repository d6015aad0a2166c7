"""What is left of a job, from what its attempts have trained. Not here: what follows from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.domain.attempt import AttemptState
from app.domain.entities import Attempt, Contact, Job
from app.domain.job import JobState
from app.domain.job_spec import JobSpec
from app.orchestration.estimate_remaining import note_training, work_left

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SPEC = JobSpec.model_validate({"run": "true"})


def job(**fields: object) -> Job:
    known: dict[str, object] = {
        "id": UUID(int=1),
        "project_id": UUID(int=2),
        "name": "rate",
        "spec": {},
        "spec_digest": "",
        "state": JobState.RUNNING,
        "priority": 50,
        "node_count": 1,
        "submitted_at": NOW,
        "updated_at": NOW,
        "queue_rank_at": NOW,
        "capacity_key": "",
        "budget_id": UUID(int=3),
        "total_steps": 1000,
    }
    return Job(**{**known, **fields})  # type: ignore[arg-type]


def attempt(fence: int, parent_step: int | None) -> Attempt:
    return Attempt(
        UUID(int=10 + fence),
        UUID(int=1),
        fence,
        AttemptState.RUNNING,
        1,
        NOW,
        NOW,
        NOW,
        parent_step=parent_step,
        trained_at=NOW,
    )


def contact(fence: int, step: int, seconds: float) -> Contact:
    at = NOW + timedelta(seconds=seconds)
    return Contact(UUID(int=4), "s", 1, at, "train", fence=fence, step=step, step_at=at)


def test_the_first_step_after_a_resume_is_not_the_pace_of_the_job():
    one = job(committed_step=444)
    note_training(one, SPEC, attempt(1, None), [contact(1, 444, 22.0)])
    left = work_left(one, SPEC, attempt(2, 444), [contact(2, 445, 10.0)])
    # 445 steps in 32 seconds; the one step in ten alone would say an hour and a half.
    assert left.steps_per_second == pytest.approx(445 / 32)
    assert left.seconds == 40


@pytest.mark.parametrize(("step", "seconds"), [(1, 60.0), (9, 299.0)])
def test_a_few_steps_of_a_first_attempt_are_no_rate_yet(step: int, seconds: float):
    left = work_left(job(), SPEC, attempt(1, None), [contact(1, step, seconds)])
    assert (left.steps_per_second, left.seconds) == (None, None)


@pytest.mark.parametrize(("step", "seconds"), [(1, 300.0), (10, 5.0)])
def test_enough_steps_or_enough_time_are_a_rate(step: int, seconds: float):
    left = work_left(job(), SPEC, attempt(1, None), [contact(1, step, seconds)])
    assert left.steps_per_second == pytest.approx(step / seconds)


def test_before_a_new_attempt_trains_the_pace_of_the_former_ones_holds():
    one = job(committed_step=500)
    note_training(one, SPEC, attempt(1, None), [contact(1, 500, 50.0)])
    assert work_left(one, SPEC, None, []).seconds == 50


def test_an_attempt_that_reported_no_step_leaves_the_pace_as_it_is():
    one = job(trained_steps=100, trained_seconds=10.0)
    note_training(one, SPEC, attempt(2, 100), [])
    assert (one.trained_steps, one.trained_seconds) == (100, 10.0)
