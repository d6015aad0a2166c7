"""What all tests of a folder share: opened for the first of them, closed after the last.

A session fixture would live on beside every other folder's tests: a deployment that nobody looks
at any more uses a twentieth of a processor. Not here: which files share a process (`scheduling`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

Shared = TypeVar("Shared")
_OPENED = pytest.StashKey[dict[str, Any]]()


def shared_by_folder(
    request: pytest.FixtureRequest,
    name: str,
    make: Callable[[], contextlib.AbstractContextManager[Shared]],
) -> Shared:
    """What `make` opens, the same for all modules of the test's folder.

    For a fixture of a module; name: what the folder knows it by. It is closed when the next test is
    in another folder, and what it raises then fails the last test.
    """
    folder = request.node.parent
    assert isinstance(folder, pytest.Dir), "the fixture's scope has to be its module"
    opened = folder.stash.setdefault(_OPENED, {})
    if name not in opened:
        stack = contextlib.ExitStack()
        opened[name] = stack.enter_context(make())

        def close() -> None:
            del opened[name]
            stack.close()

        folder.addfinalizer(close)
    shared: Shared = opened[name]
    return shared
