"""A clock that runs ahead by days and comes back does not silence the looks that it has set."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.frame.limits import Limits
from app.orchestration.placement.refresh_hazards import RefreshHazards
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.orchestration.transitions.evaluate_moves import EvaluateMoves
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from app.storage.schema import tables
from tests.support.stories.orchestration_story import FAR, ZONE_A, ZONE_B, Story

AHEAD = timedelta(days=2)


@pytest.mark.full
def test_a_deadline_is_watched_after_the_clock_went_back(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    watch = WatchDeadlines(story.runtime)
    job_id = story.submit(deadline="4d", market="auto", estimate={"hours": 40.0})
    story.train(job_id)
    run_controller(story.runtime, watch)
    with story.runtime.begin() as uow:
        looked = story.job(job_id).slack_look_at
        assert watch.next_due(uow) == looked
    story.time += AHEAD
    story.quote()
    run_controller(story.runtime, watch)
    story.time -= AHEAD
    assert story.job(job_id).slack_look_at > story.time + AHEAD
    # Ten steps of a thousand in four hours: nothing ends this in four days.
    (machine,) = story.members(job_id)
    story.tell(machine, at_step=1)
    story.sleep(4 * 3_600)
    story.quote()
    story.tell(machine, at_step=10)
    with story.runtime.begin() as uow:
        due = watch.next_due(uow)
    assert due is not None
    assert due < story.time
    run_controller(story.runtime, watch)
    assert story.job(job_id).slower_since_at == story.time, "it is looked at again to be sure"
    story.sleep(story.runtime.limits.slower_pace_seconds)
    run_controller(story.runtime, watch)
    job = story.job(job_id)
    assert job.market_mode == "on_demand"
    assert job.slack_look_at <= story.time + timedelta(seconds=60)
    assert "the clock went back" in caplog.text


def test_a_choice_is_weighed_after_the_clock_went_back(story: Story) -> None:
    """Both clocks: the one that looks are noted by in memory, too."""
    watch = WatchDeadlines(story.runtime)
    job_id = story.submit(deadline="4d", market="auto", estimate={"hours": 40.0})
    story.train(job_id)
    story.time += AHEAD
    story.quote()
    run_controller(story.runtime, watch)
    story.time -= AHEAD
    story.sleep(60)
    with story.runtime.begin() as uow:
        (due,) = watch.select(uow, 10)
    assert due.promise is not None
    run_controller(story.runtime, watch)
    story.sleep(60)
    with story.runtime.begin() as uow:
        (due,) = watch.select(uow, 10)
    assert due.promise is None, "not before its next tick"


def test_moves_and_losses_are_looked_at_after_the_clock_went_back(story: Story) -> None:
    job_id = story.submit(market="spot", estimate={"hours": 30})
    story.train(job_id)
    far = story.time + AHEAD
    story.set(tables.jobs, job_id, move_look_at=far)
    story.set(tables.attempts, story.attempt(job_id).id, outlook_at=far)
    for controller in (EvaluateMoves(story.runtime), RefreshHazards(story.runtime)):
        run_controller(story.runtime, controller)
    soon = story.time + timedelta(seconds=Limits().migration_look_seconds)
    assert story.job(job_id).move_look_at <= soon
    assert story.attempt(job_id).outlook_at <= soon


def test_a_waiting_job_is_claimed_after_the_clock_went_back(story: Story) -> None:
    claims = ClaimJobs(story.runtime)
    job_id = story.submit(market="spot")
    far = story.time + timedelta(hours=3)
    story.set(tables.jobs, job_id, claimable_at=far, wait_reason="none fits", updated_at=far)
    story.quote(dict.fromkeys((ZONE_A, ZONE_B, FAR), 100_000), available=0)
    with story.runtime.begin() as uow:
        due = claims.next_due(uow)
    assert due is not None
    assert due < story.time
    run_controller(story.runtime, claims)
    assert story.job(job_id).claimable_at <= story.time + timedelta(seconds=60), "looked at"
    story.quote({ZONE_A: 100_000}, available=10)
    story.sleep(60)
    run_controller(story.runtime, claims)
    assert story.job(job_id).state == "starting"
