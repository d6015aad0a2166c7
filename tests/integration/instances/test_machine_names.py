"""What people call a job's machines: once read, a name stays with its machine."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import InstanceState
from app.domain.market.offer import Market
from app.orchestration.frame.aggregate import open_job
from app.orchestration.instances.accept_machines import set_launch_time
from app.storage.session.machine_names import machine_names
from tests.support.api.agent_api import BY_PERSON
from tests.support.stories.orchestration_story import ZONE_A, Story


def names(story: Story, job_id: UUID) -> dict[UUID, str]:
    with story.engine.connect() as connection:
        return machine_names(connection, [job_id])


def start(story: Story, job_id: UUID, machine_id: UUID, at: datetime, source: str) -> None:
    """The cloud's word that a machine has started reaches us."""
    with (
        story.runtime.begin() as uow,
        open_job(uow, story.runtime.entropy, job_id, BY_PERSON) as aggregate,
    ):
        assert aggregate is not None
        machine = uow.instances.get(machine_id)
        assert machine is not None
        set_launch_time(aggregate, machine, at, source)


def test_a_name_stays_when_an_earlier_request_is_answered_later(story: Story) -> None:
    job_id, now = story.submit(), story.now()
    early, late = (story.runtime.entropy.new_id() for _ in range(2))
    with story.runtime.begin() as uow:
        for machine_id, ago in ((early, 60), (late, 0)):
            uow.instances.add(
                Instance(
                    id=machine_id, job_id=job_id, launch_id=None, provider="local", pool=ZONE_A,
                    market=Market.SPOT, state=InstanceState.LAUNCHED, origin="launched",
                    requested_at=now - timedelta(seconds=ago), updated_at=now,
                )
            )  # fmt: skip
    assert names(story, job_id) == {}
    start(story, job_id, late, now, "creation")
    assert names(story, job_id) == {late: "m1"}
    # The answer to the earlier request, of a start before the other one.
    start(story, job_id, early, now - timedelta(seconds=30), "creation")
    assert names(story, job_id) == {late: "m1", early: "m2"}
    # A more exact word on a start moves it behind the other.
    start(story, job_id, late, now + timedelta(seconds=5), "last_start")
    assert names(story, job_id) == {late: "m1", early: "m2"}
