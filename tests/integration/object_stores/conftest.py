"""One store of each cloud that decides who may do what where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.object_stores.deciding_store import BUCKET, DecidingStore
from tests.support.object_stores.scoped_gcs import ScopedGcs
from tests.support.object_stores.scoped_s3 import ScopedS3


@pytest.fixture(params=["s3", "gs"])
def cloud(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DecidingStore]:
    made: ScopedS3 | ScopedGcs = ScopedS3(BUCKET) if request.param == "s3" else ScopedGcs(BUCKET)
    with closing(made) as fake:
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)
        yield DecidingStore(request.param, fake)
