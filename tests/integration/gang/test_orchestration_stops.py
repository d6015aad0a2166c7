"""Orders to stop, at every point of a job's life: each ends, and nothing stays rented."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from uuid import UUID

import pytest

from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.job import StopCause
from app.domain.units.errors import CommandRefused
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import apply_phase, run_controller, select_phase
from app.orchestration.gang.stop_job import resume
from app.orchestration.instances.launch_instances import LaunchInstances
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.storage.schema import tables
from tests.support.api.agent_api import BY_PERSON
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind

ENDS = {
    StopCause.USER: "cancelled",
    StopCause.PAUSE: "paused",
    StopCause.BUDGET: "paused",
    StopCause.MAX_DURATION: "failed",
    StopCause.DEADLINE: "failed",
}


def _nothing(story: Story, job_id: UUID) -> None:
    """The job is in the queue."""


def _claimed(story: Story, job_id: UUID) -> None:
    run_controller(story.runtime, ClaimJobs(story.runtime))
    assert story.job(job_id).state == "starting"


def _launched(story: Story, job_id: UUID) -> None:
    story.run()


def _half_registered(story: Story, job_id: UUID) -> None:
    story.run()
    story.register(story.members(job_id)[0])


def _preparing(story: Story, job_id: UUID) -> None:
    story.run()
    for member in story.members(job_id):
        story.register(member)
    story.tell(story.members(job_id)[0], FactKind.PREPARED, 1, master_port=20_001)
    assert story.attempt(job_id).state == "preparing"


def _running(story: Story, job_id: UUID) -> None:
    story.train(job_id)


def _noticed(story: Story, job_id: UUID) -> None:
    story.train(job_id)
    story.tell(story.members(job_id)[1], FactKind.NOTICE, 1, seconds_left=60.0)
    assert story.attempt(job_id).state == "draining"


def _settling(story: Story, job_id: UUID) -> None:
    story.train(job_id)
    story.tell(
        story.members(job_id)[0], FactKind.TRAINER_ENDED, 1, outcome="failed", exit_code=1,
        error={"type": "RuntimeError", "message": "peer", "peer_communication": True},
    )  # fmt: skip
    assert story.attempt(job_id).state == "settling"


def _recovering(story: Story, job_id: UUID) -> None:
    """One machine is kept, one is being asked for, and one that is free if taken is left."""
    _noticed(story, job_id)
    for member in story.members(job_id):
        story.tell(member, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    assert story.job(job_id).state == "recovering"


STAGES: list[Callable[[Story, UUID], None]] = [
    _nothing, _claimed, _launched, _half_registered, _preparing, _running, _noticed, _settling,
    _recovering,
]  # fmt: skip


def _obey(story: Story, job_id: UUID) -> None:
    """Every agent that is asked to save and leave has done so."""
    for attempt in story.rows(tables.attempts, tables.attempts.c.job_id == job_id):
        if attempt.state in ("draining", "settling"):
            for member in story.members(job_id, attempt.fence):
                story.tell(
                    member, FactKind.TRAINER_ENDED, attempt.fence, outcome="drained", exit_code=75
                )


def _rests(story: Story, job_id: UUID) -> None:
    """Nothing is rented, asked for, or waited for."""
    assert story.cloud.running() == []
    assert story.living(job_id) == []
    live = ("provisioning", "preparing", "running", "draining", "settling")
    attempts = story.rows(tables.attempts, tables.attempts.c.job_id == job_id)
    assert [one.state for one in attempts if one.state in live] == []
    assert all(launch.next_call_at is None for launch in story.launches(job_id))
    assert story.job(job_id).timer_at is None
    assert story.job(job_id).hold_until_at is None


@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "silent"])
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__.strip("_"))
def test_a_stop_ends_the_job_wherever_it_is(
    story: Story, stage: Callable[[Story, UUID], None], obeys: bool
) -> None:
    causes = [StopCause.USER] if obeys else [StopCause.BUDGET, StopCause.MAX_DURATION]
    jobs = {}
    for cause in causes:
        job_id = jobs[cause] = story.submit(nodes=2)
        stage(story, job_id)
        story.stop(job_id, cause)
        if obeys:
            _obey(story, job_id)
    for machine_id in story.cloud.running():
        row = tables.instances
        (noticed,) = story.rows(row, row.c.provider_instance_id == machine_id)
        if noticed.state == "interrupting":
            story.cloud.end(machine_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(300, every=30)
    for cause, job_id in jobs.items():
        assert story.job(job_id).state == ENDS[cause], cause
        _rests(story, job_id)


def test_a_free_machine_that_its_cloud_does_not_take_is_given_back(story: Story) -> None:
    """The job is over, the notice was none: five minutes after its deadline we end it."""
    job_id = story.submit(nodes=2)
    _recovering(story, job_id)
    story.stop(job_id)
    story.pass_time(120, every=15)
    kept = story.cloud.running()
    assert len(kept) == 1
    assert story.living(job_id)[0].state == "interrupting"
    story.pass_time(400, every=15)
    _rests(story, job_id)


@pytest.mark.parametrize("died", [False, True], ids=["answered", "worker_died"])
def test_a_cancel_while_the_cloud_is_being_called_leaks_nothing(story: Story, died: bool) -> None:
    job_id = story.submit(nodes=2)
    run_controller(story.runtime, ClaimJobs(story.runtime))
    launching = LaunchInstances(story.runtime)
    (work,) = select_phase(story.runtime, launching)
    answer = launching.effect(work)
    story.stop(job_id)
    if not died:
        apply_phase(story.runtime, launching, work, answer)
    assert story.job(job_id).state == "cancelled"
    story.pass_time(300)
    _rests(story, job_id)
    assert len(story.cloud.machines) == 2


def test_an_answer_that_comes_after_its_lease_is_dropped_and_nothing_is_rented_twice(
    story: Story,
) -> None:
    job_id = story.submit(nodes=2)
    run_controller(story.runtime, ClaimJobs(story.runtime))
    launching = LaunchInstances(story.runtime)
    (slow,) = select_phase(story.runtime, launching)
    late = launching.effect(slow)
    story.sleep(120)
    story.run()
    apply_phase(story.runtime, launching, slow, late)
    assert len(story.cloud.machines) == len(story.living(job_id)) == 2
    assert len(story.rows(tables.stale_results)) == 1
    story.sweep()
    assert len(story.instances(job_id)) == 2


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.permutations(ENDS, 2)), ids=lambda cause: str(cause)
)
def test_the_stronger_of_two_orders_decides(
    story: Story, first: StopCause, second: StopCause
) -> None:
    job_id = story.submit()
    story.train(job_id)
    story.stop(job_id, first)
    story.stop(job_id, second)
    _obey(story, job_id)
    stronger = max(first, second, key=lambda cause: cause.rank)
    assert story.job(job_id).state == ENDS[stronger]


def test_a_paused_job_goes_on_where_it_was(story: Story) -> None:
    job_id = story.submit()
    story.train(job_id)
    story.checkpoint(story.members(job_id)[0], 1, 40)
    story.stop(job_id, StopCause.PAUSE)
    _obey(story, job_id)
    story.pass_time(120)
    _rests(story, job_id)
    with pytest.raises(CommandRefused):
        story.stop(job_id, StopCause.PAUSE)
    begin, entropy = story.runtime.begin, story.runtime.entropy
    with begin() as uow, open_job(uow, entropy, job_id, BY_PERSON) as aggregate:
        assert aggregate is not None
        resume(aggregate, None)
    story.train(job_id, 2, {"fence": 1, "step": 40, "digest": "1-40"})
    assert story.attempt(job_id, 2).parent_step == 40
