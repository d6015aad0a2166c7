"""Logs on their way to the control plane: order, lost answers, the cap, the end first."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support.agent.fake_control_plane import FakeControlPlane, wait_until
from trainer.agent.machine.control_plane_client import ControlPlaneClient
from trainer.agent.machine.log_shipper import LogShipper
from trainer.agent.secrets.masked_logs import MaskedLogs
from trainer.agent.secrets.secret_mask import SecretMask
from trainer.protocol.agent_report import Registration
from trainer.protocol.run_config import RunConfig


@pytest.fixture
def plane() -> Iterator[FakeControlPlane]:
    config = RunConfig("job", "job", 1, 1, "file:///x", 1, 60.0)
    made = FakeControlPlane(config)
    yield made
    made.stop()


@pytest.fixture
def client(plane: FakeControlPlane) -> Iterator[ControlPlaneClient]:
    client = ControlPlaneClient(plane.url)
    registration = Registration(1, "launch-token", "n", "i-1", "b", "s", 0, "127.0.0.1", 1, 9)
    client.credential = client.register(registration).credential
    yield client
    client.close()


def test_logs_arrive_once_and_in_order_when_answers_are_lost(
    plane: FakeControlPlane, client: ControlPlaneClient
) -> None:
    shipper = LogShipper(client)
    expected = b""
    for number in range(10):
        line = f"line {number}\n".encode()
        expected += line
        shipper.write("a/b.log", line)
        if number % 3 == 1:
            plane.lose_log_answers = 2  # more than the client's own second try
        shipper.send_pending()
    assert shipper.flush(60.0)
    assert plane.logs["a/b.log"] == expected


def test_a_line_of_the_agents_own_does_not_part_a_value_that_is_hidden(
    plane: FakeControlPlane, client: ControlPlaneClient
) -> None:
    mask = SecretMask()
    mask.hide(["hunter2-of-wandb"])
    logs = MaskedLogs(LogShipper(client), mask)
    logs.write("s", b"key=hunter2-of")
    logs.say("s", "the disk is full; hunter2-of-wandb is not")
    logs.write("s", b"-wandb\n")
    assert logs.flush(60.0)
    assert plane.logs["s"] == b"key=[lowtide] the disk is full; *** is not\n***\n"


def test_a_restarted_agent_appends_to_the_stream_it_finds(
    plane: FakeControlPlane, client: ControlPlaneClient
) -> None:
    plane.logs["s"] = b"from the earlier agent\n"
    shipper = LogShipper(client)
    shipper.write("s", b"from this one\n")
    assert shipper.flush(60.0)
    assert plane.logs["s"] == b"from the earlier agent\nfrom this one\n"


def test_beyond_the_cap_the_oldest_goes_and_the_stream_says_so(
    plane: FakeControlPlane, client: ControlPlaneClient
) -> None:
    shipper = LogShipper(client, pending_max=1_000)
    for number in range(300):
        shipper.write("s", f"line {number:03d}\n".encode())
    assert shipper.flush(60.0)
    text = plane.logs["s"].decode()
    assert "1701 bytes of log are missing here" in text
    assert "line 188" not in text
    assert text.endswith("line 299\n")
    assert "faster than they could be sent" in text


def test_a_cap_reached_while_nobody_answers_names_that_reason(
    plane: FakeControlPlane, client: ControlPlaneClient
) -> None:
    shipper = LogShipper(client, pending_max=1_000)
    shipper.write("s", b"sent\n")
    plane.lose_log_answers = 2
    assert not shipper.send_pending()
    for number in range(300):
        shipper.write("s", f"line {number:03d}\n".encode())
    assert shipper.flush(60.0)
    assert "missing here: the control plane could not be reached" in plane.logs["s"].decode()


def _many_lines(count: int) -> bytes:
    return b"".join(b"line %06d of the training\n" % number for number in range(count))


def test_the_end_goes_first_and_the_rest_fills_its_gap(
    plane: FakeControlPlane, client: ControlPlaneClient
) -> None:
    shipper = LogShipper(client, makes_gaps=True)
    shipper.write("s", b"begin\n")
    assert shipper.flush(60.0)
    whole = _many_lines(40_000) + b"RuntimeError: the reason\n"
    plane.log_seconds = 0.3
    shipper.write("s", whole)
    shipper.send_end("s", 20.0)
    first = plane.logs["s"]
    assert first.endswith(b"RuntimeError: the reason\n")
    assert first.count(b"line") < 10_000, "the end was to go first"
    shipper.write("s", b"after the end\n")
    plane.log_seconds = 0.0
    assert shipper.flush(60.0)
    assert plane.logs["s"] == b"begin\n" + whole + b"after the end\n"


@pytest.mark.parametrize("lost", range(4))
def test_an_end_whose_answers_are_lost_arrives_once(
    plane: FakeControlPlane, client: ControlPlaneClient, lost: int
) -> None:
    shipper = LogShipper(client, makes_gaps=True)
    shipper.write("s", b"begin\n")
    assert shipper.flush(60.0)
    shipper.write("s", b"more\n")
    plane.lose_log_answers = lost  # the client itself tries twice
    shipper.send_pending()
    whole = _many_lines(20_000)
    shipper.write("s", whole)
    plane.lose_log_answers = lost
    shipper.send_end("s", 20.0)
    plane.lose_log_answers = lost
    assert shipper.flush(60.0)
    assert plane.logs["s"] == b"begin\nmore\n" + whole


def test_an_end_for_a_release_that_knows_no_gaps_has_a_note_in_it(
    plane: FakeControlPlane, client: ControlPlaneClient
) -> None:
    plane.log_gaps = False
    shipper = LogShipper(client)
    shipper.write("s", _many_lines(40_000) + b"RuntimeError: the reason\n")
    shipper.send_end("s", 20.0)
    assert shipper.flush(60.0)
    text = plane.logs["s"].decode()
    assert text.endswith("RuntimeError: the reason\n")
    assert "bytes of log are missing here: they could not be sent in time" in text
    assert text.count("line") < 10_000


def test_an_end_is_waited_for_no_longer_than_it_may_take(
    plane: FakeControlPlane, client: ControlPlaneClient
) -> None:
    shipper = LogShipper(client)
    plane.log_seconds = 3.0
    shipper.write("s", b"RuntimeError: the reason\n")
    shipper.send_end("s", 0.3)
    assert not shipper.flush(0.0), "nobody has answered as yet"
    plane.log_seconds = 0.0
    assert shipper.flush(60.0)
    assert plane.logs["s"] == b"RuntimeError: the reason\n"


def test_an_end_overtakes_a_round_that_is_under_way(
    plane: FakeControlPlane, client: ControlPlaneClient
) -> None:
    other = ControlPlaneClient(plane.url)
    other.credential = client.credential
    shipper = LogShipper(other, makes_gaps=True)
    plane.log_seconds = 0.2
    shipper.write("s", _many_lines(200_000))
    sender = threading.Thread(target=shipper.run, daemon=True)
    sender.start()
    wait_until(lambda: bool(plane.logs.get("s")), lambda: "nothing is sent")
    shipper.write("s", b"RuntimeError: the reason\n")
    shipper.send_end("s", 20.0)
    assert plane.logs["s"].endswith(b"RuntimeError: the reason\n")
    assert plane.logs["s"].count(b"line") < 100_000
    shipper.stop()
    sender.join(30.0)
