"""A freeze lets no launch be written, whoever decides on it, and touches no machine that runs."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.domain.launch_limits.freeze import FreezeScope
from app.domain.lifecycle.instance import EndedBy
from app.orchestration.transitions.evaluate_moves import EvaluateMoves
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from app.storage.schema import tables
from tests.support.api.people_api import make_project
from tests.support.stories.launch_limits_story import freeze, submit_to, thaw
from tests.support.stories.orchestration_story import PRICES, ZONE_A, ZONE_B, Story
from trainer.protocol.agent_report import FactKind

LOOK = 40
"""Seconds within which a job that waits looks for machines again."""


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    made = Story(engine, tmp_path / "store")
    made.controllers = (
        *made.controllers,
        WatchDeadlines(made.runtime),
        EvaluateMoves(made.runtime),
    )
    return made


@pytest.mark.parametrize("scope", list(FreezeScope))
def test_a_frozen_job_waits_says_why_and_starts_once_it_is_thawed(
    story: Story, scope: FreezeScope
) -> None:
    freeze(story, scope, "storm in us-west-2.")
    job_id = story.submit()
    story.run()
    job = story.job(job_id)
    assert (job.state, story.launches(job_id)) == ("queued", [])
    assert job.wait_reason.endswith("by root: storm in us-west-2")
    [decision] = story.rows(tables.placement_decisions)
    assert decision.document["reason"] == "frozen"
    assert decision.document["unblock"]["sentence"].startswith("`lowtide thaw ")
    story.pass_time(2 * LOOK)
    assert story.launches(job_id) == []
    assert thaw(story, scope)
    assert not thaw(story, scope)
    story.pass_time(LOOK)
    assert len(story.launches(job_id)) == 1


def test_a_machine_that_runs_stays_and_is_not_replaced(story: Story) -> None:
    job_id, (lost, kept) = story.training(2)
    freeze(story)
    story.pass_time(60)
    assert story.attempt(job_id).state == "running"
    story.tell(lost, FactKind.NOTICE, seconds_left=30.0, action="terminate", source="t")
    story.run()
    assert len(story.launches(job_id)) == 1
    for machine in (lost, kept):
        story.tell(machine, FactKind.TRAINER_ENDED, outcome="drained", exit_code=75, step=40)
    story.cloud.end(story.instance(lost).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    job = story.job(job_id)
    assert job.state == "recovering"
    assert "launches of the project 'alpha' are frozen" in job.wait_reason
    assert [row.id for row in story.living(job_id)] == [kept], "nobody gave the other one back"
    thaw(story)
    story.pass_time(LOOK)
    assert len(story.launches(job_id)) == 2


def test_open_places_of_a_gang_that_forms_are_not_filled(story: Story) -> None:
    story.cloud.room = {ZONE_A: 0, ZONE_B: 0}
    job_id, everyone = story.submit(), story.controllers
    story.controllers = everyone[:1]
    story.run()
    freeze(story)
    story.controllers = everyone
    story.pass_time(60)
    assert len(story.launches(job_id)) == 1
    assert "are frozen" in story.job(job_id).wait_reason


def test_no_job_moves_or_is_requested_on_demand_and_its_deadline_is_unsafe(story: Story) -> None:
    spec = {"estimate": {"hours": 2, "gpu": "V100:1"}, "market": "auto"}
    job_id = story.submit(deadline="6h", **spec)
    story.train(job_id)
    story.pass_time(60)
    assert story.job(job_id).unsafe_since_at is None
    freeze(story)
    story.quote({**PRICES, ZONE_B: 200_000})
    story.pass_time(60)
    job = story.job(job_id)
    assert job.unsafe_since_at is not None
    events = tables.events
    [told] = story.rows(events, events.c.kind == "deadline_unsafe")
    assert "launches of the project 'alpha' are frozen" in told.message
    # Its last safe moment is long past.
    story.set(tables.jobs, job_id, deadline_at=story.time + timedelta(hours=1))
    story.pass_time(60)
    assert (story.job(job_id).market_mode, len(story.launches(job_id))) == ("spot", 1)
    assert story.attempt(job_id).state == "running"


def test_a_deadline_is_safe_again_once_it_is_thawed(story: Story) -> None:
    job_id = story.submit(deadline="9h", estimate={"hours": 1, "gpu": "V100:1"}, market="auto")
    story.train(job_id)
    freeze(story)
    story.pass_time(60)
    assert story.job(job_id).unsafe_since_at is not None
    thaw(story)
    story.pass_time(60)
    assert story.job(job_id).unsafe_since_at is None


def test_another_project_and_another_cloud_are_not_concerned(story: Story) -> None:
    freeze(story)
    frozen, free = story.submit(), submit_to(story, make_project(story.engine, "beta"))
    story.run()
    assert (len(story.launches(frozen)), len(story.launches(free))) == (0, 1)


def test_a_freeze_waits_for_launches_that_are_being_written(story: Story) -> None:
    done = threading.Event()

    def freeze_it() -> None:
        freeze(story)
        done.set()

    with story.runtime.begin() as launching:
        launching.launch_gate.open()
        thread = threading.Thread(target=freeze_it)
        thread.start()
        assert not done.wait(0.3), "it was frozen beside a launch that had not seen it"
    thread.join(10)
    assert done.is_set()
