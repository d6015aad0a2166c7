"""Estimates told for other machines than the spec accepts: before, while and after a job trains."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.storage.schema import tables
from tests.support.stories.market_choice_story import market_choice_story
from tests.support.stories.orchestration_story import ON_DEMAND_A, ON_DEMAND_PRICE, Story

H100 = Hardware("H100", 1, 80, 26, 234)
FAST = Pool("local", "us-west-2", "us-west-2a", "a3-highgpu-1g", Market.SPOT)
FAST_ON_DEMAND = Pool("local", "us-west-2", "us-west-2a", "a3-highgpu-1g", Market.ON_DEMAND)
TWO = {"gpu": ["V100:1", "H100:1"]}
TEN_HOURS = {"hours": 10.0, "gpu": "V100"}


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    made = market_choice_story(engine, tmp_path / "store")
    quote_fast(made)
    return made


def quote_fast(story: Story) -> None:
    prices = {FAST: 900_000, FAST_ON_DEMAND: 12_000_000}
    offers = [
        Offer(pool, H100, price, 12_000_000, "ec2", story.time, "trace")
        for pool, price in prices.items()
    ]
    with story.runtime.begin() as uow:
        uow.offers.record(offers, [], story.time)


def is_safe(story: Story, job_id: UUID) -> bool:
    job = story.job(job_id)
    assert job.last_safe_at is not None
    room = job.last_safe_at - story.time
    safe = room > timedelta(minutes=30) and job.unsafe_since_at is None
    return safe and job.market_mode == Market.SPOT.value


@pytest.mark.parametrize(
    ("resources", "nodes", "estimate"),
    [
        ({"gpu": "H100"}, 1, TEN_HOURS),
        (TWO, 1, TEN_HOURS),
        ({"gpu": "V100:1"}, 4, {"hours": 10.0, "nodes": 1}),
    ],
)
def test_an_estimate_for_other_machines_holds_at_all_times(
    story: Story, resources: dict[str, Any], nodes: int, estimate: dict[str, Any]
) -> None:
    """Ten hours of one V100 are done in less than five on what the job gets."""
    job_id = story.submit(
        nodes=nodes, deadline="5h", market="auto", estimate=estimate, resources=resources
    )
    story.pass_time(70, every=35)
    assert is_safe(story, job_id), "before it trains"
    story.train(job_id)
    story.pass_time(70, every=35)
    assert is_safe(story, job_id), "while it trains"
    lost = story.members(job_id)[0]
    story.cloud.end(story.instance(lost).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.sweep()
    story.pass_time(160, every=40)
    assert story.attempt(job_id).state == "interrupted"
    assert is_safe(story, job_id), "after it trained"


def test_on_demand_machines_are_those_that_are_in_time(story: Story) -> None:
    """A V100's hour of work costs less by far, and its ten hours are too many."""
    story.quote({ON_DEMAND_A: ON_DEMAND_PRICE // 10})
    job_id = story.submit(deadline="5h", market="auto", estimate=TEN_HOURS, resources=TWO)
    story.train(job_id)
    story.pass_time(70, every=35)
    assert is_safe(story, job_id)
    at = story.job(job_id).last_safe_at
    story.sleep((at - story.time).total_seconds())
    quote_fast(story)
    story.quote({ON_DEMAND_A: ON_DEMAND_PRICE // 10})
    story.run()
    assert story.job(job_id).market_mode == "on_demand"
    asked = story.launches(job_id)[-1]
    assert [bid["pool"] for bid in asked.bids] == [FAST_ON_DEMAND.key]


@pytest.mark.parametrize(("on_deadline", "state"), [("finish", "starting"), ("stop", "paused")])
def test_a_budget_that_bears_only_slow_machines_gets_those(
    story: Story, on_deadline: str, state: str
) -> None:
    """Late is better than not at all, unless the deadline ends the job."""
    story.quote({ON_DEMAND_A: ON_DEMAND_PRICE // 10})
    job_id = story.submit(
        deadline="5h", market="on_demand", on_deadline=on_deadline, budget_usd=0.5,
        estimate=TEN_HOURS, resources=TWO,
    )  # fmt: skip
    story.run()
    assert story.job(job_id).state == state
    asked = [bid["pool"] for launch in story.launches(job_id) for bid in launch.bids]
    assert asked == ([ON_DEMAND_A.key] if state == "starting" else [])


def test_the_size_of_a_gang_counts_work_in_its_own_machines(story: Story) -> None:
    """Ten hours of one V100 are less than four of one H100."""
    job_id = story.submit(
        nodes="1..4", deadline="6h", market="on_demand", estimate=TEN_HOURS, resources=TWO,
    )  # fmt: skip
    story.quote({ON_DEMAND_A: ON_DEMAND_PRICE}, available=0)
    story.run()
    assert story.job(job_id).node_count == 1


def test_machines_that_were_considered_in_vain_do_not_size_the_gang(story: Story) -> None:
    """Four slow ones are as fast as can be, and the budget does not bear them either."""
    story.quote({ON_DEMAND_A: ON_DEMAND_PRICE // 10})
    other = story.job(story.submit(name="other", budget_usd=1, estimate=TEN_HOURS))
    story.stop(other.id)
    cap = 1_000_000_000
    with story.engine.begin() as connection:
        connection.execute(
            tables.budgets.insert().values(
                id=story.runtime.entropy.new_id(), project_id=story.project_id, job_id=None,
                cap_microusd=cap, spent_microusd=0, reserved_microusd=cap,
            )
        )  # fmt: skip
    story.set(tables.budgets, other.budget_id, reserved_microusd=cap)
    job_id = story.submit(
        nodes="1..4", deadline="2h 30m", market="on_demand", resources=TWO,
        estimate={**TEN_HOURS, "nodes": 1},
    )  # fmt: skip
    run_controller(story.runtime, ClaimJobs(story.runtime))
    job = story.job(job_id)
    assert (job.state, job.node_count) == ("paused", 2)
    told = [one.kind for one in story.rows(tables.events, tables.events.c.job_id == job_id)]
    assert told == ["submitted", "gang_sized", "stopped_for_budget"]
