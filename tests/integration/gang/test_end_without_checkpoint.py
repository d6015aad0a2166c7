"""A command that saves nothing ends like any other, and nobody is told of a checkpoint."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.api.jobs.job_document import job_document
from app.domain.lifecycle.instance import EndedBy
from app.storage.reports.job_facts import LastCheckpoint
from app.storage.reports.job_read_models import JobReports
from app.storage.schema import tables
from app.web.job_sentences import head_sentence
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind


def _finish(story: Story, job_id: UUID, machine: UUID, step: int, **told: object) -> None:
    """The agent records the end of a command that left no final checkpoint of its own."""
    story.checkpoint(machine, 1, step, final=True, size_bytes=0, **told)
    story.tell(machine, FactKind.COMPLETION, 1, step=step)
    story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="finished", exit_code=0, step=step)


def _events(story: Story, job_id: UUID) -> list[tuple[str, str]]:
    rows = story.rows(tables.events, tables.events.c.job_id == job_id)
    return [(row.kind, row.message) for row in rows]


def test_a_command_that_saved_nothing_has_no_checkpoint(story: Story, engine: Engine) -> None:
    job_id, (machine,) = story.training()
    _finish(story, job_id, machine, 0)
    assert story.job(job_id).state == "succeeded"
    kinds = [kind for kind, _ in _events(story, job_id)]
    assert "finished_without_checkpoint" in kinds
    assert "checkpoint_committed" not in kinds
    claims = [text for _, text in _events(story, job_id) if "checkpoint" in text]
    assert claims == ["The command has finished and saved no final checkpoint."]
    reports = JobReports(engine)
    assert reports.checkpoints(job_id, 10) == []
    facts = reports.job(job_id)
    assert facts.last_checkpoint is None
    assert head_sentence(facts, story.time + timedelta(hours=1)).startswith("Finished, ")
    # The end is in the lineage all the same: nothing is trained again.
    (kept,) = story.rows(tables.checkpoints, tables.checkpoints.c.job_id == job_id)
    assert (kept.final, kept.size_bytes) == (True, 0)


def test_what_it_saved_before_is_told_at_its_own_step(story: Story, engine: Engine) -> None:
    job_id, (machine,) = story.training()
    story.checkpoint(machine, 1, 40, size_bytes=4096)
    saved_at = story.time
    story.pass_time(30)
    _finish(story, job_id, machine, 57)
    reports = JobReports(engine)
    assert [row["step"] for row in reports.checkpoints(job_id, 10)] == [40]
    last = reports.job(job_id).last_checkpoint
    assert last is not None
    assert last == LastCheckpoint(40, last.committed_at)
    assert last.committed_at <= saved_at + timedelta(seconds=1)


@pytest.mark.parametrize(
    "told",
    [{"size_bytes": 0}, {"final": True, "size_bytes": None}, {"final": True, "size_bytes": 9}],
)
def test_only_an_end_that_is_known_to_be_empty_is_no_checkpoint(
    story: Story, told: dict[str, Any]
) -> None:
    """An agent of the release before does not name the size."""
    job_id, (machine,) = story.training()
    story.checkpoint(machine, 1, 40, **told)
    kinds = [kind for kind, _ in _events(story, job_id)]
    assert "checkpoint_committed" in kinds
    assert "finished_without_checkpoint" not in kinds


def test_a_recovering_job_without_a_checkpoint_begins_anew(story: Story, engine: Engine) -> None:
    job_id, (machine,) = story.training()
    story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="failed", exit_code=1)
    facts = JobReports(engine).job(job_id)
    if facts.job.state == "recovering":
        told = job_document(facts, story.time)["why"]
        assert head_sentence(facts, story.time) == told
        assert told.endswith(
            "It starts again from the beginning as soon as machines are found: no checkpoint was "
            "saved."
        )
    else:
        pytest.fail(f"the job is {facts.job.state}, not recovering")


def test_the_store_alone_knew_that_nothing_was_saved(story: Story) -> None:
    job_id, (machine,) = story.training()
    story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    (second,) = story.members(job_id, 2)
    story.register(second)
    story.tell(
        second, FactKind.PREPARED, 2, master_port=20_001, final=True, parent_size_bytes=0,
        parent={"fence": 1, "step": 0, "digest": "1-0"},
    )  # fmt: skip
    assert story.job(job_id).state == "succeeded"
    kinds = [kind for kind, _ in _events(story, job_id)]
    assert "finished_without_checkpoint" in kinds
    assert "checkpoint_committed" not in kinds
