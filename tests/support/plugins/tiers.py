"""Which tests run when: `make test` leaves out what is marked `full`, `make test-full` runs all.

A pytest plugin. A test is marked `full` when it repeats at length what a shorter test in the same
run shows already, or when it needs more CPU-seconds than its folder can spare. Nothing is left out
in silence: the closing summary counts what was left for `make test-full`, and a test that is named
by its own id runs whatever its mark.
"""

from __future__ import annotations

import pytest

MARK = "full"
LEFT_OUT = pytest.StashKey[int]()
"""How many tests this session left out."""


class Tiers:
    """Takes the long tests out at collection, and counts them."""

    def __init__(self, config: pytest.Config) -> None:
        self._stash = config.stash
        self._stash[LEFT_OUT] = 0

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if config.getoption("--full"):
            return
        named = {argument for argument in config.args if "::" in argument}
        kept: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            asked_for = any(item.nodeid.startswith(name) for name in named)
            long = item.get_closest_marker(MARK) is not None
            (left_out if long and not asked_for else kept).append(item)
        if left_out:
            self._stash[LEFT_OUT] = max(self._stash[LEFT_OUT], len(left_out))
            config.hook.pytest_deselected(items=left_out)
            items[:] = kept

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Under xdist every worker collects the same tests; one count stands for all."""
        output = getattr(node, "workeroutput", {})
        self._stash[LEFT_OUT] = max(self._stash[LEFT_OUT], output.get("left_for_full", 0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left_for_full"] = self._stash[LEFT_OUT]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if left_out := self._stash[LEFT_OUT]:
            terminalreporter.write_line(
                f"left for `make test-full` (pytest --full): {left_out} long tests"
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the tests marked `full`, too")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tiers(config), "tiers")
