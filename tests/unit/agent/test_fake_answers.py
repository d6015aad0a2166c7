"""The control plane that plays opposite agents in tests answers as /openapi.json describes it.

Else an agent could rest on an answer that no real control plane gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.agent.fake_control_plane import FakeControlPlane, digest_of
from tests.support.api.described_answers import client_hooks
from trainer.protocol.agent_report import PROTOCOL_VERSION
from trainer.protocol.directive import DirectiveKind
from trainer.protocol.run_config import RunConfig

LOGS = "/agent/v1/logs"
REGISTRATION: dict[str, Any] = {
    "protocol": PROTOCOL_VERSION,
    "launch_token": "launch-token",
    "nonce": "nonce",
    "provider_instance_id": "i-1",
    "boot_id": "boot",
    "session_id": "session",
    "uptime_ms": 1_000,
    "private_address": "127.0.0.1",
    "port_from": 20_000,
    "port_to": 20_100,
}


@pytest.fixture
def plane() -> Iterator[FakeControlPlane]:
    made = FakeControlPlane(RunConfig("job", "job", 1, 1, "file:///nowhere", 3, 60.0))
    yield made
    made.stop()


@pytest.fixture
def client(plane: FakeControlPlane) -> Iterator[httpx.Client]:
    """Its hooks hold every answer against the description."""
    signed_in = {"Authorization": "Bearer credential-1-of-i-1"}
    with httpx.Client(
        base_url=plane.url, timeout=60, headers=signed_in, event_hooks=client_hooks()
    ) as made:
        yield made


def register(client: httpx.Client, **other: Any) -> int:
    return client.post("/agent/v1/register", json={**REGISTRATION, **other}).status_code


def append(client: httpx.Client, offset: int, **more: Any) -> httpx.Response:
    asked = {"stream": "attempt-0001/node-0.log", "byte_offset": offset, **more}
    return client.post(LOGS, params=asked, content=b"12345")


def test_registrations_and_reports(plane: FakeControlPlane, client: httpx.Client) -> None:
    plane.not_known_yet = 1
    assert [register(client), register(client), register(client, nonce="other")] == [425, 200, 409]
    assert [register(client, launch_token="x"), register(client, protocol=0)] == [401, 426]
    report = {
        "protocol": PROTOCOL_VERSION, "instance_id": "instance-i-1", "boot_id": "boot",
        "session_id": "session", "seq": 1, "uptime_ms": 1_000, "phase": "idle",
    }  # fmt: skip
    assert client.post("/agent/v1/reports", json=report).status_code == 200
    plane.report_status = 503
    assert client.post("/agent/v1/reports", json=report).status_code == 503


def test_logs_say_where_their_stream_ends(plane: FakeControlPlane, client: httpx.Client) -> None:
    assert append(client, 0).status_code == 401
    assert register(client) == 200
    assert append(client, 0).json()["next_offset"] == 5
    wrong = append(client, 0)
    assert (wrong.status_code, wrong.json()["next_offset"]) == (409, 5)
    assert append(client, 5, gap_bytes=5).json()["next_offset"] == 15
    wrong = append(client, 6, fills_gap=True)
    assert (wrong.status_code, wrong.json()["next_offset"]) == (409, 5)
    assert append(client, 5, fills_gap=True).json()["next_offset"] == 10


def test_working_folders(plane: FakeControlPlane, client: httpx.Client) -> None:
    assert register(client) == 200
    plane.workdirs[digest_of(b"packed")] = b"packed"
    answers = [client.get(f"/agent/v1/workdirs/{digest_of(one)}") for one in (b"packed", b"other")]
    assert [one.status_code for one in answers] == [200, 404]


def test_secrets(plane: FakeControlPlane, client: httpx.Client) -> None:
    assert register(client) == 200
    plane.direct(DirectiveKind.PREPARE, 1)
    plane.secrets = {"WANDB_API_KEY": "value"}
    path = "/agent/v1/attempts/1/secrets"
    assert client.get(path).json() == {"values": {"WANDB_API_KEY": "value"}, "cloud": []}
    plane.secrets_refusal = "GONE is gone."
    assert client.get(path).status_code == 409
