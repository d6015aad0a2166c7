"""Gangs that form, lose machines and end, on real rows: nothing leaks, nothing waits for ever."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from sqlalchemy import delete, text, update

from app.domain.lifecycle.instance import EndedBy
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.instances.reconcile_instances import ReconcileInstances
from app.ports.cloud_provider import MachineState
from app.storage.schema import tables
from app.storage.schema.money_tables import assignments, pools
from app.storage.session.engine import make_engine
from tests.support.stories.orchestration_story import ZONE_A, ZONE_B, Story
from trainer.protocol.agent_report import FactKind


def test_a_finished_job_asks_for_no_replacement_of_a_machine_it_loses(story: Story) -> None:
    """The machine dies after its final checkpoint and before its last word."""
    job_id, (only,) = story.training()
    story.checkpoint(only, 1, 100, final=True)
    story.cloud.end(story.instance(only).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert story.job(job_id).state == "succeeded"
    assert story.living(job_id) == []
    assert story.cloud.running() == []


def test_a_job_given_up_asks_for_no_replacement(story: Story) -> None:
    job_id, (only,) = story.training()
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


def test_survivors_are_kept_for_a_bounded_time_however_often_a_gang_fails_to_form(
    story: Story,
) -> None:
    job_id = story.submit(nodes=2)
    story.train(job_id)
    first, second = story.members(job_id)
    story.checkpoint(first, 1, 10)
    # The market shows room; the cloud has none.
    story.cloud.room = {ZONE_A: 0}
    with story.engine.begin() as connection:
        connection.execute(delete(pools).where(pools.c.pool != ZONE_A))
    story.tell(second, FactKind.NOTICE, 1, seconds_left=30.0)
    for machine in (first, second):
        story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    story.cloud.end(story.instance(second).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    ended_at = story.attempt(job_id).ended_at
    for _ in range(8):
        story.pass_time(150, every=15)
        story.quote({ZONE_A: 1_000_000})
        with story.engine.begin() as connection:
            connection.execute(update(pools).values(cool_until_at=None))
    assert story.cloud.running() == []
    released_at = story.instance(first).release_ordered_at
    assert (released_at - ended_at).total_seconds() <= story.runtime.limits.survivor_hold_seconds


def test_a_machine_found_again_is_paid_from_where_its_first_row_ended(story: Story) -> None:
    """The cloud said that it was gone, and then shows it: no second is paid twice."""
    job_id, (only,) = story.training()
    machine_id = story.instance(only).provider_instance_id
    story.sleep(300)
    hidden = story.cloud.machines.pop(machine_id)
    story.pass_time(60)
    assert story.instance(only).state == "terminated"
    story.cloud.machines[machine_id] = hidden
    story.sweep()
    story.pass_time(60)
    spans = [
        (span.from_at, span.to_at)
        for row in story.instances(job_id)
        if row.provider_instance_id == machine_id
        for span in story.rows(assignments, assignments.c.instance_id == row.id)
    ]
    spans.sort()
    assert len({row.id for row in story.instances(job_id) if row.origin == "adopted"}) == 1
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    adopted = next(row for row in story.instances(job_id) if row.origin == "adopted")
    assert adopted.launched_at == story.instance(only).ended_at
    assert adopted.state == "terminated"
    assert machine_id not in story.cloud.running()


def test_a_machine_with_a_tag_that_is_no_id_does_not_stop_the_sweep(story: Story) -> None:
    story.cloud.start(ZONE_A, tags={"lowtide:launch": "somebody's", "lowtide:job": "else"})
    story.cloud.start(ZONE_A)
    story.sleep(30)
    story.sweep()
    story.pass_time(60)
    assert story.cloud.running() == []


def test_a_machine_seen_shutting_down_is_taken_when_its_cloud_says_who_ends_it(
    story: Story,
) -> None:
    """It is not a lost contact: its pool stays in the market."""
    job_id, (only,) = story.training()
    machine_id = story.instance(only).provider_instance_id
    story.cloud.machines[machine_id] = replace(
        story.cloud.machines[machine_id],
        state=MachineState.SHUTTING_DOWN,
        ended_by=EndedBy.CLOUD_INTERRUPTION,
    )
    story.pass_time(40)
    attempt = story.attempt(job_id)
    assert (attempt.state, attempt.end_reason) == ("interrupted", "spot_interrupted")
    assert all(row.cool_until_at is None for row in story.rows(pools))


def test_a_locked_job_holds_up_no_look_at_machines_of_others(
    story: Story, database_url: str
) -> None:
    held, free = story.submit(), story.submit()
    for job_id in (held, free):
        story.train(job_id)
    for machine_id in story.cloud.running():
        story.cloud.end(machine_id, EndedBy.CLOUD_INTERRUPTION)
    story.sleep(60)
    engine = make_engine(database_url)
    with engine.connect() as connection, connection.begin():
        connection.execute(text("SELECT 1 FROM jobs WHERE id = :id FOR UPDATE"), {"id": held})
        run_controller(story.runtime, ReconcileInstances(story.runtime))
        assert story.attempt(free).state == "interrupted"
        assert story.attempt(held).state == "running"
    engine.dispose()
    run_controller(story.runtime, ReconcileInstances(story.runtime))
    assert story.attempt(held).state == "interrupted"


def failed_once(story: Story) -> UUID:
    """A gang of two whose commands failed; its second attempt has the same machines."""
    job_id = story.submit(nodes=2)
    story.train(job_id)
    for machine in story.members(job_id):
        story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="failed", exit_code=1)
    story.run()
    return job_id


def test_the_start_of_the_trainer_is_not_called_training(story: Story) -> None:
    """At the first trainer's word no step is made: machines still restore, meet and compile."""
    job_id = failed_once(story)
    story.train(job_id, 2)
    kinds = ("trainer_started", "attempt_started")
    told = [one for one in story.rows(tables.events) if one.kind in kinds]
    starting = "The command is starting on 2 machines"
    again = f"{starting}, from the beginning: no checkpoint had been saved."
    expected = [(kind, text) for text in (f"{starting}.", again) for kind in kinds]
    assert [(one.kind, one.message) for one in told] == expected
    prepared = [one for one in story.rows(tables.events) if one.kind == "member_prepared"]
    assert {one.message for one in prepared} == {"Both machines are prepared."}
    ended = [one.message for one in story.rows(tables.events) if one.kind == "member_ended"]
    assert ended == ["The command on node 0 (one of 2 machines) ended: failed."]


def test_machines_at_hand_and_their_cloud_are_told_in_words(story: Story) -> None:
    failed_once(story)
    told: dict[str, list[str]] = {
        kind: [] for kind in ("claimed", "launch_submitted", "launch_accepted")
    }
    for row in story.rows(tables.events):
        if row.kind in told:
            told[row.kind].append(row.message)
    assert told["claimed"] == ["Attempt 1: requesting machines.", "Attempt 2: 2 machines ready."]
    assert told["launch_submitted"][0] == "Requesting 2 machines from the local cloud."
    assert told["launch_accepted"][0].startswith("The local cloud starts it in ")
