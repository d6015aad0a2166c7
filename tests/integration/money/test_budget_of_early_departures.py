"""A job that left spot before it had to goes back where no budget bears what it lacks on-demand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.instance import EndedBy
from app.orchestration.money.enforce_budgets import EnforceBudgets
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from app.storage.schema import tables
from tests.support.servers.table_rows import add_row
from tests.support.stories.launch_limits_story import budget_of
from tests.support.stories.market_choice_story import QUICK_RETURNS
from tests.support.stories.orchestration_story import FAR, ON_DEMAND_A, ZONE_A, ZONE_B, Story

SPOT = (ZONE_A, ZONE_B, FAR)
ON_DEMAND_B = replace(ON_DEMAND_A, zone="us-west-2b")
SPEC = {"deadline": "6h", "market": "auto", "estimate": {"hours": 5.0, "nodes": 2}}
FULL = 2_500_000
CAP = 60_000_000


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    """Spot has no machines, and costs hardly less than on-demand: nobody waits for it."""
    made = Story(engine, tmp_path / "store", QUICK_RETURNS)
    controllers = (WatchDeadlines(made.runtime), EnforceBudgets(made.runtime))
    made.controllers = (*made.controllers, *controllers)
    made.quote(dict.fromkeys(SPOT, 2_200_000), available=0)
    made.quote({ON_DEMAND_A: FULL})
    return made


def leave_of_the_project(story: Story, microusd: int) -> None:
    """Another job's machines may need all but so much of the project's budget."""
    other = story.submit(name="other", market="spot")
    story.stop(other)
    add_row(
        story.engine, tables.budgets, id=story.runtime.entropy.new_id(), job_id=None,
        project_id=story.project_id, cap_microusd=CAP, spent_microusd=0, reserved_microusd=0,
    )  # fmt: skip
    story.set(tables.budgets, story.job(other).budget_id, reserved_microusd=CAP - microusd)


def goes_on_with_spot(story: Story, job_id: UUID) -> None:
    """It is not stopped, on-demand machines are gone, and spot is taken once there is some."""
    job = story.job(job_id)
    assert (job.state in ("queued", "recovering"), job.stop_cause) == (True, None), job.state
    assert job.market_mode == "spot"
    assert story.living(job_id) == []
    story.quote(dict.fromkeys(SPOT, 100_000), available=10)
    story.pass_time(90, every=10)
    assert {row.market for row in story.living(job_id)} == {"spot"}
    assert story.job(job_id).stop_cause is None


def test_a_departure_is_given_up_before_both_gangs_use_up_the_budget(story: Story) -> None:
    """What is held for the spot machine is $3.25, for both $3.39."""
    story.quote(dict.fromkeys(SPOT, 200_000), available=10)
    job_id = story.submit(**{**SPEC, "deadline": "8h", "estimate": {"hours": 5.0}})
    story.pass_time(60, every=30)
    story.train(job_id)
    story.quote(dict.fromkeys(SPOT, 60_000_000), available=0)
    story.pass_time(200, every=10)
    assert sorted(row.market for row in story.living(job_id)) == ["on_demand", "spot"]
    leave_of_the_project(story, 5_000_000)
    story.pass_time(40, every=10)
    assert story.job(job_id).market_mode == "spot"
    (other,) = story.rows(tables.budgets, tables.budgets.c.reserved_microusd == CAP - 5_000_000)
    story.set(tables.budgets, other.id, reserved_microusd=CAP - 3_300_000)
    story.pass_time(60, every=10)
    assert [row.market for row in story.living(job_id)] == ["spot"]
    assert (story.job(job_id).state, story.job(job_id).stop_cause) == ("running", None)


def test_a_departure_that_the_budget_would_not_bear_for_long_is_not_begun(story: Story) -> None:
    story.quote(dict.fromkeys(SPOT, 200_000), available=10)
    job_id = story.submit(**{**SPEC, "deadline": "8h", "estimate": {"hours": 5.0}})
    story.pass_time(60, every=30)
    story.train(job_id)
    leave_of_the_project(story, 5_000_000)
    story.quote(dict.fromkeys(SPOT, 60_000_000), available=0)
    story.pass_time(200, every=10)
    assert [row.market for row in story.living(job_id)] == ["spot"]
    assert len(story.launches(job_id)) == 1


@pytest.mark.parametrize("days", [0, 30])
def test_a_departure_needs_of_the_month_what_of_the_work_falls_into_it(
    story: Story, days: int
) -> None:
    """On-demand, five hours cost $12.50; of them three are left of a month that ends tonight."""
    story.sleep(days * 86_400 + (9 * 3_600 if days else 0))
    story.quote({ON_DEMAND_A: FULL})
    budget_of(story, 10_000_000)
    story.quote(dict.fromkeys(SPOT, 200_000), available=10)
    job_id = story.submit(**{**SPEC, "deadline": "8h", "estimate": {"hours": 5.0}})
    story.pass_time(60, every=30)
    story.train(job_id)
    story.quote(dict.fromkeys(SPOT, 60_000_000), available=0)
    story.pass_time(200, every=10)
    markets = sorted(row.market for row in story.living(job_id))
    assert markets == (["on_demand", "spot"] if days else ["spot"])


def test_a_return_is_given_up_before_both_gangs_use_up_the_budget(story: Story) -> None:
    """What is held for the on-demand machine is $0.14, for both $0.15."""
    job_id = story.submit(**{**SPEC, "estimate": {"hours": 5.0}})
    story.pass_time(60, every=30)
    story.train(job_id)
    story.tell(story.members(job_id)[0], at_step=1)
    story.quote(dict.fromkeys(SPOT, 200_000), available=10)
    story.pass_time(160, every=20)
    assert sorted(row.market for row in story.living(job_id)) == ["on_demand", "spot"]
    leave_of_the_project(story, 200_000)
    story.pass_time(40, every=10)
    assert [row.market for row in story.living(job_id)] == ["on_demand"]
    assert (story.job(job_id).state, story.job(job_id).market_mode) == ("running", "on_demand")
    (newest,) = story.rows(
        tables.placement_decisions,
        tables.placement_decisions.c.document["reason"].astext == "spot_not_had",
    )
    assert "does not cover both sets of machines" in newest.document["sentence"]


def test_a_second_asking_that_no_budget_bears_goes_back_to_spot(story: Story) -> None:
    """The first pool refuses, and the next one is too dear for what the project has left."""
    story.quote({ON_DEMAND_B: 10 * FULL})
    story.cloud.room = {ON_DEMAND_A: 0}
    leave_of_the_project(story, 2_000_000)
    job_id = story.submit(nodes=2, **SPEC)
    story.pass_time(120, every=10)
    assert [len(launch.bids) for launch in story.launches(job_id)] == [1]
    goes_on_with_spot(story, job_id)


def test_a_lost_machine_that_no_budget_replaces_sends_the_gang_back_to_spot(story: Story) -> None:
    job_id = story.submit(nodes=2, **SPEC)
    story.train(job_id)
    assert story.job(job_id).market_mode == "on_demand"
    leave_of_the_project(story, 700_000)
    lost, _ = story.members(job_id)
    story.cloud.end(story.instance(lost).provider_instance_id, EndedBy.CLOUD_FAILURE)
    story.sweep()
    story.pass_time(400, every=10)
    (told,) = story.rows(
        tables.placement_decisions,
        tables.placement_decisions.c.document["reason"].astext == "budget",
    )
    assert "free in" in told.document["unblock"]["sentence"]
    goes_on_with_spot(story, job_id)
