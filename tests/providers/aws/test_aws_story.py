"""Whole jobs on the fake account: every controller, the real SDK, real rows, real time.

The account keeps its own books, by its own rules; ours must come to the same micro-dollar.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, func, select

from app.adapters.providers.aws.opening import open_aws
from app.adapters.providers.machine_catalog import shipped_catalog
from app.orchestration.controllers import all_controllers
from app.orchestration.frame.runtime import Limits
from app.storage.schema import tables
from app.storage.schema.money_tables import ledger_entries
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import a_script, aws_order, settings_for, shared_session
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind

_SECONDS_MAX = 120.0
_LIMITS = Limits(
    describe_seconds=0.5,
    describe_soon_seconds=0.2,
    absence_age_seconds=5,
    absence_gap_seconds=0.5,
    sweep_seconds=2,
    price_refresh_seconds=2,
    accrual_seconds=1,
    cost_settle_seconds=0.2,
    next_look_seconds=0.3,
    drain_seconds=5,
)


class AwsStory(Story):
    """A deployment that rents on the fake account; time is the clock's own."""

    time = property(lambda self: datetime.now(UTC), lambda self, value: None)

    def __init__(self, engine: Engine, folder: Path, fake: AwsFake, **more: Any) -> None:
        super().__init__(engine, folder, _LIMITS)
        self.fake = fake
        provider, prices = open_aws(
            settings_for(fake, **{"public_ip": True, **more}),
            shipped_catalog("aws"),
            deployment_id=lambda: str(UUID(int=1)),
            render=a_script,
            session=shared_session(),
        )
        self.runtime = replace(
            self.runtime, providers={"aws": provider}, price_sources={"aws": prices}
        )
        self.controllers = all_controllers(self.runtime)

    def quote(self, prices: Any = None, **more: Any) -> None:
        """Prices come from the account."""

    def run(self) -> None:
        run_until_idle(self.runtime, self.controllers, rounds_max=2)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + _SECONDS_MAX
        while not condition():
            assert time.monotonic() < ends, f"never came: {what}"
            self.run()
            time.sleep(0.05)

    def await_machines(self, job_id: UUID, count: int, fence: int = 1) -> list[UUID]:
        def there() -> bool:
            own = (tables.attempts.c.job_id == job_id, tables.attempts.c.fence == fence)
            if not self.rows(tables.attempts, *own):
                return False
            rows = [self.instance(one) for one in self.members(job_id, fence)]
            return len(rows) == count and all(row.provider_instance_id for row in rows)

        self.until(there, f"{count} machines of attempt {fence}")
        return self.members(job_id, fence)

    def await_training(self, job_id: UUID, count: int, fence: int = 1) -> list[UUID]:
        members = self.await_machines(job_id, count, fence)
        for instance_id in members:
            if instance_id not in self._credentials:
                self.register(instance_id)
        for kind in (FactKind.PREPARED, FactKind.TRAINER_STARTED):
            for instance_id in members:
                self.tell(instance_id, kind, fence, master_port=20_001)
        self.until(lambda: self.job(job_id).state == "running", "training")
        return members

    def finish(self, job_id: UUID, members: list[UUID], fence: int) -> None:
        self.checkpoint(members[0], fence, 100, final=True)
        for one in members:
            self.tell(one, FactKind.TRAINER_ENDED, fence, outcome="finished", exit_code=0)
        self.until(lambda: self.job(job_id).state == "succeeded", "the end of the job")
        self.until(lambda: not self.living(job_id), "the end of its machines")

    def components(self) -> set[str]:
        with self.engine.connect() as connection:
            return set(connection.scalars(select(ledger_entries.c.component)))

    def booked(self, component: str | None = None) -> dict[str, int]:
        """By the account's name of each machine; what comes to nothing is left out."""
        total = func.sum(ledger_entries.c.amount_microusd)
        with self.engine.connect() as connection:
            found = select(tables.instances.c.provider_instance_id, total).join(
                ledger_entries, ledger_entries.c.instance_id == tables.instances.c.id
            )
            if component is not None:
                found = found.where(ledger_entries.c.component == component)
            rows = connection.execute(found.group_by(tables.instances.c.provider_instance_id))
            return {row[0]: int(row[1]) for row in rows if row[1]}

    def await_final_costs(self, job_id: UUID) -> None:
        self.until(lambda: all(row.cost_final_at for row in self.instances(job_id)), "final costs")


@pytest.fixture
def story(engine: Engine, tmp_path: Path, fake: AwsFake) -> AwsStory:
    return AwsStory(engine, tmp_path / "store", fake)


def machine_of(story: AwsStory, instance_id: UUID) -> str:
    return str(story.instance(instance_id).provider_instance_id)


def owed(story: AwsStory) -> dict[str, int]:
    """What the account itself charges; a machine that cost nothing may be on no entry of ours."""
    return {machine: cost for machine, cost in story.fake.world.bill().items() if cost}


