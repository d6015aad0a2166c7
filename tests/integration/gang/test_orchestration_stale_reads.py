"""What was read before a job's lock was there is read again under it.

Not here: facts that come late (`test_orchestration_late_words`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, event

from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import EndedBy, InstanceState
from app.orchestration.instances.read_interruptions import (
    FeedMessages,
    FeedToRead,
    ReadInterruptions,
)
from app.ports.interruption_feed import Announcement, AnnouncementKind
from app.storage.schema import tables
from tests.support.stories.orchestration_story import Story


@contextmanager
def just_before_the_job_is_locked(engine: Engine, happens: Callable[[], None]) -> Iterator[None]:
    """Another transaction comes first."""
    waiting = [happens]

    def look(_c: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if waiting and "FOR NO KEY UPDATE" in statement and "FROM jobs" in statement:
            waiting.pop()()

    event.listen(engine, "before_cursor_execute", look)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", look)
    assert not waiting


def test_a_notice_does_not_bring_back_a_machine_that_ended_while_it_was_read(
    story: Story,
) -> None:
    _, (only,) = story.training()
    machine_id = story.instance(only).provider_instance_id
    deadline = story.time + timedelta(seconds=120)
    notice = Announcement(machine_id, AnnouncementKind.INTERRUPTION, story.time, "r", deadline)

    def it_ends() -> None:
        fields = {"ended_at": story.time, "ended_by": EndedBy.CLOUD_INTERRUPTION}
        story.set(tables.instances, only, state=InstanceState.TERMINATED, **fields)

    reading = ReadInterruptions(story.runtime)
    with just_before_the_job_is_locked(story.engine, it_ends), story.runtime.begin() as uow:
        reading.apply(uow, FeedToRead("local", ()), FeedMessages(story.time, (notice,), {}))
    assert story.instance(only).state == "terminated"
    assert story.instance(only).noticed_at is None


def test_a_token_that_was_prolonged_while_its_machine_registers_is_good(story: Story) -> None:
    job_id = story.submit()
    story.run()
    (only,) = story.members(job_id)
    (launch,) = story.launches(job_id)
    story.set(tables.launches, launch.id, token_expires_at=story.time - timedelta(seconds=1))

    def the_answer_is_settled() -> None:
        later = story.time + timedelta(seconds=600)
        story.set(tables.launches, launch.id, token_expires_at=later)

    with just_before_the_job_is_locked(story.engine, the_answer_is_settled):
        story.register(only)
    assert story.instance(only).state == "registered"


def test_the_machines_of_a_job_are_read_anew(story: Story) -> None:
    job_id, (only,) = story.training()
    with story.runtime.begin() as uow:
        known = uow.instances.get(only)
        assert isinstance(known, Instance)
        story.set(tables.instances, only, suspect=True)
        known.absent_since_at = story.time  # not written yet, and not lost by reading
        (again,) = uow.instances.of_job(job_id)
        assert again is known
        assert (again.suspect, again.absent_since_at) == (True, story.time)
