"""How `lowtide login` gets a key: a person confirms it in the browser.

The page's code comes to a port of this machine that nobody else reaches, or is typed. Only who has
the verifier, which never leaves this process before that, can change it for a key (PKCE). Not here:
where the key is kept (`app.cli.client.key_store`).
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Empty, Queue
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import typer

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import CommandFailed
from app.cli.client.terminal import Terminal
from app.domain.access.login_challenge import challenge_of, check_letters, machine_name
from app.domain.access.session_rules import CODE_LENGTH, LOGIN_LIFE, LOGIN_TRIES_MAX

_WAIT_SECONDS: Final = LOGIN_LIFE.total_seconds()
_LOOK_SECONDS: Final = 0.5
_SOCKET_SECONDS: Final = 5
_UNKNOWN: Final = 404
_WRONG_CODE: Final = 422
_DONE: Final = (
    b"<!doctype html><meta charset=utf-8><title>Lowtide</title>"
    b"<p>The terminal has what it needs. You can close this page."
)


def log_in_by_browser(
    api: ApiClient,
    terminal: Terminal,
    *,
    opens_browser: bool,
    projects: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The answer with a new key of the person that confirms. Raises CommandFailed.

    opens_browser: False prints the page's address, and asks for the code that it shows. projects:
    the only ones that the key opens; None for all of the person's.
    """
    verifier = secrets.token_urlsafe(32)
    challenge = challenge_of(verifier)
    asked: dict[str, Any] = {"verifier": verifier}
    if projects is not None:
        asked["projects"] = list(projects)
    if opens_browser:
        with CodeListener() as listener:
            page = _page(api.url, challenge, listener.port)
            if webbrowser.open(page):
                terminal.note(
                    f"Confirm in the browser, if it shows {check_letters(challenge)}. It has "
                    f"opened {page}"
                )
                return _redeem(api, asked, listener.codes(), others_send=True)
    page = _page(api.url, challenge)
    terminal.note(
        f"Open this address in any browser, and check that it shows {check_letters(challenge)}:"
    )
    terminal.note(page)
    return _redeem(api, asked, _typed_codes())


class CodeListener:
    """A port of this machine to which the page brings its code. Used as a context manager."""

    def __init__(self) -> None:
        found: Queue[str] = Queue()

        class Handler(BaseHTTPRequestHandler):
            timeout = _SOCKET_SECONDS

            def do_GET(self) -> None:  # the name that http.server calls
                code = parse_qs(urlsplit(self.path).query).get("code", [""])[0]
                if len(code) != CODE_LENGTH:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(_DONE)
                found.put(code)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: the address holds the code."""

        self._found = found
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> CodeListener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_SOCKET_SECONDS)

    def codes(self) -> Iterator[str]:
        """The codes that come, within ten minutes."""
        ends_at = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < ends_at:
            try:
                # In short turns, so that Ctrl-C is heard on every system.
                yield self._found.get(timeout=_LOOK_SECONDS)
            except Empty:
                continue


def _redeem(
    api: ApiClient, asked: dict[str, Any], codes: Iterator[str], *, others_send: bool = False
) -> dict[str, Any]:
    """asked: what is sent with each code. others_send: any page of this machine may have sent a
    code before the login was confirmed, so one for a login that is not yet is no reason to end.
    """
    tries = 0
    for code in codes:
        try:
            made: dict[str, Any] = api.post("/login", {**asked, "code": code})
        except CommandFailed as failure:
            if others_send and failure.status == _UNKNOWN:
                continue
            if failure.status != _WRONG_CODE:
                raise
            sys.stderr.write(f"{failure.message}\n")
            tries += 1
            if tries < LOGIN_TRIES_MAX:
                continue
            break
        return made
    raise CommandFailed("nobody confirmed this login in time: run `lowtide login` again")


def _typed_codes() -> Iterator[str]:
    for _ in range(LOGIN_TRIES_MAX):
        yield str(typer.prompt("Code", err=True)).strip()


def _page(url: str, challenge: str, port: int | None = None) -> str:
    asked: dict[str, object] = {
        "challenge": challenge,
        "machine": machine_name(socket.gethostname()),
    }
    if port is not None:
        asked["port"] = port
    return f"{url}/login?{urlencode(asked)}"
