"""Tests cannot reach past this machine."""

import socket

import httpx
import pytest
from pytest_socket import SocketConnectBlockedError

# An address that no network routes (RFC 5737), so that a broken guard harms nobody.
_OUTSIDE = "192.0.2.1"


@pytest.mark.filterwarnings("ignore:A test tried to use socket")
def test_a_socket_cannot_leave_loopback():
    with socket.socket() as outgoing, pytest.raises(SocketConnectBlockedError):
        outgoing.connect((_OUTSIDE, 80))


@pytest.mark.filterwarnings("ignore:A test tried to use socket")
def test_an_http_client_cannot_leave_loopback():
    with pytest.raises(SocketConnectBlockedError):
        httpx.get(f"http://{_OUTSIDE}/", timeout=1)


def test_loopback_stays_open():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
