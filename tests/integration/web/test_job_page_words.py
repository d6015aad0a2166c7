"""What a job's page says of a gang: where it is among the pools, and how far each machine is."""

from __future__ import annotations

from sqlalchemy import Engine

from app.storage.reports.job_read_models import JobReports
from app.web.job.why_here import why_here
from app.web.job_sentences import gang_steps, head_sentence, steps_note
from tests.support.stories.orchestration_story import ZONE_A, Story
from trainer.protocol.agent_report import MachinePhase


def test_the_pool_that_a_job_is_in_is_marked_among_the_weighed_ones(story: Story, engine: Engine):
    job_id = story.submit(nodes=2)
    story.train(job_id)
    facts = JobReports(engine).job(job_id)
    with story.runtime.begin() as uow:
        decisions = uow.decisions.of_job(job_id, 6)
    panel = why_here(facts.job, decisions, [one.instance for one in facts.machines], None)
    assert panel.placing is not None
    assert len(panel.placing.pools) > 1
    assert [row.key for row in panel.placing.pools if row.here] == [ZONE_A.key]
    assert panel.now == "Now on 2 machines: us-west-2a · p3.2xlarge · spot."
    nowhere = why_here(facts.job, decisions, [], None)
    assert nowhere.now is None
    assert nowhere.placing is not None
    assert not any(row.here for row in nowhere.placing.pools)


def test_a_gang_says_how_far_its_slowest_machine_is(story: Story, engine: Engine):
    job_id, (first, second) = story.training(2)

    def said() -> str:
        return gang_steps(JobReports(engine).job(job_id), 40)

    assert said() == ""
    story.tell(first, at_step=40)
    assert said() == "", "rank 0 reports for both"
    story.tell(second, at_step=31)
    assert said() == "slowest machine at step 31"
    story.tell(second, at_step=40)
    assert said() == ""


def test_machines_without_a_step_of_their_own_are_explained():
    told = "The machine of rank 0 reports the steps for the others."
    assert steps_note([40, None]) == told
    assert [steps_note(steps) for steps in ([], [40], [None, None], [40, 31])] == [""] * 4


def test_machines_that_are_set_up_are_not_said_to_train(story: Story, engine: Engine):
    job_id = story.submit(nodes=2)
    story.train(job_id)

    def said() -> str:
        return head_sentence(JobReports(engine).job(job_id), story.time)

    assert said().startswith("Training on 2 machines")
    first, _ = story.members(job_id)
    story.tell(first, phase=MachinePhase.SETUP)
    assert said().startswith("Setting up on 2 machines")
