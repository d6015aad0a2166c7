"""Events that EventBridge puts into the queue: read by the provider, applied on real rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.adapters.providers.aws.interruption_queues import (
    InterruptionQueue,
    read_message,
)
from app.domain.lifecycle.instance import EndedBy
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.instances.read_interruptions import ReadInterruptions
from app.orchestration.money.accrue_costs import AccrueCosts
from app.ports.cloud_provider import CloudMachine, MachineState, ProviderError, RefusalKind
from app.ports.interruption_feed import Announcement, AnnouncementKind, InterruptionFeed
from app.storage.schema import job_tables, tables
from app.storage.schema.money_tables import ledger_entries
from tests.support.api.agent_api import BY_PERSON
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import provider_for
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.orchestration_story import PRICES, PaperCloud, Story

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE = "EC2 Instance State-change Notification"


class AnnouncingCloud(PaperCloud):
    """Machines on paper, and a real queue that tells of them."""

    told: InterruptionQueue

    @property
    def announces(self) -> bool:
        return True

    def receive_announcements(self) -> tuple[Announcement, ...]:
        self._begin("receive")
        return self.told.receive()

    def forget_announcements(self, receipts: Iterable[str]) -> None:
        self._begin("forget")
        self.told.forget(receipts)


class Watched(Story):
    """A story with a job that trains on one machine, and the controller of announcements."""

    def __init__(self, engine: Engine, folder: Path, fake: AwsFake) -> None:
        super().__init__(engine, folder, make_cloud=AnnouncingCloud)
        self.fake = fake
        assert isinstance(self.cloud, AnnouncingCloud)
        provider = provider_for(fake)
        self.cloud.told = InterruptionQueue(provider.clients, fake.queue_url, "us-east-1")
        self.reading = ReadInterruptions(self.runtime)
        self.job_id = self.submit()
        self.train(self.job_id)
        (self.only,) = self.members(self.job_id)
        self.machine_id = str(self.instance(self.only).provider_instance_id)

    def read(self, times: int = 1) -> None:
        for _ in range(times):
            run_controller(self.runtime, self.reading)

    def read_without_commit(self) -> tuple[Any, Any]:
        """Nothing of what was read is written, and so it is not forgotten: the work, and what."""
        begin, reading = self.runtime.begin, self.reading
        with begin() as uow:
            (work,) = reading.select(uow, 16)
        heard = reading.effect(work)

        def fails_at_its_commit() -> None:
            with begin() as uow:
                reading.apply(uow, work, heard)
                raise ConnectionError("the database went away")

        with pytest.raises(ConnectionError):
            fails_at_its_commit()
        with begin() as uow:
            assert [one.receipts for one in reading.select(uow, 16)] == [()], "not forgotten"
        return work, heard

    def publish(self, detail_type: str, **detail: str) -> None:
        told = {
            "instance-id": self.machine_id,
            **{k.replace("_", "-"): v for k, v in detail.items()},
        }
        self.fake.publish(detail_type, told, self.time)

    def machine_price(self) -> int:
        return PRICES[self.cloud.machines[self.machine_id].pool]

    def events(self, kind: str) -> list[UUID]:
        found = job_tables.events
        return [row.job_id for row in self.rows(found, found.c.kind == kind)]


@pytest.fixture
def story(engine: Engine, tmp_path: Path, fake: AwsFake) -> Watched:
    return Watched(engine, tmp_path / "store", fake)


def test_a_warning_drains_the_job_as_the_agents_own_notice_does(story: Watched) -> None:
    story.publish(WARNING, instance_action="terminate")
    story.read()
    machine = story.instance(story.only)
    assert machine.state == "interrupting"
    assert machine.notice_deadline_at == story.time + timedelta(seconds=120)
    assert story.attempt(story.job_id).state == "draining"
    assert story.fake.messages_left() == 1  # kept until the effect is known to be written
    story.read()
    assert story.fake.messages_left() == 0


def test_a_notice_is_read_while_another_cannot_be_forgotten(story: Watched) -> None:
    story.publish(REBALANCE)
    story.read()
    story.publish(WARNING, instance_action="terminate")
    story.cloud.failures.append(ProviderError(RefusalKind.DENIED, "no right to delete"))
    story.read()
    assert story.instance(story.only).state == "interrupting"


def test_the_same_warning_twice_is_one_interruption(story: Watched) -> None:
    story.publish(WARNING, instance_action="terminate")
    story.publish(WARNING, instance_action="terminate")
    story.read(2)
    assert len(story.events("interruption_noticed")) == 1
    assert story.fake.messages_left() == 0


def test_a_warning_that_could_not_be_applied_comes_again(story: Watched) -> None:
    story.publish(WARNING, instance_action="terminate")
    begin, entropy = story.runtime.begin, story.runtime.entropy
    with begin() as uow, open_job(uow, entropy, story.job_id, BY_PERSON):
        story.read(2)
    assert story.instance(story.only).state == "registered"
    assert story.fake.messages_left() == 1


def test_a_warning_is_kept_where_its_effect_was_not_committed(story: Watched) -> None:
    story.publish(WARNING, instance_action="terminate")
    story.read_without_commit()
    assert story.instance(story.only).state == "registered"
    assert story.fake.messages_left() == 1


def test_a_warning_read_far_too_late_only_makes_us_look(story: Watched) -> None:
    story.publish(WARNING, instance_action="terminate")
    story.time += timedelta(hours=2)
    story.read(2)
    assert story.instance(story.only).state == "registered"
    assert story.instance(story.only).describe_at <= story.time
    assert story.fake.messages_left() == 0


def test_the_event_of_its_end_gives_the_exact_time(story: Watched) -> None:
    story.cloud.end(story.machine_id, EndedBy.CLOUD_INTERRUPTION)
    ended_at = story.time
    story.publish(STATE, state="terminated")
    story.time += timedelta(seconds=9)
    story.read(2)
    machine = story.instance(story.only)
    assert (machine.state, machine.ended_by) == ("terminated", "cloud_interruption")
    assert (machine.ended_at, machine.ended_source) == (ended_at, "state_change_event")
    assert story.fake.messages_left() == 0


def test_an_end_that_the_cloud_does_not_show_yet_makes_us_look(story: Watched) -> None:
    story.publish(STATE, state="shutting-down")
    story.publish(STATE, state="terminated")
    story.read(2)
    assert story.instance(story.only).state == "registered"
    assert story.instance(story.only).describe_at <= story.time
    assert story.fake.messages_left() == 1  # the word on its end is kept until the row has ended


def test_events_tell_who_took_a_machine_that_ec2_shows_no_more(story: Watched) -> None:
    """The control plane was away for a night, and EC2 shows what ended for about an hour."""
    warned_at = story.time
    story.publish(WARNING, instance_action="terminate")
    story.time += timedelta(seconds=125)
    ended_at = story.time
    story.publish(STATE, state="terminated")
    del story.cloud.machines[story.machine_id]
    story.time += timedelta(hours=9)
    story.read(2)
    machine = story.instance(story.only)
    assert (machine.state, machine.ended_by) == ("terminated", "cloud_interruption")
    assert (machine.ended_at, machine.ended_source) == (ended_at, "state_change_event")
    assert machine.noticed_at == warned_at
    assert story.fake.messages_left() == 0


def test_notices_are_heard_though_ended_machines_cannot_be_asked_about(
    story: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(ids: tuple[str, ...], region: str | None) -> tuple[CloudMachine, ...]:
        raise ProviderError(RefusalKind.UNAVAILABLE, "a region does not answer")

    monkeypatch.setattr(story.cloud, "describe", silent)
    story.fake.publish(STATE, {"instance-id": "i-0fffffffffffffff0", "state": "terminated"})
    story.publish(WARNING, instance_action="terminate")
    story.read()
    assert story.instance(story.only).state == "interrupting"


def test_an_end_is_looked_at_in_the_region_of_its_event(story: Watched) -> None:
    """Also while another region does not answer, whose machines stay unknown."""
    pool = story.instance(story.only).pool
    assert pool is not None
    story.cloud.silent = {"us-east-1"}
    story.cloud.end(story.machine_id, EndedBy.CLOUD_INTERRUPTION)
    for region, machine_id in ((pool.region, story.machine_id), ("us-east-1", "i-0ffffffff")):
        event = {
            "source": "aws.ec2",
            "detail-type": STATE,
            "time": f"{story.time:%Y-%m-%dT%H:%M:%SZ}",
            "region": region,
            "detail": {"instance-id": machine_id, "state": "terminated"},
        }
        story.fake.put_message(json.dumps(event))
    story.read()
    assert story.instance(story.only).state == "terminated"


def test_a_rebalance_of_a_registered_machine_is_its_agents_to_tell(story: Watched) -> None:
    story.publish(REBALANCE)
    story.read(2)
    assert story.events("rebalance_recommended") == []
    assert story.fake.messages_left() == 0


def test_a_rebalance_of_a_machine_without_an_agent_is_told(story: Watched) -> None:
    story.set(tables.instances, story.only, state="launched")
    story.publish(REBALANCE)
    story.read(2)
    assert len(story.events("rebalance_recommended")) == 1


def test_a_machine_that_nobody_knows_is_waited_for_and_then_let_go(story: Watched) -> None:
    story.fake.publish(WARNING, {"instance-id": "i-0fffffffffffffff0"}, story.time)
    story.read(2)
    assert story.fake.messages_left() == 1
    story.time += timedelta(seconds=301)
    story.fake.publish(WARNING, {"instance-id": "i-0fffffffffffffff0"}, story.start)
    story.read(2)
    assert story.fake.messages_left() == 1


def test_a_queue_that_cannot_be_read_costs_a_line_in_the_log_only(
    story: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    story.fake.fail("ReceiveMessage", "AWS.SimpleQueueService.NonExistentQueue", times=2)
    story.publish(WARNING, instance_action="terminate")
    story.read()
    assert "could not be read" in caplog.text
    story.fake.world.faults.clear()
    story.read()
    assert story.instance(story.only).state == "interrupting"


def test_messages_about_something_else_are_deleted(fake: AwsFake) -> None:
    queue = InterruptionQueue(provider_for(fake).clients, fake.queue_url, "us-east-1")
    fake.put_message("not json")
    fake.put_message(json.dumps(["a", "list"]))
    fake.put_message(json.dumps({"detail-type": WARNING, "source": "aws.ec2", "detail": {}}))
    fake.put_message(json.dumps({"detail-type": WARNING, "source": "somebody.else"}))
    fake.publish("AWS Health Event", {"instance-id": "i-1"})
    assert queue.receive() == ()
    assert fake.messages_left() == 0


def test_many_messages_are_read_in_one_go(fake: AwsFake) -> None:
    queue = InterruptionQueue(provider_for(fake).clients, fake.queue_url, "us-east-1")
    for number in range(25):
        fake.publish(REBALANCE, {"instance-id": f"i-{number:02d}"})
    found = queue.receive()
    assert len({one.provider_instance_id for one in found}) == 25
    queue.forget(one.receipt for one in found)
    assert fake.messages_left() == 0


def test_a_message_is_read_by_its_detail_never_by_its_arn(fake: AwsFake) -> None:
    body = {
        "detail-type": STATE,
        "source": "aws.ec2",
        "time": "2026-03-01T12:00:00Z",
        "resources": ["arn:aws:ec2:us-east-1b:instance/i-other"],
        "detail": {"instance-id": "i-1", "state": "stopping"},
    }
    (found,) = read_message({"Body": json.dumps(body), "ReceiptHandle": "r"})
    assert (found.provider_instance_id, found.kind) == ("i-1", AnnouncementKind.STATE_CHANGE)
    assert (found.state, found.deadline) == (MachineState.SHUTTING_DOWN, None)


def test_without_a_queue_the_provider_announces_nothing(fake: AwsFake) -> None:
    silent, telling = provider_for(fake, queue_url=None), provider_for(fake)
    assert isinstance(silent, InterruptionFeed)
    assert (silent.announces, telling.announces) == (False, True)
    assert silent.receive_announcements() == ()
    silent.forget_announcements(("r",))


def test_a_wrong_queue_is_a_typed_error(fake: AwsFake) -> None:
    wrong = f"{fake.url}/123456789012/nothing-here"
    queue = InterruptionQueue(provider_for(fake).clients, wrong, "us-east-1")
    with pytest.raises(ProviderError):
        queue.receive()


def test_notices_go_on_being_read_from_a_queue_that_deletes_nothing(story: Watched) -> None:
    """A role without sqs:DeleteMessage: what is none of ours stays in the queue beside them."""
    story.fake.fail("DeleteMessageBatch", "AccessDeniedException", times=100)
    story.fake.put_message("not for us")
    story.publish(REBALANCE)
    story.read(2)
    story.fake.put_message("nor this")
    story.publish(WARNING, instance_action="terminate")
    story.read(2)
    assert story.instance(story.only).state == "interrupting"
    assert story.attempt(story.job_id).state == "draining"
    assert story.fake.messages_left() == 4


def test_a_late_event_of_an_end_corrects_the_time_and_the_bill(story: Watched) -> None:
    accruing = AccrueCosts(story.runtime)
    ended_at = story.time = story.time + timedelta(hours=2)
    story.cloud.end(story.machine_id, EndedBy.US)
    shown = story.cloud.machines[story.machine_id]
    story.cloud.machines[story.machine_id] = replace(shown, ended_at=None, ended_source="")
    story.pass_time(40)
    machine = story.instance(story.only)
    assert (machine.state, machine.ended_source) == ("terminated", "first_seen_gone")
    story.quote()
    story.pass_time(10)
    run_controller(story.runtime, accruing)
    story.quote()
    story.pass_time(10)
    run_controller(story.runtime, accruing)
    assert story.instance(story.only).cost_final_at is not None
    before = story.rows(ledger_entries)
    # It is published with its own, earlier time, and read long after the bill was closed.
    told = {"instance-id": story.machine_id, "state": "terminated"}
    story.fake.publish(STATE, told, ended_at)
    story.fake.publish(STATE, told, ended_at)
    work, heard = story.read_without_commit()
    fresh = ReadInterruptions(story.runtime)
    with story.runtime.begin() as uow:
        story.reading.apply(uow, work, heard)
    run_controller(story.runtime, fresh)
    machine = story.instance(story.only)
    assert (machine.ended_at, machine.ended_source) == (ended_at, "state_change_event")
    assert machine.cost_final_at is None
    assert len(story.events("end_revised")) == 1
    run_until_idle(story.runtime, (accruing,))
    after = story.rows(ledger_entries)
    revised = [entry for entry in after if entry.id not in {one.id for one in before}]
    assert {entry.reason for entry in revised} == {"end_revised"}
    assert sum(entry.amount_microusd for entry in revised) < 0
    assert not any(entry.estimated for entry in revised)
    hours = (machine.ended_at - machine.launched_at) / timedelta(hours=1)
    price = story.machine_price()
    assert sum(entry.amount_microusd for entry in after) == round(hours * price)
    assert story.instance(story.only).cost_final_at is not None