@pytest.mark.full
def test_a_gang_survives_a_taken_machine_and_the_books_agree(story: AwsStory) -> None:
    fake = story.fake
    job_id = story.submit(nodes=2, resources={"gpu": "A10G:1"})
    members = story.await_training(job_id, 2)
    lost = machine_of(story, members[1])
    fake.publish(
        "EC2 Spot Instance Interruption Warning",
        {"instance-id": lost, "instance-action": "terminate"},
    )
    story.until(lambda: story.instance(members[1]).state == "interrupting", "the warning")
    for one in members:
        story.tell(one, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75, step=10)
    fake.take(lost)
    ended_at = fake.world.machines[lost].ended_at
    fake.publish(
        "EC2 Instance State-change Notification",
        {"instance-id": lost, "state": "terminated"},
        ended_at,
    )
    after = story.await_training(job_id, 2, 2)
    assert members[0] in after, "the survivor is kept"
    story.finish(job_id, after, 2)
    story.await_final_costs(job_id)
    assert story.instance(members[1]).ended_by == "cloud_interruption"
    assert lost not in story.booked("compute"), "EC2 took it in its first hour"
    assert {"disk", "public_ip"} == {
        one for one in story.components() if story.booked(one).get(lost)
    }
    assert {machine: cost for machine, cost in story.booked().items() if cost} == owed(story)
    assert len(owed(story)) == 3, "the volume and the address of what it took are owed"
    assert set(fake.world.launches.values()) == {1}
    assert not [one for one in fake.world.machines.values() if one.lives]


def test_no_capacity_here_is_found_elsewhere_and_a_lost_reply_rents_nothing_twice(
    story: AwsStory,
) -> None:
    fake = story.fake
    for name, zone in fake.world.offered:
        if name.startswith("g") and zone.startswith("us-east-1"):
            fake.world.room[name, zone, True] = 0
    fake.world.lost["CreateFleet"] = 1
    job_id = story.submit(resources={"gpu": "A10G:1"})
    (only,) = story.await_training(job_id, 1)
    assert story.instance(only).pool.region == "us-west-2"
    story.finish(job_id, [only], 1)
    story.await_final_costs(job_id)
    assert {machine: cost for machine, cost in story.booked().items() if cost} == owed(story)
    assert set(fake.world.launches.values()) <= {1}
    assert len(fake.world.machines) == 1


def test_a_machine_that_ec2_drops_at_its_start_is_asked_for_again(story: AwsStory) -> None:
    fake = story.fake
    fake.world.pending_seconds = 30
    job_id = story.submit(resources={"gpu": "A10G:1"})
    (first,) = story.await_machines(job_id, 1)
    fake.world.pending_seconds = 0
    fake.end(machine_of(story, first), "Server.InsufficientInstanceCapacity")
    story.until(lambda: story.instance(first).state == "terminated", "its end")
    assert story.instance(first).ended_by == "cloud_capacity"
    story.until(lambda: len(story.living(job_id)) == 1, "another one")
    (only,) = story.await_training(job_id, 1)
    story.finish(job_id, [only], 1)
    story.await_final_costs(job_id)
    assert {machine: cost for machine, cost in story.booked().items() if cost} == owed(story)


def test_a_machine_without_a_row_is_found_and_given_back(story: AwsStory) -> None:
    """A launch whose row is gone: the account shows the machine, by its tag."""
    fake = story.fake
    story.run()
    provider = story.runtime.providers["aws"]
    (stray,) = provider.launch(aws_order()).accepted
    rented = fake.world.machines[stray.provider_instance_id]
    story.until(lambda: not rented.lives, "the end of the stray machine")
    assert rented.reason == "Client.UserInitiatedShutdown"


def test_too_few_machines_that_ec2_does_not_know_yet_are_given_back_by_their_rows(
    story: AwsStory,
) -> None:
    """EC2 starts 2 of 3 against its promise, and knows neither for a while."""
    fake = story.fake
    for name, zone in fake.world.offered:
        if name.startswith("g"):
            fake.world.room[name, zone, True] = 2
    fake.world.leasts_broken, fake.world.hidden_looks = 1, 3
    job_id = story.submit(nodes=3, resources={"gpu": "A10G:1"})
    story.until(lambda: len(fake.world.machines) == 2, "two machines")
    story.until(lambda: not any(one.lives for one in fake.world.machines.values()), "their end")
    assert story.job(job_id).state not in ("failed", "stopped"), "no fault of the job's"
    rows = {row.provider_instance_id: row for row in story.instances(job_id)}
    assert set(fake.world.machines) <= set(rows), "a row each, so that they are paid for and ended"


def test_a_faster_volume_is_paid_for(engine: Engine, tmp_path: Path, fake: AwsFake) -> None:
    story = AwsStory(engine, tmp_path / "store", fake, volume_throughput_mbps=500)
    job_id = story.submit(resources={"gpu": "A10G:1"})
    (only,) = story.await_training(job_id, 1)
    (rented,) = fake.world.machines.values()
    assert rented.volume_mbps == 500
    story.finish(job_id, [only], 1)
    story.await_final_costs(job_id)
    assert {machine: cost for machine, cost in story.booked().items() if cost} == owed(story)
