"""A program with a bug is tried again: every place that tells of the job says why, in its words."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from sqlalchemy import Engine

from app.api.jobs.job_document import job_document
from app.domain.lifecycle.attempt_verdict import OUT_OF_MEMORY_ADVICE
from app.domain.lifecycle.retry_policy import MAX_ATTEMPTS_WITHOUT_PROGRESS
from app.orchestration.agents.append_logs import append_log
from app.storage.reports.job_facts import JobFilter
from app.storage.reports.job_read_models import JobReports
from app.storage.reports.page_read_models import JobTimeline, PageReports
from app.storage.schema import tables
from app.web.job.job_failure import JobFailure, job_failure
from app.web.job_sentences import head_sentence
from app.web.page_frame import PageParts
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind

ERROR = "NameError: name 'lrate' is not defined"
FIRST = f"Retry 1 of 3: attempt 1 ended with exit code 1: {ERROR}."


def fail(story: Story, job_id: UUID, fence: int, **error: Any) -> None:
    """The command ends as one does that meets a name it does not know."""
    for machine in story.members(job_id, fence):
        told = {"type": None, "message": ERROR, **error}
        story.tell(
            machine, FactKind.TRAINER_ENDED, fence, outcome="failed", exit_code=1, error=told
        )


def said(story: Story, engine: Engine, job_id: UUID) -> tuple[str, str, str]:
    """What the page, the command line and the list say of it."""
    facts = JobReports(engine).job(job_id)
    items = PageReports(engine).list_jobs(JobFilter(story.project_id, 50), story.time)["items"]
    [item] = [one for one in items if one["id"] == str(job_id)]
    return (
        head_sentence(facts, story.time + timedelta(seconds=1)),
        job_document(facts, story.time)["why"] or "",
        item["why"] or "",
    )


def messages(story: Story, job_id: UUID, kind: str) -> list[str]:
    rows = story.rows(tables.events, tables.events.c.job_id == job_id)
    return [row.message for row in rows if row.kind == kind]


def test_a_failed_attempt_says_its_error_and_its_retry_everywhere(story: Story, engine: Engine):
    job_id = story.submit()
    story.train(job_id)
    fail(story, job_id, 1)
    assert messages(story, job_id, "attempt_ended_retryable") == [FIRST]
    assert all(FIRST in words for words in said(story, engine, job_id))
    # While the retry starts, and while it trains without having saved anything newer.
    story.run()
    assert story.job(job_id).state == "starting"
    assert all(FIRST in words for words in said(story, engine, job_id))
    story.train(job_id, 2)
    assert all(FIRST in words for words in said(story, engine, job_id))
    [machine] = story.members(job_id, 2)
    story.checkpoint(machine, 2, 40)
    assert not any("NameError" in words for words in said(story, engine, job_id))


def test_the_last_failure_says_that_the_retries_are_used(story: Story, engine: Engine):
    job_id = story.submit(retries=2)
    for fence in (1, 2, 3):
        story.train(job_id, fence)
        fail(story, job_id, fence)
    assert story.job(job_id).state == "failed"
    used = f"Node 0 failed with exit code 1: {ERROR}. Both retries are used."
    assert all(words == used for words in said(story, engine, job_id))
    story.run()
    once = story.submit(retries=0)
    story.train(once)
    fail(story, once, 1)
    assert story.job(once).end_message == f"Node 0 failed with exit code 1: {ERROR}."


def test_an_exit_code_that_is_not_to_be_retried_says_so(story: Story, engine: Engine):
    job_id = story.submit(retry_on_exit_codes=[43, 42])
    story.train(job_id)
    fail(story, job_id, 1)
    assert story.job(job_id).state == "failed"
    why = "It is not retried: `retry_on_exit_codes` names only 42, 43."
    told = f"Node 0 failed with exit code 1: {ERROR}. {why}"
    assert all(words == told for words in said(story, engine, job_id))
    shown = page(story, engine, job_id, f"{ERROR}\n".encode())
    assert (shown.headline, shown.more) == (ERROR, why)


def test_a_failure_that_waits_names_its_cause_too(story: Story, engine: Engine):
    job_id = story.submit()
    story.run()
    [machine] = story.members(job_id)
    story.register(machine)
    story.tell(machine, FactKind.PREPARATION_FAILED, 1, stage="setup", message="pip: no such file")
    assert story.job(job_id).wait_reason.startswith(
        "Retry 1 of 3: attempt 1 ended: node 0 could not be prepared: setup: pip: no such file. "
        "Next try in "
    )


def test_no_retry_is_promised_to_a_job_that_is_given_up(story: Story):
    job_id = story.submit(retries=20)
    for fence in range(1, MAX_ATTEMPTS_WITHOUT_PROGRESS + 1):
        story.train(job_id, fence)
        fail(story, job_id, fence)
    assert story.job(job_id).end_reason == "no_progress"
    *tried, last = messages(story, job_id, "attempt_ended_retryable")
    assert tried[-1].startswith("Retry 9 of 20: ")
    assert last == f"Node 0 failed with exit code 1: {ERROR}."
    assert story.attempt(job_id, MAX_ATTEMPTS_WITHOUT_PROGRESS).end_message == last


def page(story: Story, engine: Engine, job_id: UUID, log: bytes | None) -> JobFailure:
    """The top of its page. log: what its last attempt has written, None for nothing."""
    if log is not None:
        fence = story.job(job_id).next_fence - 1
        [machine] = story.members(job_id, fence)
        credential = story.instance(machine).credential_hash
        append_log(story.runtime, credential, f"attempt-{fence:04d}/node-0.log", 0, log)
    reports = JobReports(engine)
    parts = cast(PageParts, SimpleNamespace(runtime=story.runtime, jobs=reports))
    lanes = cast(JobTimeline, SimpleNamespace(lanes=()))
    found = job_failure(parts, reports.job(job_id).job, lanes)
    assert found is not None
    return found


def test_the_page_says_what_its_headline_leaves_out(story: Story, engine: Engine):
    job_id = story.submit(retries=1)
    for fence in (1, 2):
        story.train(job_id, fence)
        fail(story, job_id, fence, message=f"{ERROR} ({fence})")
    bare = page(story, engine, job_id, None)
    assert (bare.headline, bare.more) == (f"{ERROR} (2)", story.job(job_id).end_message)
    shown = page(story, engine, job_id, f"{ERROR} (2)\n".encode())
    assert (shown.headline, shown.more) == (f"{ERROR} (2)", "Its one retry is used.")


def test_the_page_says_that_a_job_was_given_up(story: Story, engine: Engine):
    job_id = story.submit(retries=20)
    for fence in range(1, MAX_ATTEMPTS_WITHOUT_PROGRESS + 1):
        story.train(job_id, fence)
        fail(story, job_id, fence)
    assert "10 attempts in a row" in page(story, engine, job_id, f"{ERROR}\n".encode()).more


def test_memory_that_ran_out_is_not_tried_on_such_a_machine_again(story: Story, engine: Engine):
    job_id = story.submit(retries=3)
    story.train(job_id)
    message = "torch.OutOfMemoryError: CUDA out of memory."
    fail(story, job_id, 1, message=message, out_of_memory=True)
    assert (story.job(job_id).state, story.job(job_id).end_reason) == ("failed", "out_of_memory")
    told = f"Node 0 ran out of memory with exit code 1: {message} {OUT_OF_MEMORY_ADVICE}"
    assert all(words == told for words in said(story, engine, job_id))
    assert page(story, engine, job_id, message.encode()).more == OUT_OF_MEMORY_ADVICE
