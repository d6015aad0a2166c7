"""Calls to webhooks against real servers on loopback, some of which mean harm."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, ClassVar

import pytest

from app.adapters.outgoing.pinned_connections import (
    ANSWER_BYTES_MAX,
    CallLimit,
    PinnedConnections,
)
from app.adapters.outgoing.webhook_client import WebhookAnswer, WebhookClient
from app.domain.notifications.channel_targets import WebAddress
from app.ports.people.message_sender import MessageNotSent
from tests.support.servers.http_server import HttpServer, QuietHandler
from tests.support.servers.tls_server import Authority, served

HOST = "hooks.test"
LOOPBACK = (ip_network("127.0.0.0/8"),)
SECONDS = 0.6
HUGE_BYTES = 10 << 30


@dataclass
class Receiver:
    """What came to the servers of this file, and how much they could send."""

    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    sent_bytes: int = 0
    gave_up: threading.Event = field(default_factory=threading.Event)


class Webhook(QuietHandler):
    """Answers by the path."""

    receiver: ClassVar[Receiver]

    def serve(self) -> None:
        self.receiver.requests.append((self.path, self.headers["Host"], self.body()))
        match self.path.partition("?")[0]:
            case "/archived":
                self.answer(410, b"channel_is_archived")
            case "/echo":
                self.answer(500, self.path.encode())
            case "/redirect":
                self.answer(302, b"", {"Location": "http://127.0.0.1:1/inward"})
            case "/huge":
                self.huge()
            case "/drip":
                self.drip(b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 1_000)
            case "/slow-body":
                self.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", whole=True)
                self.drip(bytes(5_000))
            case "/interim":
                self.flood(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)
            case "/no-http":
                self.wfile.write(b"220 mail.example.com ESMTP\r\n")
                self.close_connection = True
            case "/cut":
                self.close_connection = True
            case _:
                self.answer(200, b"ok")

    def huge(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(HUGE_BYTES))
        self.end_headers()
        self.flood(bytes(1 << 16))

    def flood(self, content: bytes) -> None:
        """The same again and again, as fast as it is taken."""
        try:
            for _ in range(HUGE_BYTES // len(content)):
                self.wfile.write(content)
                self.receiver.sent_bytes += len(content)
        except OSError:
            self.receiver.gave_up.set()
        self.close_connection = True

    def drip(self, content: bytes, *, whole: bool = False) -> None:
        """Each byte within any time limit of a socket; whole: all of them at once."""
        parts = [content] if whole else [bytes([one]) for one in content]
        try:
            for part in parts:
                self.wfile.write(part)
                time.sleep(0.05)
        except OSError:
            self.receiver.gave_up.set()
        self.close_connection = True


@pytest.fixture
def receiver() -> Receiver:
    Webhook.receiver = Receiver()
    return Webhook.receiver


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def tls_port(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp("tls")
    with served(authority.server(folder, HOST, 1), Webhook) as port:
        yield port


@pytest.fixture(scope="module")
def plain_port() -> Iterator[int]:
    server = HttpServer(Webhook)
    yield server.server_address[1]
    server.close()


class Names:
    """A resolver that gives each of these answers in turn, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = itertools.chain(answers, itertools.repeat(answers[-1]))
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return next(self._answers)


def client(authority: Authority, names: Names, allowed: Any = LOOPBACK) -> WebhookClient:
    return WebhookClient(PinnedConnections(allowed, names), authority.context, SECONDS)


def https(port: int, path: str = "/ok", host: str = HOST) -> WebAddress:
    return WebAddress(host, port, True, path)


def refusal(calls: WebhookClient, address: WebAddress) -> str:
    with pytest.raises(MessageNotSent) as refused:
        calls.post(address, b"{}", {})
    return str(refused.value)


HERE = ("127.0.0.1",)


def test_the_checked_address_is_called_by_the_name_of_the_host(
    authority: Authority, tls_port: int, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    names = Names(HERE)
    answer = client(authority, names).post(https(tls_port), b'{"a":1}', {"X-A": "b"})
    assert answer == WebhookAnswer(200, "ok")
    assert receiver.requests == [("/ok", f"{HOST}:{tls_port}", b'{"a":1}')]
    assert names.asked == [HOST], "one look-up for each call"


def test_a_name_that_changes_between_check_and_call_leads_nowhere_else(
    authority: Authority, tls_port: int, receiver: Receiver
):
    names = Names(HERE, ("10.0.0.7",))
    calls = client(authority, names)
    assert calls.post(https(tls_port), b"{}", {}).status == 200
    assert "leads to 10.0.0.7, which is private" in refusal(calls, https(tls_port))
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1", "10.0.0.7"),
        ("169.254.169.254",),
        ("::ffff:127.0.0.1",),
        ("64:ff9b::7f00:1",),
        ("fe80::1%lo",),
    ],
)
def test_nothing_is_called_where_any_address_leads_inward(
    authority: Authority, tls_port: int, receiver: Receiver, addresses: Sequence[str]
):
    told = refusal(client(authority, Names(addresses)), https(tls_port))
    assert f"{HOST} leads to {ip_address(addresses[-1])}" in told
    assert receiver.requests == []


