"""What is left of a job, from what its attempts have trained. Not here: what follows from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Contact, Job
from app.domain.lifecycle.job import JobState
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.throughput.start_up import StartUp
from app.orchestration.estimates.attempt_measures import keep_pace, pace_of, start_up_of
from app.orchestration.estimates.estimate_remaining import (
    WorkLeft,
    keep_progress,
    record_scaling,
    record_training,
    work_left,
)

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


def contact(
    fence: int, first: int, last: int, stepping: float, start_up: float = 90.0, **more: object
) -> Contact:
    """What was heard of a machine whose agent measured so much."""
    known = Contact(UUID(int=4), "s", 1, NOW, "train", fence=fence, step=last, step_at=NOW)
    measured = {"first_step": first, "last_step": last}
    fields = {**measured, "stepping_seconds": stepping, "start_up_seconds": start_up, **more}
    return replace(known, **fields)  # type: ignore[arg-type]


def left_at(
    seconds: float, one: Job, spec: JobSpec, live: Attempt | None, heard: list[Contact]
) -> WorkLeft:
    return work_left(one, spec, live, heard, NOW + timedelta(seconds=seconds))


def end(one: Job, spec: JobSpec, live: Attempt, heard: list[Contact]) -> None:
    """An attempt ends as the control plane ends it."""
    keep_pace(live, [pace_of(of) for of in heard])
    record_training(one, spec, live)
    one.committed_step = max(one.committed_step, live.committed_step)


def test_a_slow_start_is_no_slow_job():
    # 90 s of start, then a step a second; counted from the start it would be 0.12 a second.
    left = left_at(102, job(), SPEC, attempt(1, None), [contact(1, 1, 13, 12.0)])
    assert left.steps_per_second == pytest.approx(1.0)
    assert left.seconds == 987
    assert left.start_seconds == 0


def test_starts_of_several_attempts_do_not_slow_the_job_down():
    one, parent = job(), None
    for fence in (1, 2, 3):
        live = attempt(fence, parent)
        live.committed_step = 100 * fence
        begun = (parent or 0) + 1
        end(one, SPEC, live, [contact(fence, begun, 100 * fence, 100.0 * fence - begun)])
        parent = 100 * fence
    assert (one.trained_steps, one.trained_seconds) == (297, 297.0)
    assert left_at(0, one, SPEC, None, []).steps_per_second == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("steps", "seconds"), [(0, 0.0), (1, 400.0), (2, 299.0), (9, 299.0), (10, 0.0)]
)
def test_a_few_steps_after_the_first_are_no_rate_yet(steps: int, seconds: float):
    heard = [contact(1, 1, 1 + steps, seconds)]
    left = left_at(500, job(), SPEC, attempt(1, None), heard)
    assert (left.steps_per_second, left.seconds) == (None, None)


@pytest.mark.parametrize(("steps", "seconds"), [(2, 300.0), (10, 5.0)])
def test_enough_steps_or_enough_time_are_a_rate(steps: int, seconds: float):
    heard = [contact(1, 1, 1 + steps, seconds)]
    left = left_at(500, job(), SPEC, attempt(1, None), heard)
    assert left.steps_per_second == pytest.approx(steps / seconds)


def test_an_agent_that_measures_nothing_gives_no_rate():
    heard = Contact(UUID(int=4), "s", 1, NOW, "train", fence=1, step=400, step_at=NOW)
    left = left_at(100, job(), SPEC, attempt(1, None), [heard])
    assert (left.step, left.steps_per_second, left.seconds) == (400, None, None)
    assert left.start_seconds == 0, "it steps, whatever is known of it"


def test_a_command_with_a_count_of_its_own_is_not_credited_with_what_it_did_not_do():
    heard = [contact(1, 9_000, 9_060, 60.0)]
    left = left_at(150, job(total_steps=10_000), SPEC, attempt(1, None), heard)
    assert left.steps_per_second == pytest.approx(1.0)
    assert left.seconds == 940
    one = job(total_steps=None)
    left = left_at(150, one, estimated(1), attempt(1, None), heard)
    assert left.seconds == 3_600 - 61, "nor is that taken off the estimate"
    saved = job(total_steps=None, committed_step=9_060)
    left = left_at(150, saved, estimated(1), attempt(1, None), heard)
    assert left.seconds == 3_600 - 61, "nor once it is saved"
    live = attempt(1, None)
    live.committed_step = 9_060
    end(one, estimated(1), live, heard)
    assert left_at(0, one, estimated(1), None, []).seconds == 3_600 - 61


@pytest.mark.parametrize("step", [1_001, 10**11, 2**62])
def test_a_step_beyond_the_total_is_not_the_end(step: int):
    heard = [contact(1, 1, 400, 399.0, step=step)]
    left = left_at(500, job(), SPEC, attempt(1, None), heard)
    assert left.step == 399
    assert left.seconds == 601


def test_an_estimate_weighs_as_a_minute_of_stepping():
    spec, live = estimated(0.25), attempt(1, None)
    slow = left_at(200, job(total_steps=900), spec, live, [contact(1, 1, 11, 60.0)])
    # 10 steps in 60 s, and 60 in the 60 s of the estimate: 70 in 120.
    assert slow.seconds == pytest.approx(889 / (70 / 120), abs=1)
    assert slow.steps_per_second == pytest.approx(10 / 60), "as it was measured"
    assert not slow.estimated
    assert slow.estimate_seconds == 889


def test_a_long_estimate_weighs_as_two_hundredths_of_itself():
    spec = estimated(10)
    heard = [contact(1, 1, 721, 720.0)]
    left = left_at(900, job(total_steps=36_000), spec, attempt(1, None), heard)
    assert left.seconds == pytest.approx(36_000 - 721, abs=1)
    twice = [contact(1, 1, 361, 720.0)]
    left = left_at(900, job(total_steps=36_000), spec, attempt(1, None), twice)
    assert left.seconds == pytest.approx((36_000 - 361) / 0.75, abs=1)


def test_before_a_new_attempt_trains_the_pace_of_the_former_ones_holds():
    one, live = job(), attempt(1, None)
    live.committed_step = 501
    end(one, SPEC, live, [contact(1, 1, 501, 50.0)])
    assert left_at(0, one, SPEC, None, []).seconds == 50


def test_an_attempt_that_was_not_measured_leaves_the_pace_as_it_is():
    one = job(trained_steps=100, trained_seconds=10.0)
    end(one, SPEC, attempt(2, 100), [])
    assert (one.trained_steps, one.trained_seconds) == (100, 10.0)


def test_what_was_trained_is_read_with_the_scaling_it_was_kept_with():
    spec = parse_spec({"run": "true", "nodes": "1..4"})
    one, live = job(committed_step=500), attempt(1, None)
    record_scaling(one, 0.03)
    end(one, spec, live, [contact(1, 1, 501, 50.0)])
    record_scaling(one, 0.9)
    assert left_at(0, one, spec, None, []).steps_per_second == pytest.approx(10.0)


def test_before_its_first_step_a_process_has_start_up_left():
    one = job(start_up_seconds=90.0, start_up_p95_seconds=120.0)
    assert left_at(0, one, SPEC, None, []).start_seconds == 90
    assert left_at(30, one, SPEC, attempt(1, None), []).start_seconds == 60
    assert left_at(400, one, SPEC, attempt(1, None), []).start_seconds == 100, "longer than usual"
    assert left_at(8, job(), SPEC, attempt(1, None), []).start_seconds == 10, "none is known"
    left = left_at(30, one, estimated(1), attempt(1, None), [])
    assert left.to_the_end == 3_660
    saved = attempt(1, None)
    saved.committed_step, saved.committed_at = 5, NOW
    assert left_at(30, one, SPEC, saved, []).start_seconds == 0
    drains = attempt(1, None)
    drains.state = AttemptState.DRAINING
    assert left_at(30, one, SPEC, drains, []).start_seconds == 90, "the next one starts anew"


def test_the_list_is_told_again_only_when_it_would_be_off():
    one, live, spec = job(), attempt(1, None), SPEC
    left = left_at(100, one, spec, live, [contact(1, 1, 101, 100.0)])
    assert keep_progress(one, left, NOW + timedelta(seconds=100))
    assert (one.steps_per_second, one.eta_from) == (1.0, "measured")
    assert one.eta_at == NOW + timedelta(seconds=100 + 899)
    left = left_at(110, one, spec, live, [contact(1, 1, 111, 110.0)])
    assert not keep_progress(one, left, NOW + timedelta(seconds=110))
    left = left_at(210, one, spec, live, [contact(1, 1, 111, 210.0)])
    assert keep_progress(one, left, NOW + timedelta(seconds=210))


def estimated(hours: float, gpus: object = "V100", **estimate: object) -> JobSpec:
    whole = {"run": "true", "estimate": {"hours": hours, **estimate}}
    return parse_spec({**whole, "resources": {"gpu": gpus}})


def hours_left(spec: JobSpec, **fields: object) -> float:
    left = left_at(0, job(**{"total_steps": None, **fields}), spec, None, [])
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


def stepless(fence: int, saved: float | None) -> tuple[Attempt, Contact]:
    """A command that tells no steps, and that saved last after so many seconds."""
    trains = attempt(fence, None)
    if saved is not None:
        trains.committed_step, trains.committed_at = 5, NOW + timedelta(seconds=saved)
    return trains, Contact(UUID(int=4), "s", 1, NOW, "train", fence=fence)


@pytest.mark.parametrize(("saved", "hours"), [(None, 10.0), (3_600.0, 9.0)])
def test_a_command_that_tells_no_steps_counts_its_time_up_to_what_it_saved(
    saved: float | None, hours: float
):
    trains, heard = stepless(1, saved)
    one = job(total_steps=None, committed_step=trains.committed_step)
    left = left_at(7_200, one, estimated(10), trains, [heard])
    assert left.seconds == hours * 3_600


def test_saved_time_is_kept_over_attempts_and_start_up_is_none_of_it():
    one = job(total_steps=None, start_up_seconds=600.0, start_up_p95_seconds=600.0)
    for fence, hours in ((1, 9.0), (2, 8.0), (3, 7.0)):
        trains, heard = stepless(fence, 4_200.0)
        before = left_at(9_000, one, estimated(10), trains, [heard]).seconds
        assert before == hours * 3_600
        end(one, estimated(10), trains, [heard])
        assert left_at(9_000, one, estimated(10), None, []).seconds == before, (
            "the end of an attempt takes nothing away that was saved"
        )


def test_a_start_up_that_an_attempts_saves_told_is_no_saved_time_either():
    """Before any attempt has ended, and with a usual start-up that is another's."""
    for usual in (None, 30.0):
        one = job(total_steps=None, start_up_seconds=usual)
        trains, heard = stepless(1, 4_200.0)
        trains.start_up_seconds = 600.0
        assert left_at(9_000, one, estimated(10), trains, [heard]).seconds == 9.0 * 3_600
        end(one, estimated(10), trains, [heard])
        assert one.saved_seconds == 3_600.0


@pytest.mark.parametrize("total", [None, 2_000])
@pytest.mark.parametrize("saved", [0, 300, 640])
def test_an_interruption_costs_no_more_than_what_was_not_saved(total: int | None, saved: int):
    spec = estimated(1)
    one, live = job(total_steps=total), attempt(1, None)
    live.committed_step = one.committed_step = saved
    heard = [contact(1, 1, 641, 1_280.0)]
    before = left_at(1_400, one, spec, live, heard)
    end(one, spec, live, heard)
    after = left_at(1_400, one, spec, None, [])
    assert before.seconds is not None
    assert after.seconds is not None
    rate = 0.5 if total is None else before.seconds and (2_000 - 641) / before.seconds
    assert after.seconds - before.seconds <= (641 - saved) / rate + 1


def test_a_start_that_was_only_ever_cut_off_is_planned_with_as_far_as_it_came() -> None:
    """Else a pool that takes machines before their first step would seem to make progress."""
    assert start_up_of(job(start_up_p95_seconds=900.0)) == StartUp(900.0, 900.0)
    known = job(start_up_seconds=60.0, start_up_p95_seconds=900.0)
    assert start_up_of(known) == StartUp(60.0, 900.0)
    assert start_up_of(job()) == StartUp()
