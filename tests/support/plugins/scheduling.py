"""Which test files go to the same process: those that share what is dear to start.

A pytest plugin for pytest-xdist. Each process starts deployments, a browser and gangs of its own,
so files that share them are kept together; any other file goes wherever there is room.
"""

from __future__ import annotations

from typing import Any

import pytest

# The deployments of tests/e2e/conftest.py; the syntax trees of all files; the browser; the gangs
# of tests/training/conftest.py.
FOLDERS = ("tests/e2e/", "tests/architecture/", "tests/browser/")
# These have deployments of their own.
ALONE = frozenset(
    f"tests/e2e/own_deployment/test_{name}.py"
    for name in (
        "clouds",
        "demo",
        "former_release",
        "full_disks",
        "launch_check_on_clouds",
        "silence",
        "slow_starts_at_length",
    )
)
GANGS = frozenset(
    f"tests/training/{name}.py"
    for name in (
        "checkpoint/test_checkpoint_safety",
        "gang/test_gang_techniques",
        "loop/test_training_runs",
    )
)


def group_of(test: str) -> str:
    """The group of a test's id: all tests of a group run in one process."""
    path = test.partition("::")[0]
    if path in ALONE:
        return path
    folder = next((folder for folder in FOLDERS if path.startswith(folder)), None)
    return folder or ("gangs" if path in GANGS else path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Replaces the scheduler of `--dist loadfile`."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SharedScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return SharedScheduling(config, log)
