"""Can every machine of the gang reach every other? Asked by TCP before any rank is started.

Each agent listens on the first port of its range while it prepares and says which attempt it
prepares; each connects to all the others. Not here: the training's own rendezvous (torchrun).
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable

from trainer.protocol.directive import Peer

PROBE_SECONDS_MAX = 60.0
CONNECT_SECONDS = 2.0
AGAIN_SECONDS = 0.5
GREETING_BYTES_MAX = 64


class PeerUnreachable(Exception):
    """The message names the rank and address that could not be reached."""


class NoFreePort(Exception):
    """Every port of the machine's range is taken."""


class ProbeListener:
    """Answers the probes of the peers for one attempt until closed."""

    def __init__(self, port: int, fence: int) -> None:
        """Raises OSError when the port is taken."""
        self._greeting = _greeting(fence)
        self._socket = socket.create_server(("", port), backlog=128)
        self._socket.settimeout(0.5)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="probe-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Free the port."""
        self._closing.set()
        self._thread.join(timeout=2.0)
        self._socket.close()

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(CONNECT_SECONDS)
                connection.sendall(self._greeting)


def probe_peers(
    peers: Iterable[Peer],
    own_rank: int,
    fence: int,
    is_cancelled: Callable[[], bool],
    seconds_max: float = PROBE_SECONDS_MAX,
) -> None:
    """Reach every peer once within `seconds_max` in all; raises PeerUnreachable."""
    missing = {peer.node_rank: peer for peer in peers if peer.node_rank != own_rank}
    deadline = time.monotonic() + seconds_max
    reasons: dict[int, str] = {}
    while missing and not is_cancelled():
        for rank, peer in sorted(missing.items()):
            reason = _try(peer, fence)
            if reason is None:
                del missing[rank]
            else:
                reasons[rank] = reason
        if missing and time.monotonic() >= deadline:
            named = "; ".join(
                f"rank {rank} at {peer.address}:{peer.port_from}: {reasons[rank]}"
                for rank, peer in sorted(missing.items())
            )
            raise PeerUnreachable(f"rank {own_rank} cannot reach {named}")
        if missing:
            time.sleep(AGAIN_SECONDS)


def hold_free_port(port_from: int, port_to: int) -> tuple[socket.socket, int]:
    """Bind a port of the range and keep it until the socket is closed; raises NoFreePort."""
    for port in range(port_from, port_to + 1):
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            held.bind(("", port))
            return held, port
        except OSError:
            held.close()
    raise NoFreePort(f"no free port between {port_from} and {port_to}")


def _try(peer: Peer, fence: int) -> str | None:
    """None when the peer answers for this attempt, else why not."""
    try:
        address = (peer.address, peer.port_from)
        with socket.create_connection(address, timeout=CONNECT_SECONDS) as connection:
            heard = b""
            while len(heard) < GREETING_BYTES_MAX and not heard.endswith(b"\n"):
                piece = connection.recv(GREETING_BYTES_MAX)
                if not piece:
                    break
                heard += piece
    except OSError as error:
        return str(error) or type(error).__name__
    return None if heard == _greeting(fence) else "it prepares another attempt"


def _greeting(fence: int) -> bytes:
    return f"lowtide {fence}\n".encode()
