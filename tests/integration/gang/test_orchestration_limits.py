"""Limits on real rows: budgets, deadlines, waits and pauses at every point of a job's life."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.job import JobState, StopCause
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.gang.stop_job import resume
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.storage.schema import tables
from tests.support.api.agent_api import BY_PERSON
from tests.support.stories.money_story import MoneyStory
from tests.support.stories.orchestration_story import ON_DEMAND_A, ZONE_A, Story
from trainer.protocol.agent_report import FactKind


def test_a_job_that_waits_with_machines_over_its_budget_gives_them_back(engine: Engine) -> None:
    money = MoneyStory(engine)
    money.quote()
    job = money.job(money.project(), cap=200_000, state=JobState.RECOVERING)
    money.set_job(job, claimable_at=money.after(600), hold_until_at=money.after(600))
    machine = money.machine(job, 0)
    money.accrue(60)
    assert run_controller(money.runtime, money.enforcing) == 1
    assert money.fresh(job).state is JobState.PAUSED
    with money.begin() as uow:
        released = uow.instances.get(machine.id)
        assert released is not None
        assert released.terminate_at == money.time
    assert run_controller(money.runtime, money.enforcing) == 0


def test_a_job_that_waits_without_machines_is_left_to_its_claim(engine: Engine) -> None:
    """What was reserved for machines that never came is not spent."""
    money = MoneyStory(engine)
    money.quote()
    job = money.job(money.project(), cap=100, state=JobState.QUEUED)
    with money.begin() as uow:
        for budget in uow.money.lock_budgets(job.project_id, job.budget_id):
            budget.reserved_microusd = 100
    run_controller(money.runtime, money.enforcing)
    assert money.fresh(job).state is JobState.QUEUED
    assert run_controller(money.runtime, money.enforcing) == 0


# --- a pause: neither waiting nor running --------------------------------------------------------


def _resume(story: Story, job_id: Any) -> None:
    begin, entropy = story.runtime.begin, story.runtime.entropy
    with begin() as uow, open_job(uow, entropy, job_id, BY_PERSON) as aggregate:
        assert aggregate is not None
        resume(aggregate, None)


def test_the_time_paused_is_not_time_waited(story: Story) -> None:
    story.quote(available=0)  # nothing can be had
    job_id = story.submit(max_wait="10m")
    story.pass_time(300)
    story.stop(job_id, StopCause.PAUSE)
    story.pass_time(3_600, every=600)
    assert story.job(job_id).state == "paused"
    _resume(story, job_id)
    story.pass_time(290)
    assert story.job(job_id).state == "queued", "it has waited for 9 min 50 s"
    story.pass_time(15)
    job = story.job(job_id)
    assert (job.state, job.end_reason) == ("failed", "max_wait_reached")


def test_the_time_paused_is_not_time_run(story: Story) -> None:
    job_id, (machine,) = story.training(max_duration="20m")
    story.sleep(600)
    story.stop(job_id, StopCause.PAUSE)
    story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    paused_at = story.time
    story.pass_time(3_600, every=600)
    before = story.job(job_id)
    assert before.state == "paused"
    _resume(story, job_id)
    after = story.job(job_id)
    assert after.run_limit_at - before.run_limit_at == story.time - paused_at
    assert after.paused_at is None
    story.train(job_id, 2)


# --- a deadline on the edge ----------------------------------------------------------------------


def test_a_deadline_on_the_edge_is_called_unsafe_once(story: Story) -> None:
    """What is left is an estimate; on the edge it says another thing at every look."""
    job_id = story.submit(deadline="10h", market="spot", estimate={"hours": 1.0, "gpu": "V100:1"})
    story.train(job_id)
    watch = WatchDeadlines(story.runtime)

    def look_with(room_seconds: float) -> Any:
        """A look at which just so much room is left before the last safe moment."""
        story.sleep(30)
        reserves = sum((60, 300, 1_800))  # restore, boot, on-demand machines
        deadline = story.time + timedelta(seconds=3_600 + reserves + room_seconds)
        story.set(tables.jobs, job_id, deadline_at=deadline)
        assert run_controller(story.runtime, watch) == 1
        return story.job(job_id).unsafe_since_at

    assert look_with(60) is None
    since = look_with(-60)
    assert since is not None
    for turn in range(6):
        assert look_with(-60 if turn % 2 else 60) == since
    assert len(story.rows(tables.events, tables.events.c.kind == "deadline_unsafe")) == 1
    assert look_with(900) is None, "with room to spare it is safe again"
    assert look_with(-60) is not None
    assert len(story.rows(tables.events, tables.events.c.kind == "deadline_unsafe")) == 2


def test_nothing_was_unsafe_before_it_was_handed_in(story: Story) -> None:
    """A deadline too near for a move to on-demand: its last safe moment was hours ago."""
    job_id = story.submit(deadline="3h", market="spot", estimate={"hours": 2.9, "gpu": "V100:1"})
    story.train(job_id)
    story.sleep(30)
    run_controller(story.runtime, WatchDeadlines(story.runtime))
    job = story.job(job_id)
    assert job.last_safe_at < job.submitted_at
    assert job.unsafe_since_at == job.submitted_at


# --- a deadline, and on-demand machines that cannot be had ----------------------------------------


def _past_the_last_safe_moment(story: Story) -> Any:
    deadline = story.time + timedelta(hours=3)
    job_id = story.submit(
        deadline=deadline.isoformat(), market="auto", estimate={"hours": 2.5, "gpu": "V100:1"}
    )
    story.train(job_id)
    run_controller(story.runtime, WatchDeadlines(story.runtime))
    assert story.job(job_id).market_mode == "on_demand"
    return job_id


@pytest.mark.parametrize("kind", [RefusalKind.DENIED, RefusalKind.REJECTED, RefusalKind.QUOTA])
def test_a_spot_attempt_goes_on_when_on_demand_machines_are_refused(
    story: Story, kind: RefusalKind
) -> None:
    job_id = _past_the_last_safe_moment(story)
    for _ in range(4):
        story.cloud.failures.append(ProviderError(kind, "not for you"))
        story.pass_time(5)
    assert story.job(job_id).state == "running"
    assert story.attempt(job_id).state == "running"


def test_the_spot_attempt_yields_when_on_demand_machines_have_registered(story: Story) -> None:
    job_id = _past_the_last_safe_moment(story)
    story.run()
    (spot,) = story.members(job_id)
    (bought,) = (one for one in story.living(job_id) if one.market == "on_demand")
    assert bought.pool == ON_DEMAND_A
    assert story.attempt(job_id).state == "running"
    story.register(bought.id)
    story.sleep(60)
    run_controller(story.runtime, WatchDeadlines(story.runtime))
    assert story.attempt(job_id).state == "draining"
    story.tell(spot, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    story.pass_time(60)
    assert story.attempt(job_id).state == "yielded"
    assert story.members(job_id, 2) == [bought.id]
    assert story.cloud.running() == [bought.provider_instance_id]
    assert story.instance(spot).pool == ZONE_A
