"""Clients that are slow to say what they want lose their connection; slow work of ours goes on."""

import asyncio
import hashlib
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import StreamingResponse

from tests.bench.bench_environment import API_APP, api_settings, serve
from tests.integration.api.test_api_workdirs import member, packed
from tests.support.api.people_api import PeopleApi, people_api, settings_for
from tests.support.servers.postgres import PostgresForTests

RATE = 20_000
LIMITS = {
    "request_head_seconds": 1.5,
    "request_body_seconds": 1.5,
    "request_body_bytes_per_second": RATE,
    "keep_alive_seconds": 1.0,
}
# What is closed within so long was closed for a limit, and not by the test's own end.
PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def api(
    postgres: PostgresForTests, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PeopleApi]:
    folder = tmp_path_factory.mktemp("s")
    with people_api(settings_for(postgres.clone(), valkey_url, folder, **LIMITS)) as up:
        _add_stream(up.app)
        yield up


def _add_stream(app: FastAPI) -> None:
    """An answer that takes longer than every limit, as a log that is followed does."""

    async def stream(request: Request) -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            for number in range(5):
                await asyncio.sleep(0.7)
                yield f"{number}\n"

        return StreamingResponse(pieces())

    app.add_route("/stream-of-this-test", stream)


def connected(api: PeopleApi) -> socket.socket:
    address = urlsplit(api.url)
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS)


def head(api: PeopleApi, length: int, path: str = "/api/v1/jobs", method: str = "POST") -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\n"
        f"Content-Type: application/yaml\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def received(connection: socket.socket) -> bytes:
    """All until the other side closes; a reset counts as such an end."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def trickle(connection: socket.socket, stop: threading.Event) -> None:
    """A byte every tenth of a second, until nobody takes one."""
    try:
        while not stop.wait(0.1):
            connection.sendall(b"a")
    except OSError:
        pass


@pytest.mark.parametrize(
    ("begin", "trickles", "status"),
    [
        (b"", False, b""),
        (b"GET /healthz HT", False, b"408"),
        (b"GET /healthz HTTP/1.1\r\nX-Slow: ", True, b"408"),
        (b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n", True, b"405"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", False, b"200"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz", False, b"200"),
    ],
    ids=["silent", "half a head", "a byte at a time", "an unread body", "idle", "idle in a head"],
)
def test_a_connection_that_asks_nothing_is_closed(
    api: PeopleApi, begin: bytes, trickles: bool, status: bytes
):
    stop = threading.Event()
    with connected(api) as connection:
        connection.sendall(begin)
        writer = threading.Thread(target=trickle, args=(connection, stop))
        if trickles:
            writer.start()
        found = received(connection)
        stop.set()
        if trickles:
            writer.join()
    assert found[9:12] == status
    if status == b"408":
        assert b"application/problem+json" in found
        assert b"did not come within 1.5s" in found


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/workdirs/" + "0" * 64])
def test_a_body_that_trickles_is_refused(api: PeopleApi, path: str):
    stop = threading.Event()
    with connected(api) as connection:
        connection.sendall(head(api, 5_000, path, "PUT" if "workdirs" in path else "POST"))
        writer = threading.Thread(target=trickle, args=(connection, stop))
        writer.start()
        found = received(connection)
        stop.set()
        writer.join()
    assert found[9:12] == b"408", found
    assert b"LOWTIDE_REQUEST_BODY_BYTES_PER_SECOND" in found
    assert b"connection: close" in found.lower()


def test_a_slow_upload_that_keeps_the_rate_is_taken(api: PeopleApi):
    """It takes twice the seconds that a body gets in all, and earns them by what it sends."""
    content = packed(member("noise"), content=os.urandom(RATE * 6))
    path = f"/api/v1/workdirs/sha256:{hashlib.sha256(content).hexdigest()}"
    began = time.monotonic()
    with connected(api) as connection:
        connection.sendall(head(api, len(content), path, "PUT"))
        for start in range(0, len(content), RATE // 5):
            connection.sendall(content[start : start + RATE // 5])
            time.sleep(0.1)
        found = connection.recv(65_536)
    assert found[9:12] == b"201", found
    assert time.monotonic() - began > 2 * LIMITS["request_body_seconds"]


def test_an_answer_may_take_as_long_as_it_wants(api: PeopleApi):
    with httpx.stream("GET", f"{api.url}/stream-of-this-test", timeout=60) as answer:
        assert list(answer.iter_lines()) == ["0", "1", "2", "3", "4"]


def test_a_head_without_end_is_refused(api: PeopleApi):
    with connected(api) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        try:
            for _ in range(64):
                connection.sendall(b"y" * 16_384)
        except OSError:
            pass
        found = received(connection)
    assert found[9:12] in (b"431", b""), "an answer, or a reset by what was still on its way"


@pytest.mark.full
def test_the_program_of_up_has_the_limits(
    postgres: PostgresForTests, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
):
    folder = tmp_path_factory.mktemp("served")
    settings = {
        **api_settings(postgres.clone(), valkey_url, folder),
        "LOWTIDE_REQUEST_HEAD_SECONDS": "1.5",
    }
    with (
        serve(API_APP, folder, "/readyz", settings) as program,
        socket.create_connection(("127.0.0.1", program.port), timeout=60) as connection,
    ):
        connection.sendall(b"GET /healthz HT")
        assert received(connection)[9:12] == b"408"
