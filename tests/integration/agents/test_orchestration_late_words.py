"""What comes from an attempt that settles, has ended or was cut off: counted, recorded, or undone.

Not here: stale words that must move nothing (`test_orchestration_fences`), or how an agent gets to
say them (tests/unit/agent/test_agent_last_checkpoint.py).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.lifecycle.instance import EndedBy
from app.orchestration.money.accrue_costs import AccrueCosts
from app.storage.schema import tables
from app.storage.schema.money_tables import assignments, ledger_entries
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.orchestration_story import PRICES, Story
from trainer.protocol.agent_report import FactKind


def _events(story: Story, job_id: UUID, kind: str) -> list[Any]:
    own = (tables.events.c.job_id == job_id, tables.events.c.kind == kind)
    return sorted(story.rows(tables.events, *own), key=lambda row: row.seq)


def _peer_taken(story: Story) -> tuple[UUID, UUID]:
    """A gang of two that trains, whose rank 1 is taken without notice: (job, rank 0)."""
    job_id, (first, second) = story.training(nodes=2)
    story.checkpoint(first, 1, 100)
    story.cloud.end(story.instance(second).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.sleep(30)
    story.run()
    return job_id, first


def test_a_checkpoint_that_arrives_while_the_attempt_settles_is_what_the_next_begins_with(
    story: Story,
) -> None:
    job_id, survivor = _peer_taken(story)
    attempt = story.attempt(job_id)
    assert attempt.state == "settling"
    assert story.tell(survivor).directive.kind.value == "stop"
    story.pass_time(20)
    assert story.attempt(job_id).state == "settling", "rank 0 has not said its end yet"
    story.checkpoint(survivor, 1, 120)
    story.tell(survivor, FactKind.TRAINER_ENDED, 1, outcome="killed", exit_code=-9)
    attempt = story.attempt(job_id)
    assert (attempt.state, attempt.end_reason) == ("interrupted", "spot_interrupted")
    assert (attempt.committed_step, story.job(job_id).committed_step) == (120, 120)
    assert story.job(job_id).attempts_without_progress == 0


def test_the_next_attempt_keeps_the_machine_that_still_uploads_as_rank_0(story: Story) -> None:
    """Its preparation begins after its upload, and rank 0 alone writes down where all begin."""
    job_id, survivor = _peer_taken(story)
    story.pass_time(70)  # it says nothing in time: the verdict does without it
    assert story.attempt(job_id).state == "interrupted"
    assert story.members(job_id, 2)[0] == survivor


def test_a_step_told_after_its_attempt_was_counted_is_progress_all_the_same(story: Story) -> None:
    job_id, (first, second) = story.training(nodes=2)
    story.cloud.end(story.instance(second).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(100)
    assert story.job(job_id).attempts_without_progress == 1
    story.checkpoint(first, 1, 50)
    assert story.job(job_id).attempts_without_progress == 0
    assert story.job(job_id).committed_step == 50


def test_what_an_ended_attempt_still_says_is_written_down(story: Story) -> None:
    job_id, survivor = _peer_taken(story)
    story.pass_time(70)
    before = story.attempt(job_id)
    story.tell(survivor, FactKind.STALLED, 1, step=101)
    story.tell(survivor, FactKind.TRAINER_ENDED, 1, outcome="killed", exit_code=-9, step=130)
    story.tell(survivor, FactKind.METRICS, 1, points=[{"step": 130.0, "loss": 0.5}])
    # Names that an event has fields of its own for.
    told: dict[str, Any] = {
        "stage": "restore",
        "message": "no such file",
        "noun": "?",
        "actor": "?",
    }
    story.tell(survivor, FactKind.PREPARATION_FAILED, 1, **told)
    late = _events(story, job_id, "late_fact")
    assert [(event.data["fence"], event.data["fact"], event.data["said"]) for event in late] == [
        (1, "stalled", {"step": 101}),
        (1, "trainer_ended", {"outcome": "killed", "exit_code": -9, "step": 130}),
        (1, "preparation_failed", {"stage": "restore", "message": "no such file"}),
    ]
    assert "trainer ended" in late[1].message
    assert story.attempt(job_id) == before
    assert story.members(job_id, 2)[0] == survivor


def test_a_completion_ends_a_job_whose_next_attempt_still_gathers_its_machines(
    story: Story,
) -> None:
    job_id, survivor = _peer_taken(story)
    story.pass_time(70)
    assert (story.job(job_id).state, story.attempt(job_id, 2).state) == ("starting", "provisioning")
    story.checkpoint(survivor, 1, 200, final=True)
    story.tell(survivor, FactKind.COMPLETION, 1, step=200)
    job, attempt = story.job(job_id), story.attempt(job_id, 2)
    assert (job.state, job.end_reason) == ("succeeded", "finished")
    assert (attempt.state, attempt.end_reason) == ("stopped", "finished")
    assert [event.data for event in _events(story, job_id, "completion_found")] == [{}]
    story.pass_time(120)
    assert story.cloud.running() == []
    assert story.living(job_id) == []


def test_a_lone_attempt_that_meets_a_later_fence_says_so_and_the_next_goes_beyond_it(
    story: Story,
) -> None:
    """Our rows are older than the store, as after a restored backup."""
    job_id, [machine] = story.training()
    story.tell(machine, FactKind.FENCED_OFF, 1, by_fence=7)
    story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="killed", exit_code=-9)
    attempt = story.attempt(job_id)
    assert (attempt.state, attempt.end_reason) == ("failed", "fenced_off")
    assert attempt.end_message == (
        "Node 0 was superseded: the attempt with fence 7 is already in the checkpoint store."
    )
    story.run()
    assert story.attempt(job_id, 8).state in ("provisioning", "preparing")
    assert story.job(job_id).retries_used == 0
    assert story.members(job_id, 8) == [machine], "nothing is wrong with the machine"


def test_what_an_attempt_trained_is_kept_as_the_pace_of_its_job(story: Story) -> None:
    job_id, (first, second) = story.training(nodes=2)
    for step in (1, 91):
        story.sleep(30)
        for machine in (first, second):
            story.tell(machine, at_step=step)
    story.cloud.end(story.instance(second).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(100)
    job = story.job(job_id)
    assert story.attempt(job_id).state == "interrupted"
    assert (job.trained_steps, job.trained_seconds) == (90, 30.0)


def _tell_start(story: Story, machine: Any, at: datetime, source: str) -> None:
    """From now on the cloud says that the machine began then."""
    told = story.cloud.machines
    shown = told[machine.provider_instance_id]
    told[machine.provider_instance_id] = replace(shown, launched_at=at, launched_source=source)


def test_a_better_word_on_a_start_corrects_the_time_and_the_bill(story: Story) -> None:
    job_id, [only] = story.training()
    machine = story.instance(only)
    seemed_at, began_at = machine.launched_at, machine.launched_at + timedelta(seconds=8)
    story.set(tables.instances, only, launched_source="creation")
    _tell_start(story, machine, seemed_at, "creation")
    story.pass_time(300)
    accruing = AccrueCosts(story.runtime)
    story.quote()
    run_until_idle(story.runtime, (accruing,))
    before = story.rows(ledger_entries)
    for source, told_at in (("insert_operation", seemed_at), ("last_start", began_at)):
        _tell_start(story, machine, told_at, source)
        story.pass_time(120)
    machine = story.instance(only)
    assert (machine.launched_at, machine.launched_source) == (began_at, "last_start")
    spans = story.rows(assignments, assignments.c.instance_id == only)
    assert min(span.from_at for span in spans) == began_at
    (event,) = _events(story, job_id, "start_revised")
    assert event.data["source"] == "last_start"
    story.quote()
    run_until_idle(story.runtime, (accruing,))
    after = story.rows(ledger_entries)
    revised = [one for one in after if one.kind == "adjustment"]
    assert {one.reason for one in revised} == {"end_revised"}
    price = PRICES[machine.pool]
    assert sum(one.amount_microusd for one in before) > 0
    assert sum(one.amount_microusd for one in revised) == -round(price * 8 / 3_600)


@pytest.mark.parametrize(("committed", "counts"), [(100, "step 100"), (None, "the start")])
def test_what_was_saved_and_did_not_get_away_is_told_with_what_counts_in_its_place(
    story: Story, committed: int | None, counts: str
) -> None:
    job_id, [member] = story.training()
    if committed is not None:
        story.checkpoint(member, 1, committed)
    story.tell(
        member, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75, step=140,
        unsent_step=140,
    )  # fmt: skip
    (event,) = _events(story, job_id, "member_drained")
    assert event.message.endswith(
        f"Its checkpoint of step 140 was not uploaded in time: {counts} is used instead."
    )
