"""The watchers of both clouds against strict metadata servers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.agent.fake_metadata import FakeMetadata
from trainer.agent.notices import NoticeKind
from trainer.agent.notices.aws import Ec2Notices
from trainer.agent.notices.gcp import GceNotices
from trainer.agent.notices.metadata_http import MetadataUnknown

ACTION = "spot/instance-action"


@pytest.fixture
def metadata() -> Iterator[FakeMetadata]:
    server = FakeMetadata("i-0abc")
    yield server
    server.stop()


def soon(seconds: float) -> str:
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_ec2_identity_and_nothing_planned(metadata: FakeMetadata) -> None:
    source = Ec2Notices(metadata.url)
    assert source.instance_id() == "i-0abc"
    assert source.poll() is None
    assert metadata.tokens_given == 1


def test_ec2_interruption_is_one_notice_with_its_time(metadata: FakeMetadata) -> None:
    source = Ec2Notices(metadata.url)
    metadata.arm(ACTION, {"action": "terminate", "time": soon(120)})
    first, again = source.poll(), source.poll()
    assert first is not None
    assert again is not None
    assert first.kind is NoticeKind.INTERRUPTION
    assert first.action == "terminate"
    assert first.seconds_left is not None
    assert 115 < first.seconds_left <= 120
    assert first.notice_id == again.notice_id
    metadata.arm(ACTION, {"action": "terminate", "time": soon(60)})
    moved = source.poll()
    assert moved is not None
    assert moved.notice_id != first.notice_id


def test_ec2_refused_token_is_renewed(metadata: FakeMetadata) -> None:
    source = Ec2Notices(metadata.url)
    source.poll()
    metadata.forget_tokens()
    assert source.poll() is None
    assert metadata.tokens_given == 2


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_ec2_trouble_is_unknown_and_never_a_notice(metadata: FakeMetadata, status: int) -> None:
    source = Ec2Notices(metadata.url)
    metadata.broken_status = status
    with pytest.raises(MetadataUnknown):
        source.poll()
    metadata.broken_status = None
    assert source.poll() is None


def test_ec2_a_body_without_json_is_unknown(metadata: FakeMetadata) -> None:
    metadata.arm(ACTION, "<html>")
    with pytest.raises(MetadataUnknown):
        Ec2Notices(metadata.url).poll()


def test_ec2_a_time_that_is_none_is_still_a_notice(metadata: FakeMetadata) -> None:
    metadata.arm(ACTION, {"action": "stop", "time": "soon"})
    notice = Ec2Notices(metadata.url).poll()
    assert notice is not None
    assert notice.action == "stop"
    assert notice.seconds_left is None


def test_ec2_hibernation_begins_with_its_notice(metadata: FakeMetadata) -> None:
    metadata.arm(ACTION, {"action": "hibernate", "time": soon(120)})
    notice = Ec2Notices(metadata.url).poll()
    assert notice is not None
    assert notice.seconds_left == 0.0


def test_ec2_rebalance_and_scheduled_events(metadata: FakeMetadata) -> None:
    source = Ec2Notices(metadata.url)
    metadata.arm("events/recommendations/rebalance", {"noticeTime": soon(0)})
    hint = source.poll()
    assert hint is not None
    assert hint.kind is NoticeKind.REBALANCE
    begins = (datetime.now(UTC) + timedelta(days=2)).strftime("%d %b %Y %H:%M:%S GMT")
    event = {"EventId": "e-1", "Code": "instance-retirement", "NotBefore": begins}
    done = {"EventId": "e-0", "Code": "system-reboot", "NotBefore": begins, "State": "completed"}
    metadata.arm("events/maintenance/scheduled", [done, {**event, "State": "active"}])
    planned = source.poll()
    assert planned is not None
    assert planned.kind is NoticeKind.MAINTENANCE
    assert planned.action == "instance-retirement"
    assert planned.seconds_left is not None
    assert planned.seconds_left > 86_400


def test_a_metadata_server_that_hangs_is_unknown_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = Ec2Notices(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=0.2)
        started = time.monotonic()
        with pytest.raises(MetadataUnknown):
            source.poll()
        assert time.monotonic() - started < 30


def test_gce_hanging_get_answers_when_the_value_changes(metadata: FakeMetadata) -> None:
    source = GceNotices(metadata.url, notice_seconds=120.0, wait_seconds=120)
    assert source.instance_id() == "i-0abc"
    assert source.poll() is None
    started = time.monotonic()
    threading.Timer(0.3, metadata.set_value, ("preempted", "TRUE")).start()
    notice = source.poll()
    assert notice is not None
    assert notice.action == "preempt"
    assert notice.seconds_left == 120.0
    assert 0.3 <= time.monotonic() - started < 60
    again = source.poll()
    assert again is not None
    assert again.notice_id == notice.notice_id


def test_gce_hanging_get_ends_by_itself(metadata: FakeMetadata) -> None:
    source = GceNotices(metadata.url, wait_seconds=1)
    source.poll()
    assert source.poll() is None
    assert metadata.calls.count("/computeMetadata/v1/instance/preempted") == 2


def test_gce_maintenance_is_told_apart(metadata: FakeMetadata) -> None:
    metadata.set_value("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    notice = GceNotices(metadata.url).poll()
    assert notice is not None
    assert notice.kind is NoticeKind.MAINTENANCE


def test_gce_an_answer_of_another_server_is_unknown(metadata: FakeMetadata) -> None:
    metadata.broken_status = 404
    with pytest.raises(MetadataUnknown):
        GceNotices(metadata.url).poll()
