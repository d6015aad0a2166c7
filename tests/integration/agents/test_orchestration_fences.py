"""What a stale attempt says has no effect, and what the store holds is not trained again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from app.domain.lifecycle.instance import EndedBy
from app.orchestration.agents.receive_agent_report import FenceRefused
from app.storage.schema import tables
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind


def _second_attempt(story: Story, *, prepared: bool = True) -> tuple[UUID, UUID]:
    """A gang whose first attempt ended for a notice; rank 0's machine is still there."""
    job_id, (first, second) = story.training(nodes=2)
    story.checkpoint(first, 1, 100)
    story.tell(second, FactKind.NOTICE, 1, seconds_left=60.0)
    for machine in (first, second):
        story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    story.cloud.end(story.instance(second).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(30)
    assert first in story.members(job_id, 2)
    if prepared:
        story.train(job_id, 2, {"fence": 1, "step": 100, "digest": "1-100"})
    return job_id, first


def test_facts_of_an_ended_attempt_move_nothing(story: Story) -> None:
    job_id, machine = _second_attempt(story)
    version = story.attempt(job_id, 2)
    told: tuple[tuple[FactKind, dict[str, Any]], ...] = (
        (FactKind.TRAINER_ENDED, {"outcome": "failed", "exit_code": 1}),
        (FactKind.STALLED, {"step": 3}),
        (FactKind.PREPARATION_FAILED, {"stage": "restore"}),
        (FactKind.PREPARED, {"master_port": 1, "parent": {"fence": 0, "step": 1}}),
        (FactKind.TRAINER_STARTED, {}),
        (FactKind.FENCED_OFF, {"by_fence": 2}),
    )
    for kind, data in told:
        story.tell(machine, kind, 1, **data)
    assert story.attempt(job_id, 2) == version
    assert story.job(job_id).state == "running"
    assert story.attempt(job_id, 1).state == "interrupted"


def test_a_stale_checkpoint_beyond_the_parent_does_not_count(story: Story) -> None:
    job_id, machine = _second_attempt(story)
    story.checkpoint(machine, 1, 500)
    assert story.job(job_id).committed_step == 100
    story.checkpoint(machine, 2, 110, parent={"fence": 1, "step": 100, "digest": "1-100"})
    assert story.job(job_id).committed_step == 110


def test_a_stale_checkpoint_counts_while_nobody_has_begun_before_it(story: Story) -> None:
    job_id, machine = _second_attempt(story, prepared=False)
    story.checkpoint(machine, 1, 120)
    assert story.job(job_id).committed_step == 120


def test_a_stale_final_checkpoint_beside_the_lineage_does_not_end_the_job(story: Story) -> None:
    job_id, machine = _second_attempt(story)
    story.checkpoint(machine, 2, 110, parent={"fence": 1, "step": 100, "digest": "1-100"})
    story.checkpoint(machine, 1, 200, final=True)
    story.tell(machine, FactKind.COMPLETION, 1, step=200)
    for member in story.members(job_id, 2):
        story.tell(member, FactKind.TRAINER_ENDED, 2, outcome="failed", exit_code=1)
    assert story.attempt(job_id, 2).state == "failed"
    story.run()
    assert story.job(job_id).state == "starting"
    assert story.attempt(job_id, 3).state != "succeeded"


def test_a_stale_final_checkpoint_ends_a_job_that_waits(story: Story) -> None:
    """Nobody has begun anew: the work is done, and no further machine is rented."""
    job_id, [machine] = story.training()
    story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="failed", exit_code=1)
    assert story.attempt(job_id).state == "failed"
    story.set(tables.jobs, job_id, state="recovering", ended_at=None)
    story.set(tables.instances, machine, state="registered")
    story.checkpoint(machine, 1, 200, final=True)
    story.tell(machine, FactKind.COMPLETION, 1, step=200)
    assert story.job(job_id).state == "succeeded"


def test_a_machine_may_not_speak_for_an_attempt_it_is_no_member_of(story: Story) -> None:
    job_id, machine = _second_attempt(story)
    other = next(one for one in story.members(job_id, 2) if one != machine)
    with pytest.raises(FenceRefused):
        story.tell(other, FactKind.CHECKPOINT, 1, step=900, digest="x", final=True)
    assert story.job(job_id).committed_step == 100


def test_a_final_checkpoint_that_only_the_store_knows_is_not_trained_again(story: Story) -> None:
    """The agent died between the manifest and its report; a command may not know it is done."""
    job_id, [machine] = story.training()
    story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    (second,) = story.members(job_id, 2)
    story.register(second)
    answer = story.tell(
        second, FactKind.PREPARED, 2, master_port=20_001, final=True, parent_size_bytes=4096,
        parent={"fence": 1, "step": 300, "digest": "1-300"},
    )  # fmt: skip
    assert answer.directive.kind.value in ("hold", "leave")
    assert story.job(job_id).state == "succeeded"
    assert story.job(job_id).committed_step == 300, "as in its final checkpoint"
    (found,) = story.rows(tables.checkpoints, tables.checkpoints.c.job_id == job_id)
    assert (found.fence, found.step, found.size_bytes, found.final) == (1, 300, 4096, True)
    assert story.attempt(job_id, 2).state == "succeeded"
    story.pass_time(120)
    assert story.cloud.running() == []
