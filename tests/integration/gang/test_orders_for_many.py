"""Orders for many jobs at once, below the api: what they change, and whom they wake."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.lifecycle.job_command import JobCommand
from app.orchestration.gang.command_job import CONTROLLERS
from app.orchestration.gang.stop_many import CommandOutcome, command_jobs
from tests.support.stories.money_story import RecordedWakeups
from tests.support.stories.orchestration_story import Story


def of_project(story: Story) -> Principal:
    return Principal(UUID(int=1), "ada", story.project_id, "alpha", Role.MAINTAINER)


def test_what_was_ordered_is_begun_at_once(story: Story) -> None:
    """Nobody waits for the next turn of a controller."""
    job_id = story.submit()
    wakeups = story.runtime.wakeups
    assert isinstance(wakeups, RecordedWakeups)
    for outcome, rung in (
        (CommandOutcome.DONE, set(CONTROLLERS)),
        (CommandOutcome.UNCHANGED, set()),
    ):
        wakeups.rung.clear()
        done = command_jobs(story.runtime, [job_id], of_project(story), JobCommand.CANCEL)
        assert (done[job_id].outcome, set(wakeups.rung)) == (outcome, rung)


def test_a_cancel_at_once_hastens_one_that_saves(story: Story) -> None:
    job_id = story.submit()
    story.train(job_id)

    def cancel(at_once: bool) -> CommandOutcome:
        done = command_jobs(
            story.runtime, [job_id], of_project(story), JobCommand.CANCEL, at_once=at_once
        )
        return done[job_id].outcome

    assert cancel(False) is CommandOutcome.DONE
    first = story.attempt(job_id).drain_until_at
    assert cancel(False) is CommandOutcome.UNCHANGED
    assert story.attempt(job_id).drain_until_at == first
    assert cancel(True) is CommandOutcome.DONE
    hastened = story.attempt(job_id).drain_until_at
    assert hastened == story.time + timedelta(seconds=story.runtime.limits.stop_now_seconds)
    assert hastened < first
    assert cancel(True) is CommandOutcome.UNCHANGED
