"""Gangs that form, lose machines and end, on real rows: nothing leaks and nothing waits for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.adapters.postgres import tables
from app.domain.instance import EndedBy
from tests.support.orchestration_story import ZONE_A, ZONE_B, Story
from trainer.protocol.agent_report import FactKind


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return Story(engine, tmp_path / "store")


def test_a_finished_job_asks_for_no_replacement_of_a_machine_it_loses(story: Story) -> None:
    """The machine dies after its final checkpoint and before its last word."""
    job_id = story.submit()
    story.train(job_id)
    (only,) = story.members(job_id)
    story.checkpoint(only, 1, 100, final=True)
    story.cloud.end(story.instance(only).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert story.job(job_id).state == "succeeded"
    assert story.living(job_id) == []
    assert story.cloud.running() == []


def test_a_job_given_up_asks_for_no_replacement(story: Story) -> None:
    job_id = story.submit()
    story.train(job_id)
    (only,) = story.members(job_id)
    story.set(tables.jobs, job_id, attempts_without_progress=9)
    story.cloud.end(story.instance(only).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert story.job(job_id).state == "failed"
    assert story.living(job_id) == []
    assert story.cloud.running() == []


def test_a_gang_refused_in_one_region_is_asked_for_elsewhere_as_one(story: Story) -> None:
    """Both machines are asked for again in one call, and the gang does form."""
    story.cloud.room = {ZONE_A: 0, ZONE_B: 0}
    job_id = story.submit(nodes=2)
    story.pass_time(30)
    assert [launch.count for launch in story.launches(job_id)] == [2, 2]
    assert len(story.members(job_id)) == 2
    story.train(job_id)


def test_a_place_that_waited_for_the_zone_is_filled_once_it_is_known(story: Story) -> None:
    """One machine is accepted and taken again while the other is still being asked for."""
    job_id = story.submit(nodes=2)
    story.train(job_id)
    (first, second), running = story.members(job_id), story.cloud.running()
    story.cloud.room = {ZONE_A: 0}
    story.tell(first, FactKind.NOTICE, 1, seconds_left=30.0, action="terminate")
    story.tell(second, FactKind.NOTICE, 1, seconds_left=30.0, action="terminate")
    for machine_id in running:
        story.cloud.end(machine_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert story.attempt(job_id, 2).state == "provisioning"
    assert len(story.members(job_id, 2)) == 2
