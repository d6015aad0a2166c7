"""Where Cloud Storage's buckets are, asked over real HTTP on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from google.auth.credentials import AnonymousCredentials

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.provider import locate_bucket
from app.ports.cloud_provider import ProviderError, RefusalKind
from tests.support.servers.http_server import QuietHandler, http_server

_BUCKETS = {
    "acme-regional": (200, {"location": "US-CENTRAL1"}),
    "acme-wide": (200, {"location": "US"}),
    "acme-strange": (200, {}),
    "acme-secret": (403, {"error": {"code": 403}}),
    "acme-busy": (503, {}),
}


class _Storage(QuietHandler):
    def serve(self) -> None:
        name = urlsplit(self.path).path.removeprefix("/storage/v1/b/")
        status, document = _BUCKETS.get(name, (404, {}))
        self.answer(status, json.dumps(document).encode())


@contextmanager
def storage() -> Iterator[ComputeApi]:
    with http_server(_Storage) as url:
        settings = GcpSettings("acme", ("us-central1",), endpoint=url, request_seconds=5.0)
        yield ComputeApi(settings, AnonymousCredentials())


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
