"""Where a Cloud Storage bucket is: its region, or its dual- or multi-region as Google names it.

Source: Cloud Storage JSON API, Buckets: get (needs `storage.buckets.get` on the bucket). Not here:
reading and writing objects (`app.adapters.object_stores`).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from app.adapters.providers.gcp.client.compute_api import ComputeApi, translated
from app.adapters.providers.gcp.client.google_credentials import json_of, session_of
from app.adapters.providers.gcp.client.refusals import of_document
from app.ports.cloud_provider import ProviderError, RefusalKind

STORAGE_URL: Final = "https://storage.googleapis.com"
_SERVICE: Final = "storage.googleapis.com"
_OK: Final = 200
_REFUSALS: Final = {
    401: (RefusalKind.DENIED, "the credentials are not accepted"),
    403: (RefusalKind.DENIED, "grant storage.buckets.get on the bucket"),
    404: (RefusalKind.REJECTED, "there is no such bucket"),
}


def locate_bucket(api: ComputeApi, bucket: str) -> str:
    """`us-central1`, `us`, `nam4` …, in small letters. Raises ProviderError."""
    address = f"{api.settings.endpoint or STORAGE_URL}/storage/v1/b/{quote(bucket, safe='')}"
    with translated("get of the bucket"), session_of(api.credentials()) as session:
        answer = session.get(
            address, params={"fields": "location"}, timeout=api.settings.request_seconds
        )
        if answer.status_code != _OK:
            kind, what = _REFUSALS.get(
                answer.status_code, (RefusalKind.UNAVAILABLE, "it is asked again later")
            )
            text = f"Cloud Storage answered {answer.status_code} for gs://{bucket}: {what}"
            message = of_document(json_of(answer), answer.status_code, _SERVICE).message
            raise ProviderError(kind, f"{text}; {message}" if message else text)
        location = answer.json().get("location")
    if not isinstance(location, str) or not location:
        text = f"Cloud Storage does not say where gs://{bucket} is"
        raise ProviderError(RefusalKind.UNAVAILABLE, text)
    return location.lower()
