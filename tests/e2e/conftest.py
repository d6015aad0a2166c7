"""The deployment that most end-to-end tests share: one start, many jobs, closed books at the end.

Not here: deployments with programs that die or with settings of their own (in their modules).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.deployment.control_plane import ControlPlane, running_control_plane
from tests.support.deployment.followed_job import assert_all_books_close
from tests.support.plugins.folder_scope import shared_by_folder

# A minute of billing in a second, so that budgets and hours fit into a test.
BILLING_SPEED = 60
SETTINGS = {
    "LOWTIDE_LOCAL_BILLING_SPEED": str(BILLING_SPEED),
    "LOWTIDE_LOCAL_NOTICE_SECONDS": "8",
    "LOWTIDE_DRAIN_SECONDS": "5",
    "LOWTIDE_ON_DEMAND_ACQUIRE_SECONDS": "10",
    "LOWTIDE_BOOT_SECONDS": "2",
    "LOWTIDE_RESTORE_SECONDS": "2",
}


@contextmanager
def _shared_plane() -> Iterator[ControlPlane]:
    with running_control_plane(SETTINGS) as found:
        yield found
        living = found.get("/instances", live=True)["items"]
        assert not living, f"machines without a live job: {living}"
        verified = found.verify()
        assert verified["closed"], verified


@contextmanager
def _rough_plane() -> Iterator[ControlPlane]:
    with running_control_plane({**SETTINGS, "LOWTIDE_LOCAL_BOOT_SECONDS": "3"}) as found:
        yield found
        assert_all_books_close(found)


@pytest.fixture(scope="module")
def shared_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """A running deployment; at the end every machine is gone and every bill agrees."""
    return shared_by_folder(request, "shared plane", _shared_plane)


@pytest.fixture(scope="module")
def rough_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """Another deployment, whose programs die and whose machines boot slowly."""
    return shared_by_folder(request, "rough plane", _rough_plane)


@pytest.fixture(scope="module")
def plane(shared_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shared deployment; after a module the books of all its jobs close."""
    yield shared_plane
    assert_all_books_close(shared_plane)
