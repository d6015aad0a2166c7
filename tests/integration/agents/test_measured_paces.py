"""What agents measured of steps, start-up and metrics, on the rows that outlive the machine.

Not here: the measuring (tests/unit/agent/test_step_pace.py), or the curves of metrics.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from sqlalchemy import Engine

from app.domain.lifecycle.instance import EndedBy
from app.storage.schema import tables
from tests.support.servers.table_rows import rows_of
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind


def _slow_start(story: Story) -> tuple[UUID, UUID]:
    """A job whose first step ends 90 s after its start, and whose later ones take a second."""
    job_id, [machine] = story.training()
    story.pass_time(90.0)
    story.tell(machine, at_step=1)
    story.pass_time(20.0)
    story.tell(machine, at_step=21)
    return job_id, machine


def _take(story: Story, instance_id: UUID) -> None:
    """The cloud takes a machine without a word."""
    story.cloud.end(story.instance(instance_id).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(120.0)


def test_a_machine_that_is_taken_leaves_its_pace_behind(story: Story):
    job_id, machine = _slow_start(story)
    _take(story, machine)
    kept = story.attempt(job_id)
    assert (kept.first_step, kept.last_step, kept.stepping_seconds) == (1, 21, 20.0)
    assert kept.start_up_seconds == 90.0
    assert kept.first_step_at == kept.trained_at + timedelta(seconds=90)
    assert kept.work_digest is not None


def test_the_fact_of_its_end_tells_it_too(story: Story):
    job_id, machine = _slow_start(story)
    # An agent that has ended an attempt reports for none: its contact says nothing of it any more.
    story.tell(machine, fence=None)
    story.tell(machine, FactKind.TRAINER_ENDED, outcome="failed", exit_code=1)
    kept = story.attempt(job_id)
    assert kept.ended_at is not None
    assert (kept.stepping_seconds, kept.start_up_seconds) == (20.0, 90.0)


def test_an_agent_of_the_release_before_leaves_nothing_behind(story: Story):
    story.paces.measures = False
    job_id, machine = _slow_start(story)
    _take(story, machine)
    kept = story.attempt(job_id)
    assert (kept.first_step, kept.stepping_seconds, kept.work_digest) == (None, None, None)


def test_the_next_attempt_on_a_machine_begins_without_what_was_seen_of_the_last(story: Story):
    job_id, machine = _slow_start(story)
    story.tell(machine, FactKind.TRAINER_ENDED, outcome="failed", exit_code=75)
    story.pass_time(600.0)
    story.run()
    assert story.members(job_id, 2) == [machine]
    with story.runtime.begin() as uow:
        story.tell(machine, fence=2)
        contact = uow.instances.contact(machine)
    assert contact is not None
    assert (contact.fence, contact.step, contact.first_step) == (2, None, None)


def _points(engine: Engine) -> list[tuple[int, int, dict[str, float]]]:
    found = rows_of(engine, tables.metric_points)
    return [(point.fence, point.step, point.metrics) for point in found]


def test_an_evaluation_joins_the_loss_of_its_step(story: Story, engine: Engine) -> None:
    _, [machine] = story.training()
    lines = [
        {"step": 9.0, "loss": 0.6},
        {"step": 10.0, "loss": 0.5},
        {"step": 10.0, "accuracy": 0.9},
    ]
    story.tell(machine, FactKind.METRICS, 1, points=lines)
    story.tell(machine, FactKind.METRICS, 1, points=[{"step": 10.0, "eval_loss": 0.7}])
    assert _points(engine) == [
        (1, 9, {"loss": 0.6}),
        (1, 10, {"loss": 0.5, "accuracy": 0.9, "eval_loss": 0.7}),
    ]
