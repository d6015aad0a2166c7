"""Addresses of object stores, and the obstore client that each of them is opened with.

Here: `file://`, `s3://` and `gs://` addresses, timeouts, retries, where a bucket is.
Not here: the operations (`obstore_store`). Credentials are obstore's own business: the environment,
or the role of the machine (docs/object-stores.md).
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from app.ports.object_store import ObjectStoreError

CONNECT_TIMEOUT: Final = "5s"
REQUEST_TIMEOUT: Final = "60s"
RETRIES_MAX: Final = 3
RETRY_SECONDS: Final = 60
_S3_HOST: Final = "s3.amazonaws.com"
_REGION_SECONDS: Final = 5.0
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", re.ASCII)
_CLOUDS: Final = {"s3": "S3", "gs": "Google Cloud Storage"}


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a store is. path: the folder of a `file` store, else the prefix in the bucket."""

    scheme: str
    bucket: str
    path: str
    uri: str

    @property
    def place(self) -> str:
        """What to call it in a sentence."""
        if self.scheme == "file":
            return f"the folder {self.path}"
        return f"the {_CLOUDS[self.scheme]} bucket {self.bucket}"


def parse_address(uri: str) -> StoreAddress:
    """The address that `uri` writes. Raises ObjectStoreError for one that cannot be used."""
    how = "use s3://bucket/path, gs://bucket/path or file:///absolute/folder"
    parts = urlsplit(uri)
    if parts.query or parts.fragment:
        raise ObjectStoreError(f"{uri}: not the address of a store; {how}")
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        if parts.netloc not in ("", "localhost") or not folder.is_absolute():
            raise ObjectStoreError(f"{uri}: not the address of a store; {how}")
        return StoreAddress("file", "", str(folder), folder.as_uri())
    if parts.scheme not in _CLOUDS or _BUCKET.fullmatch(parts.netloc) is None:
        raise ObjectStoreError(f"{uri}: not the address of a store; {how}")
    return StoreAddress(parts.scheme, parts.netloc, parts.path.strip("/"), uri.rstrip("/"))


def open_client(
    address: StoreAddress, options: Mapping[str, Any], *, retries: int = RETRIES_MAX
) -> Any:
    """obstore's store at an address. options: settings of obstore's, over its environment.

    Raises OSError or one of obstore's errors when it cannot be opened.
    """
    from obstore import store

    if address.scheme == "file":
        return store.LocalStore(Path(address.path))
    make: Any = store.GCSStore if address.scheme == "gs" else store.S3Store
    config = dict(options)
    if address.scheme == "s3":
        config.setdefault("checksum_algorithm", "SHA256")
    return make(
        address.bucket,
        prefix=address.path or None,
        config=config,
        client_options={
            "timeout": REQUEST_TIMEOUT,
            "connect_timeout": CONNECT_TIMEOUT,
            # The clouds' own servers are asked by https; another one is as its address says.
            "allow_http": True,
        },
        retry_config={
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS),
        },
    )


def bucket_region(bucket: str, host: str = _S3_HOST) -> str | None:
    """The region of an S3 bucket, which S3 tells anybody who asks for the bucket; None when not.

    HeadBucket answers with `x-amz-bucket-region` whatever its status (S3 API reference).
    """
    connection = http.client.HTTPSConnection(host, timeout=_REGION_SECONDS)
    try:
        connection.request("HEAD", f"/{bucket}")
        return connection.getresponse().getheader("x-amz-bucket-region")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
