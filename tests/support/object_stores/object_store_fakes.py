"""Object stores on loopback for the real client: S3 by moto, Google's XML API by a small server.

Both refuse, fail and tear on command. Google's server keeps its generations honestly: a create-only
write over an object is refused. Not here: what a store must do (tests/integration).
"""

from __future__ import annotations

import hashlib
import re
import socket
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.aws.aws_fake_http import Answer, AwsServer, Dropped, ask_moto
from tests.support.servers.http_server import HttpServer, QuietHandler

_DENIED_S3 = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>"
_RIGHTS = {"PUT": "put", "POST": "put", "DELETE": "delete"}
_ETAG = re.compile(r"<PartNumber>(\d+)</PartNumber>")


class Steering:
    """What a test orders a store to do with the requests to come.

    denied: answer 403. withheld: rights that the caller lacks (put, get, list, delete).
    tear_after: drop the connection after this many parts or whole writes. tears: drop it at so
    many of the next ones. lost_answers: so many writes are done and never answered. requests:
    the methods of what was asked, in order.
    """

    def __init__(self) -> None:
        self.denied = False
        self.withheld: set[str] = set()
        self.requests: list[str] = []
        self.tear_after: int | None = None
        self.tears = 0
        self.lost_answers = 0
        self.parts = 0
        self.bytes_per_second: float | None = None
        self._free_at = 0.0
        self._lock = threading.Lock()

    def refuses(self, method: str, path: str) -> bool:
        """Whether a request needs a right that is withheld."""
        parts = urlsplit(path)
        lists = method == "GET" and parts.path.strip("/").count("/") == 0
        clears = method == "POST" and "delete" in parse_qs(parts.query, keep_blank_values=True)
        right = "list" if lists else "delete" if clears else _RIGHTS.get(method, "get")
        return self.denied or right in self.withheld

    def pace(self, size_bytes: int) -> None:
        """Wait as long as so much takes to come in, behind what came before."""
        if self.bytes_per_second is None:
            return
        with self._lock:
            begin = max(time.monotonic(), self._free_at)
            self._free_at = begin + size_bytes / self.bytes_per_second
            wait = self._free_at - time.monotonic()
        time.sleep(max(0.0, wait))

    def lose_answer(self) -> None:
        """Raises Dropped when the answer to a write that is done is to be lost."""
        with self._lock:
            if self.lost_answers > 0:
                self.lost_answers -= 1
                raise Dropped

    def count_write(self) -> None:
        """Count a part or a whole write; raises Dropped when it is to be torn."""
        with self._lock:
            self.parts += 1
            if self.tears > 0:
                self.tears -= 1
                raise Dropped
            if self.tear_after is not None and self.parts > self.tear_after:
                raise Dropped


