"""What an agent does with the credentials that it is given, by a clock of our own."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from trainer.agent.checkpoints import storage_credentials
from trainer.agent.checkpoints.storage_credentials import NoCredentials, StorageAccess
from trainer.protocol.agent_report import AgentReport
from trainer.protocol.directive import ReportReply
from trainer.protocol.storage_access import StorageGrant, StorageHeld, renewed_below_seconds
from trainer.protocol.wire import decode, encode


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def grant(name: str = "s.1", seconds: float = 3_600.0, service: str = "s3") -> StorageGrant:
    return StorageGrant(service, name, seconds, {"token": name})


def test_a_machine_with_rights_of_its_own_says_nothing() -> None:
    access = StorageAccess()
    assert access.held() is None
    assert access.provider_for("s3") is None
    assert not access.refuse("s3")
    assert access.complaint() is None


def test_seconds_are_counted_from_the_sending_of_the_report() -> None:
    clock = Clock()
    access = StorageAccess(["gs", "s3"], clock)
    assert access.held() == (StorageHeld("gs"), StorageHeld("s3"))
    access.take([grant()], sent_at=990.0)
    clock.now = 1_090.0
    assert access.held() == (StorageHeld("gs"), StorageHeld("s3", "s.1", 3_500.0))
    provider = access.provider_for("s3")
    assert provider is not None
    # obstore keeps it until that instant: it asks again before every request.
    assert provider()["token"] == "s.1"
    assert provider()["expires_at"].year == 2000


def test_a_request_waits_for_what_is_about_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_credentials, "WAIT_SECONDS", 30.0)
    access, rung = StorageAccess(["s3"]), threading.Event()
    access.notify_by(rung.set)
    provider = access.provider_for("s3")
    assert provider is not None
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.append(provider()))
    waiting.start()
    assert rung.wait(30)
    access.take([grant()], access._now())
    waiting.join(30)
    assert found[0]["token"] == "s.1"


def test_what_never_comes_is_no_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_credentials, "WAIT_SECONDS", 0.05)
    access = StorageAccess(["s3"])
    provider = access.provider_for("s3")
    assert provider is not None
    access.take([grant(seconds=5.0)], access._now())  # too little to begin a request with
    with pytest.raises(NoCredentials):
        provider()


def test_a_refusal_is_not_held_against_the_next_one() -> None:
    access = StorageAccess(["s3"], Clock())
    access.take([grant("s.1")], 1_000.0)
    assert access.refuse("s3")
    assert access.held() == (StorageHeld("s3", "s.1", 3_600.0, refused=True),)
    access.take([grant("s.2")], 1_000.0)
    assert access.held() == (StorageHeld("s3", "s.2", 3_600.0),)


def test_what_a_store_has_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one comes with the answer to a report, some time after the refusal."""
    monkeypatch.setattr(storage_credentials, "WAIT_SECONDS", 0.05)
    access = StorageAccess(["s3"])
    provider = access.provider_for("s3")
    assert provider is not None
    access.take([grant("s.1")], access._now())
    assert provider()["token"] == "s.1"
    access.refuse("s3")
    with pytest.raises(NoCredentials):
        provider()
    access.take([grant("s.2")], access._now())
    assert provider()["token"] == "s.2"


def test_it_complains_while_a_renewal_is_overdue() -> None:
    clock = Clock()
    access = StorageAccess(["s3"], clock)
    access.take([grant()], 1_000.0)
    assert access.complaint() is None
    clock.now += 3_600 - 1_199
    told = access.complaint()
    assert told is not None
    assert "another 20 minutes" in told
    assert access.complaint() is None
    clock.now += 301
    assert access.complaint() is not None
    access.take([grant("s.2")], clock.now)
    assert access.complaint() is None


def test_a_cut_off_machine_can_save_until_its_lease_ends() -> None:
    """At the last answer it holds the lease, the time to save, and a quarter of an hour."""
    assert renewed_below_seconds(1_800.0) == 2_880.0
    assert renewed_below_seconds(2_400.0) < 3_600.0


def test_an_agent_of_the_release_before_and_one_of_this_understand_each_other() -> None:
    """Unknown fields are ignored, and what is not said is as before."""
    old = {"protocol": 1, "instance_id": "i", "boot_id": "b", "session_id": "s", "seq": 1,
           "uptime_ms": 1, "phase": "idle"}  # fmt: skip
    assert decode(AgentReport, old).storage is None
    reply = {"ack_fact_no": 0, "lease_seconds": 1.0, "next_report_seconds": 1.0,
             "directive": {"kind": "hold", "version": 1}}  # fmt: skip
    assert decode(ReportReply, reply).storage == ()
    told = encode(ReportReply(0, 1.0, 1.0, decode(ReportReply, reply).directive, (grant(),)))
    assert decode(ReportReply, told).storage == (grant(),)
    assert "s.1" not in repr(grant()).replace("grant='s.1'", "")