def test_loopback_is_called_only_where_the_operator_names_it(
    authority: Authority, tls_port: int, plain_port: int, receiver: Receiver
):
    calls = client(authority, Names(HERE), allowed=())
    plain = WebAddress("127.0.0.1", plain_port, False, "/ok")
    assert "which is loopback" in refusal(calls, https(tls_port))
    assert "which is loopback" in refusal(calls, plain)
    assert receiver.requests == []
    assert client(authority, Names(HERE)).post(plain, b"{}", {}).status == 200


def test_without_encryption_nothing_else_is_called(authority: Authority, plain_port: int):
    everything = (ip_network("0.0.0.0/0"),)
    calls = client(authority, Names(("10.0.0.7",)), allowed=everything)
    told = refusal(calls, WebAddress(HOST, plain_port, False, "/ok"))
    assert "would be called without encryption" in told


def test_a_certificate_of_another_host_or_authority_is_refused(
    authority: Authority, tls_port: int, receiver: Receiver
):
    other = refusal(client(authority, Names(HERE)), https(tls_port, host="other.test"))
    assert "other.test shows a certificate that is not trusted" in other
    unknown = client(Authority(), Names(HERE))
    assert "certificate that is not trusted" in refusal(unknown, https(tls_port))
    assert receiver.requests == []


def test_a_redirect_inward_is_not_followed(authority: Authority, tls_port: int, receiver: Receiver):
    told = refusal(client(authority, Names(HERE)), https(tls_port, "/redirect"))
    assert "answers 302, a redirect, which is not followed" in told
    assert [path for path, _, _ in receiver.requests] == ["/redirect"]


def test_of_an_endless_answer_64_kib_are_read(
    authority: Authority, tls_port: int, receiver: Receiver
):
    answer = client(authority, Names(HERE)).post(https(tls_port, "/huge"), b"{}", {})
    assert answer == WebhookAnswer(200, "")
    assert receiver.gave_up.wait(10)
    # What the buffers of both sides hold is sent, too.
    assert receiver.sent_bytes < 64 * ANSWER_BYTES_MAX


def test_a_call_ends_in_time_though_each_byte_comes_in_time(
    authority: Authority, tls_port: int, receiver: Receiver
):
    begun = time.monotonic()
    told = refusal(client(authority, Names(HERE)), https(tls_port, "/drip"))
    assert told.startswith("It did not answer in full within 0.6s")
    assert time.monotonic() - begun < 5
    assert receiver.gave_up.wait(10), "the connection is closed"


def test_a_connection_that_comes_up_as_the_time_ends_is_ended_too():
    here, there = socket.socketpair()
    with here, there, CallLimit(0.05) as limit:
        time.sleep(0.2)
        limit.watch(here)
        there.settimeout(2)
        assert there.recv(1) == b"", "it may be read from for ever"


def test_a_receiver_that_has_answered_need_not_finish(
    authority: Authority, tls_port: int, receiver: Receiver
):
    answer = client(authority, Names(HERE)).post(https(tls_port, "/slow-body"), b"{}", {})
    assert answer == WebhookAnswer(200, "")
    assert receiver.gave_up.wait(10)


def test_a_host_that_hangs_or_is_not_known_is_told_in_time(authority: Authority, tls_port: int):
    held = threading.Event()

    def hangs(host: str, port: int) -> Sequence[str]:
        held.wait(10)
        raise OSError("no such name")

    calls = WebhookClient(PinnedConnections(LOOPBACK, hangs), authority.context, SECONDS)
    assert "was not found in time" in refusal(calls, https(tls_port))
    held.set()
    assert "no such name is known" in refusal(calls, https(tls_port))
    assert f"takes no connection at port {1}" in refusal(client(authority, Names(HERE)), https(1))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/archived", f"{HOST} answers 410 (channel_is_archived)."),
        ("/echo?hunter2", f"{HOST} answers 500."),
        ("/interim", f"{HOST} answers with more than 64 KiB."),
        ("/no-http", f"{HOST} does not answer as HTTP does."),
        ("/cut", f"{HOST} does not answer as HTTP does."),
    ],
)
def test_a_refusal_is_told_without_what_may_be_secret(
    authority: Authority, tls_port: int, receiver: Receiver, path: str, told: str
):
    assert refusal(client(authority, Names(HERE)), https(tls_port, path)) == told
