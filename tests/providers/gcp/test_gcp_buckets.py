"""Where Cloud Storage's buckets are, asked over real HTTP on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from google.auth.credentials import AnonymousCredentials

from app.adapters.providers.gcp.client.bucket_location import locate_bucket
from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.ports.cloud_provider import ProviderError, RefusalKind

_BUCKETS = {
    "acme-regional": (200, {"location": "US-CENTRAL1"}),
    "acme-wide": (200, {"location": "US"}),
    "acme-strange": (200, {}),
    "acme-secret": (403, {"error": {"code": 403}}),
    "acme-busy": (503, {}),
}


class _Storage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = urlsplit(self.path).path.removeprefix("/storage/v1/b/")
        status, document = _BUCKETS.get(name, (404, {}))
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def storage() -> Iterator[ComputeApi]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Storage)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    settings = GcpSettings("acme", ("us-central1",), endpoint=endpoint, request_seconds=5.0)
    try:
        yield ComputeApi(settings, AnonymousCredentials())
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=60)


def test_a_bucket_is_where_google_says() -> None:
    with storage() as api:
        assert locate_bucket(api, "acme-regional") == "us-central1"
        assert locate_bucket(api, "acme-wide") == "us"


@pytest.mark.parametrize(
    ("bucket", "kind", "told"),
    [
        ("acme-secret", RefusalKind.DENIED, "grant storage.buckets.get"),
        ("nobodys", RefusalKind.REJECTED, "there is no such bucket"),
        ("acme-busy", RefusalKind.UNAVAILABLE, "503"),
        ("acme-strange", RefusalKind.UNAVAILABLE, "does not say where gs://acme-strange is"),
    ],
)
def test_what_google_does_not_tell_is_an_error_that_says_why(
    bucket: str, kind: RefusalKind, told: str
) -> None:
    with storage() as api, pytest.raises(ProviderError, match=told) as caught:
        locate_bucket(api, bucket)
    assert caught.value.kind is kind
