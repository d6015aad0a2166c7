"""Queues of several regions, and the events that are routed to announcements."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.adapters.providers.aws import interruption_queues
from app.adapters.providers.aws.interruption_queues import queue_place, read_message
from app.ports.cloud_provider import ProviderError
from app.ports.interruption_feed import Announcement, AnnouncementKind
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import provider_for

EAST, WEST = "us-east-1", "us-west-2"
WARNING = "EC2 Spot Instance Interruption Warning"
RESERVED = "EC2 Capacity Reservation Instance Interruption Warning"
HEALTH = "AWS Health Event"
AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def both(fake: AwsFake) -> dict[str, Any]:
    return {"queue_urls": (f"{EAST}={fake.queue_url}", f"{WEST}={fake.queue_url}")}


def ids(found: tuple[Announcement, ...]) -> set[str]:
    return {one.provider_instance_id for one in found}


@pytest.mark.parametrize(
    ("entry", "region"),
    [
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/lowtide", "eu-west-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/lowtide", "cn-north-1"),
        ("https://vpce-1.sqs.us-gov-west-1.vpce.amazonaws.com/1/lowtide", "us-gov-west-1"),
        ("https://us-west-2.queue.amazonaws.com/123456789012/lowtide", "us-west-2"),
        ("http://127.0.0.1:9000/123456789012/lowtide", "us-east-1"),
        ("ap-south-1=https://sqs.example.com/1/lowtide", "ap-south-1"),
    ],
)
def test_a_queues_region_is_read_from_its_address(entry: str, region: str) -> None:
    found, address = queue_place(entry, "us-east-1")
    assert found == region
    assert address.startswith("http")


def test_notices_come_from_the_queues_of_all_regions_and_are_forgotten_there(
    fake: AwsFake,
) -> None:
    provider = provider_for(fake, **both(fake))
    fake.publish(WARNING, {"instance-id": "i-east"})
    fake.publish(WARNING, {"instance-id": "i-west"}, region=WEST)
    found = provider.receive_announcements()
    assert ids(found) == {"i-east", "i-west"}
    provider.forget_announcements(
        one.receipt for one in found if one.provider_instance_id == "i-west"
    )
    assert (fake.messages_left(EAST), fake.messages_left(WEST)) == (1, 0)
    provider.forget_announcements(one.receipt for one in found)
    assert fake.messages_left(EAST) == 0


def test_a_queue_that_fails_leaves_the_others(
    fake: AwsFake, caplog: pytest.LogCaptureFixture
) -> None:
    gone = f"{WEST}={fake.url}/123456789012/nothing-here"
    provider = provider_for(fake, queue_urls=(gone, f"{EAST}={fake.queue_url}"))
    fake.publish(WARNING, {"instance-id": "i-east"})
    assert ids(provider.receive_announcements()) == {"i-east"}
    assert "nothing-here could not be read" in caplog.text
    with pytest.raises(ProviderError):
        provider_for(fake, queue_urls=(gone,)).receive_announcements()


def test_a_queue_that_deletes_nothing_is_told_and_the_others_are_cleared(fake: AwsFake) -> None:
    provider = provider_for(fake, **both(fake))
    fake.publish(WARNING, {"instance-id": "i-east"})
    fake.publish(WARNING, {"instance-id": "i-west"}, region=WEST)
    found = provider.receive_announcements()
    fake.fail("DeleteMessageBatch", "AccessDeniedException")
    with pytest.raises(ProviderError):
        provider.forget_announcements(one.receipt for one in found)
    assert fake.messages_left(EAST) + fake.messages_left(WEST) == 1


def test_a_queue_that_hangs_holds_up_no_other_and_is_heard_later(
    fake: AwsFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruption_queues, "PATIENCE_SECONDS", 0.5)
    answered, let_go = fake.answer, threading.Event()

    def hangs_in_the_west(region: str, *asked: Any) -> Any:
        assert region != WEST or let_go.wait(60)
        return answered(region, *asked)

    monkeypatch.setattr(fake, "answer", hangs_in_the_west)
    fake.world.queue_waits = False
    provider = provider_for(fake, **both(fake))
    fake.publish(WARNING, {"instance-id": "i-east"})
    fake.publish(WARNING, {"instance-id": "i-west"}, region=WEST)
    assert ids(provider.receive_announcements()) == {"i-east"}
    let_go.set()
    heard: set[str] = set()
    for _ in range(20):
        heard |= ids(provider.receive_announcements())
        if "i-west" in heard:
            break
    assert "i-west" in heard


def test_a_queue_that_hangs_keeps_no_other_from_forgetting(
    fake: AwsFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruption_queues, "PATIENCE_SECONDS", 0.5)
    fake.world.queue_waits = False
    provider = provider_for(
        fake, queue_urls=(f"{WEST}={fake.queue_url}", f"{EAST}={fake.queue_url}")
    )
    fake.publish(WARNING, {"instance-id": "i-east"})
    fake.publish(WARNING, {"instance-id": "i-west"}, region=WEST)
    found = provider.receive_announcements()
    answered, let_go = fake.answer, threading.Event()

    def hangs_in_the_west(region: str, *asked: Any) -> Any:
        assert region != WEST or let_go.wait(60)
        return answered(region, *asked)

    monkeypatch.setattr(fake, "answer", hangs_in_the_west)
    try:
        provider.forget_announcements(one.receipt for one in found)
        assert not let_go.is_set()
        assert fake.messages_left(EAST) == 0
    finally:
        let_go.set()


def test_a_reservations_warning_tells_its_own_time(fake: AwsFake) -> None:
    until = AT + timedelta(seconds=90)
    detail = {
        "instance-id": "i-1",
        "instance-action": "terminate",
        "instance-termination-time": f"{until:%Y-%m-%dT%H:%M:%SZ}",
        "azId": "use1-az1",
    }
    fake.publish(RESERVED, detail, AT)
    (found,) = provider_for(fake).receive_announcements()
    assert (found.kind, found.deadline) == (AnnouncementKind.INTERRUPTION, until)


def health(code: str = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", **more: Any) -> Any:
    return {
        "service": "EC2",
        "eventTypeCode": code,
        "eventTypeCategory": "scheduledChange",
        "statusCode": "upcoming",
        "startTime": "Thu, 12 Mar 2026 05:00:00 GMT",
        "affectedEntities": [{"entityValue": "i-1"}, {"entityValue": "i-2"}],
        **more,
    }


def test_planned_maintenance_is_a_reason_to_leave(fake: AwsFake) -> None:
    fake.publish(HEALTH, health(), AT, source="aws.health")
    found = provider_for(fake).receive_announcements()
    assert [(one.provider_instance_id, one.kind, one.deadline) for one in found] == [
        ("i-1", AnnouncementKind.REBALANCE, None),
        ("i-2", AnnouncementKind.REBALANCE, None),
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"service": "RDS"},
        {"eventTypeCategory": "accountNotification"},
        {"statusCode": "closed"},
        {"affectedEntities": [{"entityValue": "vol-1"}]},
        {"affectedEntities": []},
    ],
)
def test_other_news_of_health_is_passed_over(more: dict[str, Any]) -> None:
    event = {
        "source": "aws.health",
        "detail-type": HEALTH,
        "time": "2026-03-01T12:00:00Z",
        "detail": health(**more),
    }
    assert read_message({"Body": json.dumps(event), "ReceiptHandle": "r"}) == ()
