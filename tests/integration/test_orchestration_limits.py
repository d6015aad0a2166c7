"""Limits on real rows: budgets, deadlines, waits and pauses at every point of a job's life."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from app.domain.job import JobState
from app.orchestration.controller_frame import run_controller
from app.orchestration.watch_deadlines import WatchDeadlines
from app.ports.cloud_provider import ProviderError, RefusalKind
from tests.support.money_story import MoneyStory
from tests.support.orchestration_story import ON_DEMAND_A, ZONE_A, Story
from trainer.protocol.agent_report import FactKind


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return Story(engine, tmp_path / "store")


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
