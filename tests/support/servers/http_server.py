"""Small HTTP servers on loopback, each with a handler of its test's own, served in threads.

Not here: TLS (`tls_server`), or what any one service answers (`aws`, `gce`, `object_stores`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """Logs nothing, and keeps the connection after an answer. `serve` answers every method."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def serve(self) -> None:
        """What a handler answers to `command` and `path`."""
        raise NotImplementedError

    def _served(self) -> None:
        self.serve()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _served  # noqa: N815

    def body(self) -> bytes:
        """What came with the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer with its length; to a HEAD, no content."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class HttpServer(ThreadingHTTPServer):
    """Serves from when it is made, on a free port; says nothing of clients that were killed."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        """Take no more requests."""
        self.shutdown()
        self.server_close()
        self._thread.join(timeout=60)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server that answers so to the end of the block."""
    server = HttpServer(handler)
    try:
        yield server.url
    finally:
        server.close()
