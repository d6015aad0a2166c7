"""What decisions say of their own choice: no row and no sentence contradicts what was done."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.domain.availability.hazard_models import USUAL_FACTOR
from app.domain.placement.expected_cost import expect
from app.domain.placement.placement_decision import PlacementDecision
from tests.support.stories.market_choice_story import market_choice_story
from tests.support.stories.orchestration_story import FAR, PRICES, ZONE_A, ZONE_B, Story


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return market_choice_story(engine, tmp_path / "store")


def claimed(story: Story, job_id: UUID) -> PlacementDecision:
    with story.runtime.begin() as uow:
        return uow.decisions.of_job(job_id, 10)[-1].decision


def test_pools_that_are_asked_for_are_not_told_as_passed_over(story: Story) -> None:
    job_id = story.submit(deadline="12h", market="auto", estimate={"hours": 5.0})
    story.run()
    told = claimed(story, job_id)
    assert told.chosen == (ZONE_A.key, ZONE_B.key)
    assert "the most progress for its price" in told.pools[0].why
    assert "also requested: the cloud picks one" in told.pools[1].why


def test_a_pool_tells_the_hazard_that_its_expected_cost_rests_on(story: Story) -> None:
    job_id = story.submit(deadline="12h", market="auto", estimate={"hours": 5.0})
    story.run()
    best = claimed(story, job_id).pools[0]
    limits = story.runtime.limits
    found = expect(PRICES[ZONE_A], 5 * 3_600, limits.restart_seconds, USUAL_FACTOR)
    assert best.expected_microusd == found.microusd
    hour = expect(PRICES[ZONE_A], 3_600, limits.restart_seconds, USUAL_FACTOR)
    assert best.hazard_per_hour == round(hour.interruptions_per_hour, 3)
    told = re.search(r"\(recently (\S+) interruptions per hour of the whole pool", best.why)
    assert told is not None
    assert float(told[1]) != best.hazard_per_hour
    assert f"one new machine there has {best.hazard_per_hour:.2f} over its life" in best.why


def test_costs_to_the_end_count_a_bill_that_runs_faster(story: Story) -> None:
    story.quote(available=4, billing_speed=60)
    job_id = story.submit(deadline="12h", market="auto", estimate={"hours": 5.0})
    story.run()
    told = claimed(story, job_id)
    best = told.pools[0]
    assert best.price_microusd_per_hour == PRICES[ZONE_A]
    restart = story.runtime.limits.restart_seconds
    found = expect(60 * PRICES[ZONE_A], 5 * 3_600, restart, USUAL_FACTOR)
    assert best.expected_microusd == found.microusd
    # Five hours on spot, at $60 an hour by the clock.
    assert told.on_demand_microusd is not None
    assert told.spot_microusd is not None
    assert 300_000_000 < told.spot_microusd < told.on_demand_microusd


def test_spot_that_is_taken_although_waiting_costs_less_says_why(story: Story) -> None:
    """The last hour of work does not wait beside a pool that has machines."""
    story.quote(dict.fromkeys((ZONE_A, ZONE_B, FAR), 3_000_000), available=4)
    job_id = story.submit(deadline="12h", market="auto", estimate={"hours": 0.3})
    story.run()
    told = claimed(story, job_id)
    assert told.spot_microusd is not None
    assert told.wait_microusd is not None
    assert told.wait_microusd < told.spot_microusd, "else this shows nothing"
    assert "with so little work left, that saving is not worth the risk" in told.sentence
