"""The metadata server of one simulated machine, as strict as the clouds' own.

EC2: version 2 only, tokens with a life, 404 until a notice is armed, one fixed time per notice.
GCE: the flavour header both ways, hanging GETs with `last_etag` and `timeout_sec`.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.servers.http_server import HttpServer, QuietHandler

_TOKEN_PATH = "/latest/api/token"
_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "X-aws-ec2-metadata-token"
_GCE = "/computeMetadata/v1/instance/"


class FakeMetadata:
    """Serves both clouds' paths. Change `documents` and `values` through `arm` and `set_value`."""

    def __init__(self, name: str = "i-1") -> None:
        self.documents: dict[str, str] = {"instance-id": name}
        self.values: dict[str, str] = {
            "name": name,
            "preempted": "FALSE",
            "maintenance-event": "NONE",
        }
        self.broken_status: int | None = None
        self.tokens_given = 0
        self.calls: list[str] = []
        self._tokens: dict[str, float] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._server = HttpServer(self._handler())

    @property
    def url(self) -> str:
        """Base of all paths."""
        return self._server.url

    def stop(self) -> None:
        """Close it; hanging requests end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._server.close()

    def arm(self, path: str, document: Any) -> None:
        """Let an EC2 path below `/latest/meta-data/` answer from now on."""
        self.documents[path] = document if isinstance(document, str) else json.dumps(document)

    def set_value(self, name: str, value: str) -> None:
        """Change a GCE value; hanging requests for it answer at once."""
        with self._changed:
            self.values[name] = value
            self._changed.notify_all()

    def forget_tokens(self) -> None:
        """Every token given so far is refused from now on."""
        self._tokens.clear()

    def _ec2(self, method: str, path: str, headers: Any) -> tuple[int, str]:
        if path == _TOKEN_PATH:
            life = headers.get(_TTL, "")
            if method != "PUT" or not life.isdigit() or not 1 <= int(life) <= 21_600:
                return 400, ""
            self.tokens_given += 1
            token = secrets.token_hex(8)
            self._tokens[token] = time.monotonic() + int(life)
            return 200, token
        if self._tokens.get(headers.get(_TOKEN, ""), 0.0) < time.monotonic():
            return 401, ""
        name = path.removeprefix("/latest/meta-data/")
        return (200, self.documents[name]) if name in self.documents else (404, "")

    def _gce(self, path: str, query: dict[str, list[str]], headers: Any) -> tuple[int, str]:
        if headers.get("Metadata-Flavor") != "Google":
            return 403, ""
        name = path.removeprefix(_GCE)
        if name not in self.values:
            return 404, ""
        if query.get("wait_for_change") == ["true"]:
            seconds = float(query.get("timeout_sec", ["3600"])[0])
            etag = query.get("last_etag", ["0"])[0]
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopping or self.etag(name) != etag, timeout=seconds
                )
        return 200, self.values[name]

    def etag(self, name: str) -> str:
        """Changes whenever the value does; holds characters that a URL must quote."""
        return f"{self.values[name]}+/="

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(QuietHandler):
            def serve(self) -> None:
                parts = urlsplit(self.path)
                fake.calls.append(parts.path)
                google = parts.path.startswith(_GCE)
                if fake.broken_status is not None:
                    status, text = fake.broken_status, "broken"
                elif google:
                    status, text = fake._gce(parts.path, parse_qs(parts.query), self.headers)
                else:
                    status, text = fake._ec2(self.command, parts.path, self.headers)
                headers = {"Metadata-Flavor": "Google"} if google else {}
                name = parts.path.removeprefix(_GCE)
                if google and name in fake.values:
                    headers["ETag"] = fake.etag(name)
                self.answer(status, text.encode(), headers)

        return Handler
