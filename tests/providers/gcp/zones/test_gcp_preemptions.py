"""Preemptions that zones record, as announcements."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.domain.billing.machine_facts import TimeSource
from app.ports.cloud_provider import MachineState
from app.ports.interruption_feed import AnnouncementKind, InterruptionFeed
from tests.providers.gcp.gcp_under_test import a_pool, an_order, open_provider
from tests.support.gce.gce_fake import FakeGce


def test_the_provider_has_a_feed(gce: FakeGce) -> None:
    provider = open_provider(gce)
    assert isinstance(provider, InterruptionFeed)
    assert provider.announces
    assert provider.receive_announcements() == ()


def test_a_preemption_under_way_is_a_notice_with_its_granted_deadline(gce: FakeGce) -> None:
    provider = open_provider(gce)
    (machine,) = provider.launch(an_order()).accepted
    gce.engine.preempt(machine.provider_instance_id)
    (heard,) = provider.receive_announcements()
    assert heard.provider_instance_id == machine.provider_instance_id
    assert heard.kind is AnnouncementKind.INTERRUPTION
    assert heard.deadline == heard.at + timedelta(seconds=120)
    assert abs(datetime.now(UTC) - heard.at) < timedelta(seconds=30)
    assert provider.receive_announcements() == (heard,), "it comes again until it is forgotten"
    provider.forget_announcements([heard.receipt])
    assert provider.receive_announcements() == ()


def test_without_the_long_notice_the_deadline_is_near(gce: FakeGce) -> None:
    gce.engine.world.notice_supported = False
    gce.engine.world.stopping_seconds = 30.0
    provider = open_provider(gce)
    (machine,) = provider.launch(an_order()).accepted
    gce.engine.preempt(machine.provider_instance_id)
    (heard,) = provider.receive_announcements()
    assert heard.deadline == heard.at + timedelta(seconds=30)


def test_a_machine_that_is_gone_is_told_with_the_end_of_its_operation(gce: FakeGce) -> None:
    provider = open_provider(gce)
    (machine,) = provider.launch(an_order()).accepted
    gce.engine.preempt(machine.provider_instance_id, notice=False)
    (heard,) = provider.receive_announcements()
    (gone,) = provider.describe((machine.provider_instance_id,))
    assert (heard.kind, heard.state) == (AnnouncementKind.STATE_CHANGE, MachineState.TERMINATED)
    assert heard.at == gone.ended_at
    assert heard.deadline is None


def test_every_zone_is_read_the_newest_first_and_no_further_than_needed(gce: FakeGce) -> None:
    provider = open_provider(gce)
    zones = ("us-central1-a", "us-central1-c", "europe-west4-b")
    for number, zone in enumerate(zones):
        (machine,) = provider.launch(an_order(a_pool(zone), token=f"t{number}")).accepted
        gce.engine.preempt(machine.provider_instance_id, notice=False)
    (old,) = provider.launch(an_order(token="old")).accepted
    gce.engine.preempt(old.provider_instance_id, notice=False)
    for operation in gce.engine.operations.values():
        if old.provider_instance_id in operation.target_link:
            operation.inserted_at -= 3_600
    gce.page_size = 1
    heard = provider.receive_announcements()
    assert len(heard) == 3
    assert [one.at for one in heard] == sorted(one.at for one in heard)


def test_only_configured_zones_and_our_own_machines_count(gce: FakeGce) -> None:
    provider = open_provider(gce, regions=("us-central1",), zones=("us-central1-b",))
    elsewhere = open_provider(gce)
    (machine,) = elsewhere.launch(an_order()).accepted
    gce.engine.preempt(machine.provider_instance_id, notice=False)
    assert provider.receive_announcements() == ()
    for operation in gce.engine.operations.values():
        operation.target_link = operation.target_link.replace("/lt-", "/other-")
    assert elsewhere.receive_announcements() == ()


def test_the_end_of_a_preemption_is_told_after_its_notice_was_forgotten(gce: FakeGce) -> None:
    provider = open_provider(gce)
    (machine,) = provider.launch(an_order()).accepted
    gce.engine.preempt(machine.provider_instance_id)
    (notice,) = provider.receive_announcements()
    provider.forget_announcements([notice.receipt])
    gce.engine.advance(300)
    (gone,) = provider.describe((machine.provider_instance_id,))
    (told,) = provider.receive_announcements()
    assert (told.kind, told.state) == (AnnouncementKind.STATE_CHANGE, MachineState.TERMINATED)
    assert (told.at, told.time_source) == (gone.ended_at, TimeSource.OPERATION_END)
    provider.forget_announcements([told.receipt])
    assert provider.receive_announcements() == ()
