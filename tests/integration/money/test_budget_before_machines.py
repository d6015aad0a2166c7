"""Money is asked before machines are: for a claim, a replacement, another try, and on-demand."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, update

from app.domain.lifecycle.attempt import AttemptEvent
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import EndedBy, InstanceState
from app.domain.market.offer import Market, Pool
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.gang.end_attempt import end_attempt
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from app.storage.schema import tables
from app.storage.schema.money_tables import pools
from tests.support.api.agent_api import BY_PERSON
from tests.support.servers.table_rows import add_row
from tests.support.stories.orchestration_story import (
    FAR,
    ON_DEMAND_A,
    ON_DEMAND_PRICE,
    PRICES,
    ZONE_A,
    ZONE_B,
    Story,
)
from trainer.protocol.agent_report import FactKind

QUARTER = 4
"""A claim needs the first 15 minutes: a quarter of the price of an hour."""


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    """Machines that controllers rent, and not the money alone."""
    return Story(engine, tmp_path / "store")


def _paid(story: Story, usd: str | int, **spec: Any) -> UUID:
    return story.submit(budget_usd=usd, estimate={"hours": 2.5, "gpu": "V100:1"}, **spec)


def _budget(story: Story, job_id: UUID) -> Any:
    return story.rows(tables.budgets, tables.budgets.c.job_id == job_id)[0]


def _leave(story: Story, job_id: UUID, microusd: int) -> None:
    """So much is left of the job's budget."""
    story.set(tables.budgets, _budget(story, job_id).id, cap_microusd=microusd, spent_microusd=0)


def _bids(story: Story, job_id: UUID) -> list[Pool]:
    launch = story.launches(job_id)[-1]
    return [Pool.parse(bid["pool"]) for bid in launch.bids]


def _told(story: Story, job_id: UUID) -> list[str]:
    events = tables.events
    return [row.message for row in story.rows(events, events.c.job_id == job_id)]


def _notice(story: Story, instance_id: UUID) -> None:
    story.tell(instance_id, FactKind.NOTICE, seconds_left=120.0, action="terminate", source="t")


def _take(story: Story, instance_id: UUID) -> None:
    machine_id = story.instance(instance_id).provider_instance_id
    story.cloud.end(machine_id, EndedBy.CLOUD_INTERRUPTION)


# --- a claim --------------------------------------------------------------------------------------


def _cap_project(story: Story, budget_id: UUID, cap: int) -> None:
    add_row(
        story.engine, tables.budgets, id=budget_id, project_id=story.project_id, job_id=None,
        cap_microusd=cap, spent_microusd=0, reserved_microusd=0,
    )  # fmt: skip


def test_a_claim_reserves_for_the_dearest_pool_that_its_launch_may_end_in(story: Story) -> None:
    job_id = _paid(story, 5)
    story.run()
    assert _bids(story, job_id) == [ZONE_A, ZONE_B]
    assert _budget(story, job_id).reserved_microusd == PRICES[ZONE_B] // QUARTER


def test_a_pool_that_the_budget_does_not_bear_is_not_bid_on(story: Story) -> None:
    job_id = _paid(story, "0.25")
    story.run()
    assert _bids(story, job_id) == [ZONE_A]
    assert _budget(story, job_id).reserved_microusd == PRICES[ZONE_A] // QUARTER


def test_a_claim_that_bears_no_pool_says_what_the_cheapest_would_cost(story: Story) -> None:
    job_id = _paid(story, "0.24")
    story.run()
    assert story.job(job_id).state == "paused"
    assert story.launches(job_id) == []
    assert "the first 15 minutes would cost $0.25" in _told(story, job_id)[-1]


def test_a_forming_gang_is_not_tried_in_a_pool_that_the_budget_does_not_bear(story: Story) -> None:
    job_id = _paid(story, "0.25")
    story.cloud.room = {ZONE_A: 0}
    story.run()
    assert len(story.launches(job_id)) == 1
    assert story.job(job_id).state == "paused"
    assert any("Over the budget of $0.25" in line for line in _told(story, job_id))
    assert story.cloud.running() == []


# --- a replacement --------------------------------------------------------------------------------


