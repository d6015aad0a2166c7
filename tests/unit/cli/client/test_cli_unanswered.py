"""A server that listens and does not answer is told apart from one that nothing listens at."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import UNREACHABLE, CommandFailed
from app.cli.client.server_address import Server

LIMIT_SECONDS = 0.2


class SilentServer:
    """Takes connections, and reads what comes; answers nothing until it is told to."""

    def __init__(self, *, closes: bool = False, answers_from: int | None = None) -> None:
        self._closes, self._answers_from = closes, answers_from
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        """One connection at a time: a client that gave up closes its own."""
        held: list[socket.socket] = []
        self._listener.settimeout(0.02)
        while not self._stops.is_set():
            try:
                taken, _ = self._listener.accept()
            except TimeoutError:
                continue
            held.append(taken)
            taken.settimeout(5)
            self.requests.append(taken.recv(65_536).decode("latin-1"))
            if self._answers_from is not None and len(self.requests) >= self._answers_from:
                body = b'{"name": "tour"}'
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                taken.sendall(head + body)
            elif self._closes:
                held.pop().close()
        for one in held:
            one.close()

    def close(self) -> None:
        """Nothing listens any more."""
        self._stops.set()
        self._thread.join(timeout=10)
        self._listener.close()


@contextmanager
def asked(server: SilentServer) -> Iterator[ApiClient]:
    with (
        closing(server),
        ApiClient(Server(server.url, "lt_key"), timeout_seconds=LIMIT_SECONDS) as api,
    ):
        yield api


def failure_of(api: ApiClient, **options: object) -> CommandFailed:
    with pytest.raises(CommandFailed) as failed:
        api.post("/jobs", {"name": "tour"}, **options)  # type: ignore[arg-type]
    assert failed.value.exit_code == UNREACHABLE
    return failed.value


def test_a_submission_without_an_answer_says_what_may_have_been_done() -> None:
    server = SilentServer()
    with asked(server) as api:
        told = failure_of(api, idempotency_key="once").message
    assert "did not answer within 0.2s, asked 3 times" in told
    assert "cannot be reached" not in told
    assert "carried out, but once at most" in told
    assert len(server.requests) == 3
    assert all("idempotency-key: once" in one.lower() for one in server.requests)


def test_a_command_that_may_have_changed_something_is_not_sent_twice() -> None:
    server = SilentServer()
    with asked(server) as api:
        told = failure_of(api).message
    assert "did not answer within 0.2s." in told
    assert "may have been carried out" in told
    assert len(server.requests) == 1


def test_a_question_is_asked_again_and_changed_nothing() -> None:
    server = SilentServer()
    with asked(server) as api:
        told = failure_of(api, only_asks=True).message
    assert "Nothing was changed; try again in a minute." in told
    assert len(server.requests) == 3


def test_a_late_answer_to_a_repeated_submission_is_taken() -> None:
    server = SilentServer(answers_from=3)
    with asked(server) as api:
        assert api.post("/jobs", {"name": "tour"}, idempotency_key="once") == {"name": "tour"}


def test_a_connection_that_breaks_is_no_server_that_cannot_be_reached() -> None:
    server = SilentServer(closes=True)
    with asked(server) as api:
        told = failure_of(api).message
    assert "closed the connection before it answered" in told


def test_nobody_who_listens_is_told_as_before() -> None:
    server = SilentServer()
    server.close()
    with ApiClient(Server(server.url, "lt_key"), timeout_seconds=LIMIT_SECONDS) as api:
        told = failure_of(api, idempotency_key="once").message
    assert "cannot be reached (Connection refused)" in told
