"""The fake AWS on the wire: one port on loopback for every service and region.

A request is told apart by its signature's scope. EC2's own rules, price lists and quotas answer
first; moto answers the rest in this process. Not here: those rules (`aws_fake_ec2`).
"""

from __future__ import annotations

import re
import socket
import sys
import time
import traceback
from typing import Any

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.botocore_stubber import BotocoreStubber

from tests.support.servers.http_server import HttpServer, QuietHandler

Answer = tuple[int, dict[str, str], bytes]
_SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/aws4_request")
_BODY_MAX = 64 * 1024 * 1024


class Dropped(Exception):
    """The request was done and its answer is lost: the connection is closed."""


class CutShort(Exception):
    """The request was done and the connection ends within its answer."""

    def __init__(self, answer: Answer, sent: bytes) -> None:
        super().__init__("cut short")
        self.answer = answer
        self.sent = sent


class AwsServer(HttpServer):
    """Answers with `answer(region, service, handler's request)`."""

    request_queue_size = 128

    def __init__(self, account: Any) -> None:
        self.account = account
        super().__init__(_Handler)


class _Handler(QuietHandler):
    server: AwsServer
    timeout = 60

    def serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(min(length, _BODY_MAX))
        found = _SCOPE.search(self.headers.get("Authorization", ""))
        region, service = found.groups() if found else ("us-east-1", "none")
        sent: bytes | None = None
        try:
            status, headers, content = self.server.account.answer(
                region, service, self.command, self.path, dict(self.headers.items()), body
            )
        except Dropped:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        except CutShort as cut:
            status, headers, content = cut.answer
            sent, self.close_connection = cut.sent, True
        except Exception:  # the client must hear of it, or it would wait
            status, headers, content = 599, {}, traceback.format_exc().encode()
            sys.stderr.write(content.decode())
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "date", "server", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content if sent is None else sent)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The date of the answer, on the account's own clock."""
        world = getattr(self.server.account, "world", None)
        ahead = 0.0 if world is None else world.clock_ahead.total_seconds()
        return super().date_time_string((timestamp or time.time()) + ahead)


def ask_moto(
    region: str, service: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> Answer:
    """moto's answer to a request as it would be addressed in AWS."""
    kept = HTTPHeaders()
    for name, value in headers.items():
        if name.lower() != "host":
            kept[name] = value
    host = f"{service}.{region}.amazonaws.com"
    kept["Host"] = host
    request = AWSPreparedRequest(
        method=method, url=f"https://{host}{path}", headers=kept, body=body, stream_output=False
    )
    reply = BotocoreStubber().process_request(request)
    if reply is None:
        return 404, {}, b"no such service"
    status, answered, content = reply
    data = content.encode() if isinstance(content, str) else bytes(content)
    return int(status), {str(name): str(value) for name, value in dict(answered).items()}, data


def hang(seconds: float) -> None:
    """Answer late; other requests are not held up."""
    time.sleep(seconds)
