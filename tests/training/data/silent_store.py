"""A gate before a store on loopback, at which answers stop: nothing is closed or refused, which is
how a bucket hangs.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

_PIECE = 1 << 16


class SilentGate:
    """Carries connections to ``port`` of this machine until ``silence``. ``is_silent`` is set once
    an answer was kept back.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._to_keep = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.is_silent = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def silence(self, answers: int) -> None:
        """So many of the next answers are kept back, with all that follows on their connection."""
        with self._lock:
            self._to_keep = answers

    def close(self) -> None:
        """Ends every connection, and the threads that carry them."""
        self._closed.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed.is_set():
                client, _ = self._listening.accept()
                store = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += (client, store)
                for ways in ((client, store, False), (store, client, True)):
                    self._begin(self._carry, *ways)

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _carry(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                if answers and self._keeps_back():
                    self._closed.wait()
                    break
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _keeps_back(self) -> bool:
        with self._lock:
            keeps = self._to_keep > 0
            self._to_keep -= keeps
        if keeps:
            self.is_silent.set()
        return keeps