def test_a_replacement_beyond_the_budget_is_not_asked_for_and_the_job_pauses(
    story: Story,
) -> None:
    job_id = _paid(story, 5)
    story.train(job_id)
    (only,) = story.members(job_id)
    _leave(story, job_id, PRICES[ZONE_A] // QUARTER)
    _notice(story, only)
    job = story.job(job_id)
    assert (job.state, job.stop_cause) == ("stopping", "budget")
    assert len(story.launches(job_id)) == 1
    assert any("Over the budget" in line for line in _told(story, job_id))
    assert story.attempt(job_id).state == "draining"
    story.checkpoint(only, 1, 40)
    story.tell(only, FactKind.TRAINER_ENDED, outcome="drained", exit_code=75, step=40)
    assert story.job(job_id).state == "paused"
    assert len(story.launches(job_id)) == 1


def test_the_projects_budget_counts_for_a_replacement_too(story: Story) -> None:
    job_id = _paid(story, 50)
    story.train(job_id)
    (only,) = story.members(job_id)
    _cap_project(story, story.runtime.entropy.new_id(), PRICES[ZONE_A] // QUARTER)
    _notice(story, only)
    assert story.job(job_id).stop_cause == "budget"
    assert len(story.launches(job_id)) == 1
    assert any("The project's budget: Over the budget" in one for one in _told(story, job_id))


def test_a_replacement_is_reserved_for_when_it_is_asked_for(story: Story) -> None:
    job_id = _paid(story, 50)
    story.train(job_id)
    (only,) = story.members(job_id)
    before = _budget(story, job_id).reserved_microusd
    _notice(story, only)
    assert len(story.launches(job_id)) == 2
    assert story.job(job_id).state == "running"
    assert _budget(story, job_id).reserved_microusd > before


def test_a_budget_that_another_worker_holds_is_read_and_not_waited_for(story: Story) -> None:
    job_id = _paid(story, 5)
    story.train(job_id)
    (only,) = story.members(job_id)
    _leave(story, job_id, PRICES[ZONE_A] // QUARTER)
    with story.engine.begin() as other:
        held = tables.budgets.c.job_id == job_id
        other.execute(update(tables.budgets).where(held).values(reserved_microusd=0))
        _notice(story, only)
    assert story.job(job_id).stop_cause == "budget"
    assert len(story.launches(job_id)) == 1


def test_what_a_job_asks_for_while_the_projects_budget_is_held_counts_for_its_other_jobs(
    story: Story,
) -> None:
    first = _paid(story, 50)
    story.train(first)
    (only,) = story.members(first)
    project_budget = story.runtime.entropy.new_id()
    _cap_project(story, project_budget, 10**9)
    before = _budget(story, first).reserved_microusd
    with story.engine.begin() as other:
        held = tables.budgets.c.id == project_budget
        other.execute(update(tables.budgets).where(held).values(spent_microusd=0))
        _notice(story, only)
    assert len(story.launches(first)) == 2
    # Room for the first job's machine and for what a claim needs, but not for a replacement too.
    story.set(tables.budgets, project_budget, cap_microusd=before + PRICES[ZONE_A] // QUARTER)
    second = _paid(story, 5)
    run_controller(story.runtime, ClaimJobs(story.runtime))
    assert story.launches(second) == []
    assert story.job(second).state == "paused"


# --- on-demand before a deadline ------------------------------------------------------------------


@pytest.mark.parametrize("enough", [True, False])
def test_on_demand_machines_are_asked_for_only_within_the_budget(
    story: Story, enough: bool
) -> None:
    deadline = story.time + timedelta(hours=3)
    job_id = _paid(story, 50, deadline=deadline.isoformat(), market="auto")
    story.train(job_id)
    _leave(story, job_id, ON_DEMAND_PRICE // QUARTER * (2 if enough else 1))
    run_controller(story.runtime, WatchDeadlines(story.runtime))
    job = story.job(job_id)
    assert job.market_mode == "on_demand"
    assert len(story.launches(job_id)) == (2 if enough else 1)
    assert job.stop_cause == (None if enough else "budget")


# --- pools that rest ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "verdict", "rests"),
    [(EndReason.CONTACT_LOST, AttemptEvent.VERDICT_LOST, {ZONE_A})],
)
def test_only_the_pool_that_failed_rests(
    story: Story, reason: EndReason, verdict: AttemptEvent, rests: set[Pool]
) -> None:
    """A machine that is on its way elsewhere has done nothing wrong."""
    job_id, [only] = story.training()
    begin, entropy = story.runtime.begin, story.runtime.entropy
    with begin() as uow, open_job(uow, entropy, job_id, BY_PERSON) as aggregate:
        assert aggregate is not None
        assert aggregate.attempt is not None
        elsewhere = Instance(
            id=entropy.new_id(), job_id=job_id, launch_id=None, provider="local",
            market=Market.ON_DEMAND, state=InstanceState.LAUNCHED, origin="launch",
            requested_at=story.time, updated_at=story.time, pool=ON_DEMAND_A,
            provider_instance_id="i-elsewhere", launched_at=story.time,
            launched_source="provider_record",
            register_until_at=story.time + timedelta(seconds=600),
        )  # fmt: skip
        uow.instances.add(elsewhere)
        aggregate.adopt(elsewhere)
        aggregate.instances[only].unreachable_at = story.time
        aggregate.move_attempt(aggregate.attempt, AttemptEvent.MEMBER_GONE, "It is gone.")
        aggregate.move_attempt(aggregate.attempt, verdict, "It is lost.")
        end_attempt(aggregate, reason, "It is lost.", story.runtime.limits)
    resting = {row.pool for row in story.rows(pools) if row.cool_until_at is not None}
    assert resting == rests
    assert FAR not in resting


def test_the_pool_of_a_machine_that_came_in_time_does_not_rest(story: Story) -> None:
    job_id = story.submit(nodes=2)
    story.run()
    came, missing = story.members(job_id)
    story.register(came)
    begin, entropy = story.runtime.begin, story.runtime.entropy
    with begin() as uow, open_job(uow, entropy, job_id, BY_PERSON) as aggregate:
        assert aggregate is not None
        assert aggregate.attempt is not None
        aggregate.instances[came].pool = ZONE_B
        assert aggregate.instances[missing].pool == ZONE_A
        aggregate.move_attempt(aggregate.attempt, AttemptEvent.PROVISIONING_EXPIRED, "Too late.")
        end_attempt(aggregate, EndReason.REGISTRATION_TIMEOUT, "Too late.", story.runtime.limits)
    assert {row.pool for row in story.rows(pools) if row.cool_until_at is not None} == {ZONE_A}
