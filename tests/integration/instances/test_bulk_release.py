"""Many machines are given back by few calls, and one that cannot be keeps no other."""

from __future__ import annotations

from app.domain.lifecycle.job import StopCause
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.instances.reconcile_instances import ReconcileInstances
from app.orchestration.instances.release_instances import ReleaseInstances
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.storage.schema import tables
from tests.support.stories.orchestration_story import Story

MACHINES = 24


def released(story: Story) -> ReleaseInstances:
    """A gang whose machines are all to be released."""
    job_id = story.submit(nodes=MACHINES)
    story.run()
    assert len(story.members(job_id)) == MACHINES
    story.stop(job_id, StopCause.USER)
    story.cloud.calls.clear()
    return ReleaseInstances(story.runtime)


def test_a_gang_is_given_back_by_one_call(story: Story) -> None:
    releasing = released(story)
    run_controller(story.runtime, releasing)
    assert story.cloud.calls.count("terminate") == 1
    assert {one.state for one in story.cloud.machines.values()} == {"terminated"}


def test_machines_whose_call_failed_are_given_back_by_the_next_one(story: Story) -> None:
    releasing = released(story)
    story.cloud.failures.append(ProviderError(RefusalKind.THROTTLED, "slow down"))
    run_controller(story.runtime, releasing)
    assert {one.state for one in story.cloud.machines.values()} == {"running"}
    story.pass_time(10)
    assert story.cloud.calls.count("terminate") == 2
    assert {one.state for one in story.cloud.machines.values()} == {"terminated"}


def test_a_region_that_does_not_answer_keeps_no_machine_of_another(story: Story) -> None:
    releasing = released(story)
    story.cloud.silent = {"us-east-1"}
    run_controller(story.runtime, releasing)
    assert {one.state for one in story.cloud.machines.values()} == {"terminated"}
    story.sleep(60)
    run_controller(story.runtime, ReconcileInstances(story.runtime))
    assert {one.state for one in story.rows(tables.instances)} == {"terminated"}


def test_each_machine_of_a_batch_can_be_written_alone(story: Story) -> None:
    releasing = released(story)
    with story.runtime.begin() as uow:
        (batch,) = releasing.select(uow, releasing.limit)
    result = releasing.effect(batch)
    parts = releasing.parts(batch)
    assert len(parts) == MACHINES
    for part in parts:
        with story.runtime.begin() as uow:
            releasing.apply(uow, part, result)
    with story.runtime.begin() as uow:
        assert releasing.select(uow, releasing.limit) == []
