"""A job with patience asks the cheaper pool alone, waits for it, and in the end takes the other."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.job import JobState
from app.domain.placement.placement_decision import DecisionVerdict, PlacementDecision
from app.simulation.simulated.world import SIMULATED_LIMITS
from tests.support.stories.orchestration_story import ZONE_A, ZONE_B, Story


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    made = Story(engine, tmp_path / "store", SIMULATED_LIMITS)
    made.cloud.room = {ZONE_A: 0}
    return made


def newest(story: Story, job_id: UUID) -> PlacementDecision:
    with story.runtime.begin() as uow:
        return uow.decisions.of_job(job_id, 1)[0].decision


def test_without_patience_the_dearer_pool_is_taken_at_once(story: Story) -> None:
    job_id = story.submit()
    story.pass_time(60)
    assert [row.pool for row in story.instances(job_id)] == [ZONE_B]


def test_with_patience_the_cheaper_pool_is_waited_for(story: Story) -> None:
    impatient = story.submit(name="impatient")
    job_id = story.submit(name="patient", patience="2h")
    story.pass_time(120, every=20)
    assert story.job(impatient).state == JobState.STARTING
    job, decision = story.job(job_id), newest(story, job_id)
    assert (job.state, decision.verdict) == (JobState.QUEUED, DecisionVerdict.WAIT)
    until = f"{story.start + timedelta(hours=2):%Y-%m-%d %H:%M:%S} UTC"
    assert f"by {until}" in decision.sentence
    assert f": {ZONE_A.zone} ({ZONE_A.instance_type}) does an hour of training" in decision.sentence
    assert "waiting is expected to save" in job.wait_reason
    story.cloud.room = {}
    story.pass_time(900, every=30)
    lived = [row.pool for row in story.instances(job_id) if row.launched_at is not None]
    assert lived == [ZONE_A]


def test_patience_ends(story: Story) -> None:
    job_id = story.submit(patience="10m")
    story.pass_time(400, every=30)
    assert [row.pool for row in story.instances(job_id) if row.launched_at is not None] == []
    story.pass_time(450, every=30)
    assert [row.pool for row in story.instances(job_id) if row.launched_at is not None] == [ZONE_B]
