"""A Compute Engine fake and the provider on it, new for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gce.gce_fake import FakeGce, open_fake_gce


@pytest.fixture
def gce() -> Iterator[FakeGce]:
    """The fake with two regions and no delays."""
    with open_fake_gce() as fake:
        yield fake
