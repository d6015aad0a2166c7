"""Test modules that are imported when their first test runs: a pytest plugin.

Under xdist every process collects every test, and to import all of them takes a process fifteen
CPU-seconds. So one process collects for all (`--collect-only --collected FILE` writes what it
found), and each worker of `pytest -n N --collected FILE` takes the tests' ids from there and
imports only the modules of the tests that it is given. Not here: which process runs what
(`scheduling`), and which tests run at all (`tiers`, whose choice the file holds).
"""

from __future__ import annotations

import gc
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis.internal.conjecture import providers as hypothesis_choices

from tests.support.plugins.tiers import LEFT_OUT


class _Named(pytest.Item):
    """A test of which only the id is known yet."""

    def runtest(self) -> NoReturn:
        raise AssertionError(f"{self.nodeid} was not imported")


class _LateModule(pytest.Module):
    """A module that is not imported before one of its tests is wanted."""

    names: tuple[str, ...] = ()
    _tests: dict[str, pytest.Item] | None = None
    _wanted = False

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        if self._wanted:
            return super().collect()
        return [_Named.from_parent(self, name=name) for name in self.names]

    def test(self, nodeid: str) -> pytest.Item:
        """The test itself.

        Raises LookupError if the module has none of that id, and CollectError with the traceback if
        the module cannot be imported.
        """
        if self._tests is None:
            self._wanted = True
            gc.disable()  # What is imported stays to the end.
            try:
                self.obj  # noqa: B018  imports it: an error is shown, and not a test that is missing
                items = list(self.session.genitems(self))
                self.config.hook.pytest_collection_modifyitems(
                    session=self.session, config=self.config, items=items
                )
            finally:
                gc.enable()
            self._tests = {item.nodeid: item for item in items}
        if nodeid not in self._tests:
            raise LookupError(f"{nodeid} was collected once, and is not there now")
        return self._tests[nodeid]


class _LateItems(list[pytest.Item]):
    """The tests of a session: whoever takes one by its number gets the test itself."""

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        if not isinstance(item, _Named):
            return item
        assert isinstance(item.parent, _LateModule)
        return item.parent.test(item.nodeid)


class Writer:
    """Writes down what was collected."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        found = {
            "left_out": session.config.stash[LEFT_OUT],
            "ids": [item.nodeid for item in session.items],
        }
        self._path.write_text(json.dumps(found), encoding="utf-8")


class Reader:
    """Makes the session of a worker from what another process collected."""

    def __init__(self, path: Path) -> None:
        found = json.loads(path.read_text("utf-8"))
        self._left_out: int = found["left_out"]
        self._names: dict[str, list[str]] = defaultdict(list)
        for nodeid in found["ids"]:
            module, _, name = nodeid.partition("::")
            self._names[module].append(name)
        # Hypothesis tries constants of the modules that are imported: here, by chance. `make check`
        # and `make test-full` import all of them.
        hypothesis_choices._get_local_constants = lambda: hypothesis_choices._local_constants

    @pytest.hookimpl
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Module:
        module: _LateModule = _LateModule.from_parent(parent, path=module_path)
        module.names = tuple(self._names[module.nodeid])
        return module

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        session.items = _LateItems(session.items)
        session.config.stash[LEFT_OUT] = self._left_out


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--collected",
        default=None,
        help="with --collect-only, write the tests' ids there; under xdist, take them from there",
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--collected")
    if path is None:
        return
    if config.getoption("--collect-only"):
        config.pluginmanager.register(Writer(Path(path)), "late-modules")
    elif hasattr(config, "workerinput"):
        config.pluginmanager.register(Reader(Path(path)), "late-modules")