class S3Fake:
    """One account with one bucket in moto; one at a time in a process."""

    def __init__(self, bucket: str = "lowtide-test") -> None:
        self.bucket = bucket
        self.steering = Steering()
        self.headers_seen: list[dict[str, str]] = []
        self._server = AwsServer(self)
        self._moto("PUT", f"/{bucket}", b"")

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/some/prefix"

    @property
    def options(self) -> dict[str, Any]:
        return {
            "endpoint": self._server.url,
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
        }

    def environment(self) -> dict[str, str]:
        """The same by environment variables, as programs get it."""
        return {
            "AWS_ENDPOINT_URL": self._server.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def answer(
        self, region: str, service: str, method: str, path: str, headers: Any, body: bytes
    ) -> Answer:
        self.headers_seen.append({str(k).lower(): str(v) for k, v in dict(headers).items()})
        self.steering.requests.append(method)
        if self.steering.refuses(method, path):
            return 403, {"Content-Type": "application/xml"}, _DENIED_S3
        if method == "PUT":
            self.steering.count_write()
        # The server states the length of what it is given; it sends no body to a HEAD.
        asked = "GET" if method == "HEAD" else method
        answered = ask_moto("us-east-1", "s3", asked, path, headers, body)
        if method in ("PUT", "POST"):
            self.steering.lose_answer()
        return answered

    def _moto(self, method: str, path: str, body: bytes) -> None:
        status, _, content = ask_moto("us-east-1", "s3", method, path, {}, body)
        assert status == 200, content

    def close(self) -> None:
        from moto.backends import get_backend

        get_backend("s3").reset()
        self._server.close()


class GcsFake:
    """Google's XML API of one bucket, as far as stores use it."""

    def __init__(self, bucket: str = "lowtide-test") -> None:
        self.bucket = bucket
        self.steering = Steering()
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, tuple[str, bool, dict[int, bytes]]] = {}
        self.lock = threading.Lock()
        self._server = HttpServer(_gcs_handler(self))

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def uri(self) -> str:
        return f"gs://{self.bucket}/some/prefix"

    @property
    def options(self) -> dict[str, Any]:
        return {"base_url": self.url, "bearer_token": "test"}

    def environment(self) -> dict[str, str]:
        return {
            "GOOGLE_BASE_URL": self.url,
            "GOOGLE_BEARER_TOKEN": "test",
            "GOOGLE_ALLOW_HTTP": "true",
        }

    def close(self) -> None:
        self._server.close()

    def serve(self, method: str, path: str, headers: Any, body: bytes) -> Answer:
        self.steering.requests.append(method)
        if self.steering.refuses(method, path):
            return 403, {}, b"<Error><Code>AccessDenied</Code></Error>"
        parts = urlsplit(path)
        query = parse_qs(parts.query, keep_blank_values=True)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        if bucket != self.bucket:
            return 404, {}, b"<Error><Code>NoSuchBucket</Code></Error>"
        with self.lock:
            if not key:
                return self._list(query)
            if method in ("POST", "PUT", "DELETE"):
                answered = self._write(method, key, query, headers, body)
                if method != "DELETE":
                    self.steering.lose_answer()
                return answered
            return self._read(key, headers)

    def _write(self, method: str, key: str, query: Any, headers: Any, body: bytes) -> Answer:
        new_only = headers.get("x-goog-if-generation-match") == "0"
        if method == "DELETE":
            if "uploadId" in query:
                self.uploads.pop(query["uploadId"][0], None)
                return 204, {}, b""
            return (204 if self.objects.pop(key, None) is not None else 404), {}, b""
        if method == "PUT":
            self.steering.count_write()
            etag = f'"{hashlib.md5(body).hexdigest()}"'
            if "uploadId" in query:
                self.uploads[query["uploadId"][0]][2][int(query["partNumber"][0])] = body
                return 200, {"ETag": etag}, b""
            if new_only and key in self.objects:
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            self.objects[key] = body
            return 200, {"ETag": etag, "x-goog-generation": "1"}, b""
        if "uploads" in query:
            name = uuid.uuid4().hex
            self.uploads[name] = (key, new_only, {})
            told = f"<InitiateMultipartUploadResult><Bucket>{self.bucket}</Bucket><Key>{key}</Key>"
            told += f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            return 200, {"Content-Type": "application/xml"}, told.encode()
        return self._complete(query["uploadId"][0], new_only, body)

    def _complete(self, name: str, new_only: bool, body: bytes) -> Answer:
        key, _, pieces = self.uploads.pop(name)
        if new_only and key in self.objects:
            return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
        wanted = [int(number) for number in _ETAG.findall(body.decode())]
        self.objects[key] = b"".join(pieces[number] for number in wanted)
        told = f"<CompleteMultipartUploadResult><Bucket>{self.bucket}</Bucket><Key>{key}</Key>"
        told += '<Location>x</Location><ETag>"done"</ETag></CompleteMultipartUploadResult>'
        return 200, {"x-goog-generation": "1"}, told.encode()

    def _read(self, key: str, headers: Any) -> Answer:
        content = self.objects.get(key)
        if content is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        told = {"ETag": '"x"', "Last-Modified": "Mon, 01 Jan 2029 00:00:00 GMT"}
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("Range", ""))
        if found is None:
            return 200, told, content
        first, last = int(found[1]), min(int(found[2]), len(content) - 1)
        if first >= len(content):
            told["Content-Range"] = f"bytes */{len(content)}"
            return 416, told, b"<Error><Code>InvalidRange</Code></Error>"
        told["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return 206, told, content[first : last + 1]

    def _list(self, query: Any) -> Answer:
        prefix = query.get("prefix", [""])[0]
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[key])}</Size>"
            "<LastModified>2029-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
            for key in keys
        )
        return 200, {}, f"<ListBucketResult>{entries}</ListBucketResult>".encode()


def _gcs_handler(fake: GcsFake) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietHandler):
        def serve(self) -> None:
            body = self.body()
            fake.steering.pace(len(body))
            try:
                status, headers, content = fake.serve(self.command, self.path, self.headers, body)
            except Dropped:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.answer(status, content, headers)

    return Handler
