"""What is left of a job, from what its attempts have trained. Not here: what follows from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.domain.attempt import AttemptState
from app.domain.entities import Attempt, Contact, Job
from app.domain.job import JobState
from app.domain.job_spec import JobSpec, parse_spec
from app.orchestration.estimate_remaining import note_scaling, note_training, work_left

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


def test_what_was_trained_is_read_with_the_scaling_it_was_kept_with():
    spec = parse_spec({"run": "true", "nodes": "1..4"})
    one = job(committed_step=500)
    note_scaling(one, 0.03)
    note_training(one, spec, attempt(1, None), [contact(1, 500, 50.0)])
    note_scaling(one, 0.9)
    assert work_left(one, spec, None, []).steps_per_second == pytest.approx(10.0)


def estimated(hours: float, gpus: object = "V100", **estimate: object) -> JobSpec:
    whole = {"run": "true", "estimate": {"hours": hours, **estimate}}
    return parse_spec({**whole, "resources": {"gpu": gpus}})


def hours_left(spec: JobSpec, **fields: object) -> float:
    left = work_left(job(**{"total_steps": None, **fields}), spec, None, [])
    assert left.estimated
    assert left.seconds is not None
    return left.seconds / 3_600


def test_an_estimate_is_told_for_the_machines_that_the_spec_asks_for():
    assert hours_left(estimated(10)) == 10
    # An H100 is expected to be 5.5 times as fast; a quarter more is for the doubt.
    assert hours_left(estimated(10, "H100", gpu="V100")) == pytest.approx(2.6, abs=0.4)
    assert hours_left(estimated(2, "V100", gpu="H100")) == pytest.approx(12, abs=2)
    assert hours_left(estimated(10, "H100", gpu="H100:80GB")) == 10
    assert hours_left(estimated(10, ["V100", "H100"], gpu="V100")) == 10
    four = hours_left(parse_spec({**estimated(10).to_json(), "nodes": 4}), node_count=4)
    assert four == pytest.approx(10 / (4 / 1.09))


def test_progress_without_a_total_is_taken_off_the_estimate():
    spec = estimated(10)
    trained = {"trained_steps": 1_200, "trained_seconds": 4 * 3_600.0}
    # 1,200 steps took four hours, of which 900 count: a third was lost again.
    assert hours_left(spec, committed_step=900, **trained) == pytest.approx(7)
    assert hours_left(spec, committed_step=9_000, **trained) == pytest.approx(1), "the floor"
    # Where several kinds are accepted it may have been made on the slowest of them.
    several = estimated(10, ["V100", "H100"], gpu="H100")
    assert 9 < hours_left(several, committed_step=900, **trained) < 9.7


@pytest.mark.parametrize(("saved", "hours"), [(None, 10.0), (3_600.0, 9.0)])
def test_a_command_that_tells_no_steps_counts_its_time_up_to_what_it_saved(
    saved: float | None, hours: float
):
    trains = attempt(1, None)
    if saved is not None:
        trains.committed_step, trains.committed_at = 5, NOW + timedelta(seconds=saved)
    heard = contact(1, 0, 7_200.0)
    heard.step = heard.step_at = None
    one = job(total_steps=None, committed_step=trains.committed_step)
    left = work_left(one, estimated(10), trains, [heard])
    assert left.seconds == hours * 3_600
