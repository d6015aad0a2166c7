"""What is said of machines that are on the way in place of lost ones: one sentence everywhere."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson

from app.api.jobs.job_document import job_document
from app.api.serving.json_answers import as_json
from app.cli.client.job_view import summary
from app.cli.client.terminal import Terminal
from app.cli.jobs.list_commands import _where
from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.job import StopCause
from app.orchestration.frame.aggregate import open_job
from app.orchestration.gang.stop_job import resume
from app.storage.reports.job_facts import JobFilter
from app.storage.reports.job_read_models import JobReports
from app.storage.reports.page_read_models import PageReports
from app.storage.schema import tables
from tests.support.api.agent_api import BY_PERSON
from tests.support.stories.orchestration_story import ZONE_A, ZONE_B, Story
from trainer.protocol.agent_report import FactKind

REPLACING = "replacing 1 of 2 in local us-west-2a"


def said(story: Story, job_id: UUID) -> tuple[Any, ...]:
    """What the list, the API, `lowtide jobs` and `lowtide show` say."""
    facts = JobReports(story.engine).job(job_id)
    wanted = JobFilter(facts.job.project_id, 10)
    [listed] = PageReports(story.engine).list_jobs(wanted, story.now())["items"]
    document = orjson.loads(as_json(job_document(facts, story.now())).body)
    shown = dict(summary(document, story.now(), Terminal()))["where"]
    told = listed["replacing"], document["replacing"], shown or None
    where = _where(listed)
    return (*told, where if where.startswith("replacing") else None)


def test_a_machine_that_is_interrupted_is_being_replaced_until_its_successor_reports(story: Story):
    job_id = story.submit(nodes=2)
    assert set(said(story, job_id)) == {None}
    story.run()
    assert set(said(story, job_id)) == {None}, "a first start replaces nothing"
    story.train(job_id)
    assert set(said(story, job_id)) == {None}
    first, second = story.members(job_id)
    story.tell(second, FactKind.NOTICE, 1, seconds_left=30.0, action="terminate")
    assert set(said(story, job_id)) == {REPLACING}, "while the old one still saves"
    for machine in (first, second):
        story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    story.cloud.end(story.instance(second).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(30)
    assert set(said(story, job_id)) == {REPLACING}, "while the new one boots"
    story.train(job_id, 2)
    assert set(said(story, job_id)) == {None}


def test_a_gang_that_lost_every_machine_is_replaced_as_a_whole(story: Story):
    job_id = story.submit(nodes=2)
    story.train(job_id)
    story.cloud.room = {ZONE_A: 0, ZONE_B: 2}
    for machine in story.members(job_id):
        story.tell(machine, FactKind.NOTICE, 1, seconds_left=30.0, action="terminate")
    for machine_id in story.cloud.running():
        story.cloud.end(machine_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    assert set(said(story, job_id)) == {f"replacing 2 of 2 in local {ZONE_B.zone}"}
    for machine in story.rows(tables.instances, tables.instances.c.state == "launched"):
        story.set(tables.instances, machine.id, state="launching", pool=None)
    assert set(said(story, job_id)) == {"replacing 2 of 2: choosing a pool"}


def test_a_job_that_is_resumed_replaces_nothing(story: Story):
    job_id, members = story.training(nodes=2)
    story.stop(job_id, StopCause.PAUSE)
    for machine in members:
        story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    with (
        story.runtime.begin() as uow,
        open_job(uow, story.runtime.entropy, job_id, BY_PERSON) as aggregate,
    ):
        assert aggregate is not None
        resume(aggregate, None)
    story.pass_time(30)
    assert story.job(job_id).state == "starting"
    assert set(said(story, job_id)) == {None}
