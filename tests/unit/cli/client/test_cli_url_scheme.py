"""An address with the wrong scheme is answered with the right one, in one sentence."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import UNREACHABLE, CommandFailed
from app.cli.client.server_address import AddressSource, Server
from tests.support.servers.http_server import QuietHandler, http_server
from tests.support.servers.tls_server import Authority, served

Turn = Callable[[socket.socket], object]


@contextmanager
def serving(*turns: Turn) -> Iterator[int]:
    """A server that does to each connection what its turn says: its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)

    def serve() -> None:
        for turn in turns:
            taken, _ = listener.accept()
            with taken:
                taken.settimeout(10)
                turn(taken)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join(timeout=20)
        listener.close()


def refuse(taken: socket.socket) -> None:
    """As uvicorn answers the first bytes of TLS, and nginx those of HTTP on its port of TLS."""
    taken.recv(65_536)
    taken.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def failure(url: str, source: AddressSource = AddressSource.NOTHING) -> CommandFailed:
    with pytest.raises(CommandFailed) as failed, ApiClient(Server(url, None, (), source)) as api:
        api.post("/jobs", {"run": "true"})
    assert failed.value.exit_code == UNREACHABLE
    return failed.value


def test_https_to_a_server_of_http_names_the_other_address() -> None:
    with serving(refuse) as port:
        told = failure(f"https://127.0.0.1:{port}", AddressSource.VARIABLE).message
    assert told == (
        f"the server at https://127.0.0.1:{port} speaks http, not https: "
        f"try http://127.0.0.1:{port} (LOWTIDE_SERVER_URL sets this address)"
    )


def test_http_to_a_server_of_https_names_the_other_address(tmp_path: Path) -> None:
    with served(Authority().server(tmp_path, "localhost", 60)) as port:
        told = failure(f"http://localhost:{port}").message
    assert told == (
        f"the server at http://localhost:{port} speaks https, not http: try https://localhost:{port}"
    )


def test_a_proxy_that_refuses_http_on_its_port_of_https_is_told_alike(tmp_path: Path) -> None:
    context = Authority().server(tmp_path, "localhost", 60)

    def shake_hands(taken: socket.socket) -> None:
        context.wrap_socket(taken, server_side=True).close()

    with serving(refuse, shake_hands) as port:
        told = failure(f"http://localhost:{port}").message
    assert "speaks https, not http: try https://localhost:" in told


@pytest.mark.parametrize(("host", "same"), [("127.0.0.1", True), ("elsewhere.example", False)])
def test_a_redirect_to_https_on_the_same_host_names_the_other_address(
    host: str, same: bool
) -> None:
    class Moved(QuietHandler):
        def serve(self) -> None:
            self.body()
            self.answer(308, b"", {"Location": f"https://{host}{self.path}"})

    with http_server(Moved) as url:
        told = failure(url).message
    assert told.endswith("speaks https, not http: try https://127.0.0.1") is same
    assert ("answered 308: it is not the address of a Lowtide api" in told) is not same
