"""The metadata endpoints, asked over real HTTP as an agent on the machine asks them."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message

import pytest

from app.ports.cloud_provider import ProviderError, RefusalKind
from tests.support.deployment.scripted_local_cloud import (
    AWS_POOL,
    GCP_POOL,
    LocalCloudForTests,
    an_order,
    eventually,
    open_local_cloud,
)
from trainer.agent.notices import Notice, NoticeKind
from trainer.agent.notices.aws import Ec2Notices
from trainer.agent.notices.gcp import GceNotices

TOKEN_PATH = "/latest/api/token"
TTL, TOKEN = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
ACTION = "/latest/meta-data/spot/instance-action"
PREEMPTED = "/computeMetadata/v1/instance/preempted"
GOOGLE = {"Metadata-Flavor": "Google"}


@dataclass
class Answer:
    status: int
    text: str
    headers: Message


@dataclass
class Endpoint:
    cloud: LocalCloudForTests
    machine_id: str
    port: int

    def ask(self, path: str, headers: dict[str, str], method: str = "GET") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=150)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            text = response.read().decode()
            return Answer(response.status, text, response.headers)
        finally:
            connection.close()

    def token(self, ttl: str = "60") -> str:
        answer = self.ask(TOKEN_PATH, {TTL: ttl}, "PUT")
        assert answer.status == 200
        return answer.text

    def ec2(self, path: str) -> Answer:
        return self.ask(path, {TOKEN: self.token()})

    def gce(self, path: str) -> Answer:
        return self.ask(path, GOOGLE)


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloudForTests]:
    """For tests that only ask: its two machines stay as they are."""
    with open_local_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def asked_ec2(shared_cloud: LocalCloudForTests) -> Endpoint:
    return ec2_endpoint(shared_cloud)


@pytest.fixture(scope="module")
def asked_gce(shared_cloud: LocalCloudForTests) -> Endpoint:
    return gce_endpoint(shared_cloud)


@pytest.fixture
def ec2() -> Iterator[Endpoint]:
    with open_local_cloud() as cloud:
        yield ec2_endpoint(cloud)


@pytest.fixture
def gce() -> Iterator[Endpoint]:
    with open_local_cloud() as cloud:
        yield gce_endpoint(cloud)


def ec2_endpoint(cloud: LocalCloudForTests) -> Endpoint:
    machine_id = cloud.launch(an_order(AWS_POOL, token="ec2"))
    url = cloud.environment(machine_id)["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
    return Endpoint(cloud, machine_id, int(url.rpartition(":")[2]))


def gce_endpoint(cloud: LocalCloudForTests) -> Endpoint:
    machine_id = cloud.launch(an_order(GCP_POOL, token="gce"))
    host = cloud.environment(machine_id)["GCE_METADATA_HOST"]
    return Endpoint(cloud, machine_id, int(host.rpartition(":")[2]))


@pytest.mark.parametrize("ttl", ["0", "21601", "-1", "", "1.5", "abc", "9" * 30, "٣"])
def test_a_token_needs_a_lifetime_in_range(asked_ec2: Endpoint, ttl: str) -> None:
    assert (
        asked_ec2.ask(TOKEN_PATH, {TTL: ttl.encode("utf-8").decode("latin-1")}, "PUT").status == 400
    )
    assert asked_ec2.ask(TOKEN_PATH, {}, "PUT").status == 400


def test_tokens_of_the_longest_and_shortest_life_are_given(asked_ec2: Endpoint) -> None:
    assert asked_ec2.token("21600") != asked_ec2.token("1")
    assert asked_ec2.ask(TOKEN_PATH, {TTL: "60"}, "GET").status == 405
    assert (
        asked_ec2.ask(TOKEN_PATH, {TTL: "60", "X-Forwarded-For": "10.0.0.1"}, "PUT").status == 403
    )


def test_nothing_is_told_without_a_living_token(asked_ec2: Endpoint) -> None:
    path = "/latest/meta-data/instance-id"
    assert asked_ec2.ask(path, {}).status == 401
    assert asked_ec2.ask(path, {TOKEN: "made-up"}).status == 401
    brief = asked_ec2.token("1")
    assert asked_ec2.ask(path, {TOKEN: brief}).text == asked_ec2.machine_id
    eventually(lambda: asked_ec2.ask(path, {TOKEN: brief}).status == 401, "the token expires")


def test_an_ec2_machine_reads_who_and_where_it_is(asked_ec2: Endpoint) -> None:
    for path, text in {
        "instance-type": "p3.2xlarge",
        "placement/availability-zone": "us-west-2a",
        "placement/region": "us-west-2",
        "instance-life-cycle": "spot",
        "events/maintenance/scheduled": "[]",
        "tags/instance": "job",
        "tags/instance/job": "j-1",
    }.items():
        assert asked_ec2.ec2(f"/latest/meta-data/{path}").text == text
    identity = json.loads(asked_ec2.ec2("/latest/dynamic/instance-identity/document").text)
    assert identity["instanceId"] == asked_ec2.machine_id
    assert identity["region"] == "us-west-2"
    assert asked_ec2.ec2("/latest/meta-data/no/such/path").status == 404
    assert asked_ec2.ask(ACTION, {TOKEN: asked_ec2.token()}, "POST").status == 405


def test_an_ec2_notice_is_absent_then_fixed(ec2: Endpoint) -> None:
    legacy = "/latest/meta-data/spot/termination-time"
    rebalance = "/latest/meta-data/events/recommendations/rebalance"
    for path in (ACTION, legacy, rebalance):
        assert ec2.ec2(path).status == 404
    deadline = ec2.cloud.provider.interrupt(ec2.machine_id, 30)
    first = ec2.ec2(ACTION).text
    told = deadline.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert first == f'{{"action":"terminate","time":"{told}"}}'
    assert ec2.ec2(legacy).text == told
    assert list(json.loads(ec2.ec2(rebalance).text)) == ["noticeTime"]
    time.sleep(1.1)  # a deadline computed at each look would have moved by now
    ec2.cloud.provider.interrupt(ec2.machine_id, 5)
    assert ec2.ec2(ACTION).text == first


def test_ec2_metadata_is_there_again_after_the_daemon_died(ec2: Endpoint) -> None:
    deadline = ec2.cloud.provider.interrupt(ec2.machine_id, 30)
    old = ec2.token()
    ec2.cloud.kill_daemon()
    ec2.cloud.machine(ec2.machine_id)  # the first call starts another
    assert ec2.ask(ACTION, {TOKEN: old}).status == 401
    assert datetime.fromisoformat(json.loads(ec2.ec2(ACTION).text)["time"]) <= deadline


def test_the_endpoint_ends_with_its_machine(ec2: Endpoint) -> None:
    ec2.cloud.provider.terminate((ec2.machine_id,))
    ec2.cloud.await_end(ec2.machine_id)
    with pytest.raises(ConnectionRefusedError):
        ec2.token()


def test_garbage_is_answered_or_dropped_and_the_rest_works_on(asked_ec2: Endpoint) -> None:
    for bytes_sent in (b"\0\xff\r\n\r\n", b"GET /\r\n\r\n", b"x" * 40_000, b"GET / HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", asked_ec2.port), timeout=60) as link:
            link.sendall(bytes_sent)
            link.shutdown(socket.SHUT_WR)
            try:
                assert link.recv(100)[:12] in (b"HTTP/1.1 400", b"")
            except ConnectionResetError:
                continue
    assert asked_ec2.ec2("/latest/meta-data/instance-id").status == 200


def test_google_metadata_needs_its_header_and_sends_it_back(asked_gce: Endpoint) -> None:
    assert asked_gce.ask(PREEMPTED, {}).status == 403
    assert asked_gce.ask(PREEMPTED, {**GOOGLE, "X-Forwarded-For": "10.0.0.1"}).status == 403
    for path, status in ((PREEMPTED, 200), ("/computeMetadata/v1/none", 404), ("/", 404)):
        answer = asked_gce.gce(path)
        assert answer.status == status
        assert answer.headers["Metadata-Flavor"] == "Google"


def test_a_google_machine_reads_who_and_where_it_is(asked_gce: Endpoint) -> None:
    prefix = "/computeMetadata/v1/instance"
    assert asked_gce.gce(f"{prefix}/name").text == asked_gce.machine_id
    assert asked_gce.gce(f"{prefix}/id").text.isdigit()
    assert asked_gce.gce(f"{prefix}/zone").text.endswith("/zones/us-central1-a")
    assert asked_gce.gce(f"{prefix}/machine-type").text.endswith("/machineTypes/a3-highgpu-1g")
    assert asked_gce.gce(f"{prefix}/maintenance-event").text == "NONE"
    assert asked_gce.gce(f"{prefix}/attributes/LOWTIDE_LAUNCH_TOKEN").text == "one-time"


def test_a_hanging_get_returns_with_the_preemption(gce: Endpoint) -> None:
    before = gce.gce(PREEMPTED)
    assert before.text == "FALSE"
    path = f"{PREEMPTED}?wait_for_change=true&timeout_sec=120&last_etag={before.headers['ETag']}"
    answers: list[Answer] = []
    waiting = threading.Thread(target=lambda: answers.append(gce.gce(path)))
    waiting.start()
    waiting.join(timeout=0.3)
    assert waiting.is_alive()
    gce.cloud.provider.interrupt(gce.machine_id, 30)
    waiting.join(timeout=60)
    assert [answer.text for answer in answers] == ["TRUE"]
    assert answers[0].headers["ETag"] != before.headers["ETag"]
    assert gce.gce(path).text == "TRUE"  # an old etag answers at once


def test_google_gives_the_notice_that_it_granted_and_no_other(gce: Endpoint) -> None:
    """Its metadata names no deadline: the machine would tell another one than the cloud keeps."""
    with pytest.raises(ProviderError, match="this one has 30s") as refused:
        gce.cloud.provider.interrupt(gce.machine_id, 10)
    assert refused.value.kind is RefusalKind.REJECTED
    assert gce.gce(PREEMPTED).text == "FALSE"
    began = datetime.now(UTC)
    deadline = gce.cloud.provider.interrupt_as_usual(gce.machine_id)
    environment = gce.cloud.environment(gce.machine_id)
    told = float(environment["LOWTIDE_NOTICE_SECONDS"])
    seen = GceNotices(f"http://127.0.0.1:{gce.port}", told, wait_seconds=60).poll()
    assert seen is not None
    assert seen.seconds_left == told == 30
    assert told <= (deadline - began).total_seconds() < told + 20


def test_a_hanging_get_ends_at_its_own_time_limit(gce: Endpoint) -> None:
    answer = gce.gce(f"{PREEMPTED}?wait_for_change=true&timeout_sec=1")
    assert (answer.status, answer.text) == (200, "FALSE")
    assert gce.gce(f"{PREEMPTED}?wait_for_change=true&timeout_sec=soon").status == 400


def test_the_agents_own_watchers_read_these_endpoints(ec2: Endpoint) -> None:
    amazon = Ec2Notices(f"http://127.0.0.1:{ec2.port}")
    assert amazon.instance_id() == ec2.machine_id
    assert amazon.poll() is None
    ec2.cloud.provider.interrupt(ec2.machine_id, 30)
    seen = amazon.poll()
    assert seen is not None
    assert seen.kind is NoticeKind.INTERRUPTION
    assert seen.seconds_left is not None
    assert 10 < seen.seconds_left <= 30

    launched = ec2.cloud.launch(an_order(GCP_POOL, token="token-2"))
    host = ec2.cloud.environment(launched)["GCE_METADATA_HOST"]
    google = GceNotices(f"http://{host}", notice_seconds=30.0, wait_seconds=60)
    assert google.instance_id() == launched
    assert google.poll() is None
    found: list[Notice | None] = []
    watching = threading.Thread(target=lambda: found.append(google.poll()))
    watching.start()
    ec2.cloud.provider.interrupt(launched, 30)
    watching.join(timeout=90)
    assert [notice and notice.kind for notice in found] == [NoticeKind.INTERRUPTION]
