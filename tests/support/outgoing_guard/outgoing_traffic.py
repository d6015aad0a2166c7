"""Proof that nothing of a whole deployment wants to leave this machine.

Python programs note where their sockets go (`outgoing_guard`); what other languages send, and
whatever obeys proxy settings, comes to a proxy here that serves nobody. Not here: the guard of the
tests' own process (pytest-socket).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.support.servers.http_server import HttpServer, QuietHandler

GUARD = Path(__file__).parent


class OutgoingTraffic:
    """`environment` is for the programs; `outside()` what they wanted beyond loopback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: list[str] = []
        self._server = HttpServer(self._handler())

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make a program's traffic seen."""
        proxy = self._server.url
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        return {
            "PYTHONPATH": str(GUARD),
            "WATCH_SOCKETS_FOLDER": str(self._folder),
            **dict.fromkeys([*names, *(name.lower() for name in names)], proxy),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost,::1"),
        }

    def programs(self) -> list[str]:
        """Command lines of the Python programs that were watched."""
        return [line.removeprefix("program ") for line in self._lines("program ")]

    def outside(self) -> list[str]:
        """Every attempt to leave loopback."""
        return [*self._lines("outside "), *self._asked]

    def close(self) -> None:
        self._server.close()

    def _lines(self, start: str) -> list[str]:
        return [
            line
            for path in sorted(self._folder.iterdir())
            for line in path.read_text("utf-8").splitlines()
            if line.startswith(start)
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        traffic = self

        class Handler(QuietHandler):
            def _refuse(self) -> None:
                traffic._asked.append(f"outside {self.command} {self.path}")
                self.send_error(403, "nothing leaves this machine")

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_CONNECT = _refuse  # noqa: N815

        return Handler


@contextmanager
def watched_traffic(folder: Path) -> Iterator[OutgoingTraffic]:
    """A watch whose notes lie in `folder`, which is made."""
    folder.mkdir(parents=True)
    traffic = OutgoingTraffic(folder)
    try:
        yield traffic
    finally:
        traffic.close()
