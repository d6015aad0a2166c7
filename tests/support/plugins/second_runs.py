"""A second run for tests that race real processes against time: named, counted, never hidden.

A pytest plugin (docs/adr/0015-second-runs.md). pytest-rerunfailures runs a marked test again; this
module says which tests get the mark, names those that needed it in the closing summary, and fails
the run when they are too many. Not here: waiting for a condition, which is each test's own affair.
"""

from __future__ import annotations

import pytest

# Folders whose tests start processes, sockets or browsers. The rest is a function of its input.
ROOMS_WITH_PROCESSES = frozenset(
    {"browser", "cloud", "e2e", "examples", "integration", "providers", "training"}
)
STORY = "story"
"""The fixture of tests in those folders that need no luck either: controllers run by hand over real
rows, with paper clouds and a clock of the test's own."""

SECOND_RUNS_AT_MOST = 5


class SecondRuns:
    """Gives the mark at collection, keeps the list, and judges it when the run ends."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}  # by the test's id, in the order of their failures

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        tests = config.rootpath / "tests"
        for item in items:
            if (
                item.path.is_relative_to(tests)
                and item.path.relative_to(tests).parts[0] in ROOMS_WITH_PROCESSES
                and STORY not in getattr(item, "fixturenames", ())
            ):
                item.add_marker(pytest.mark.flaky(reruns=1))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Under xdist the process that prints gets the reports of all workers here.
        # An outcome of pytest-rerunfailures, which pytest's own type does not name.
        if str(report.outcome) == "rerun":
            self._reasons.setdefault(report.nodeid, _reason(report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        in_a_worker = hasattr(session.config, "workerinput")
        if not in_a_worker and self._too_many() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, reason in sorted(self._reasons.items()):
            terminalreporter.write_line(f"needed a second run: {test} ({reason})", yellow=True)
        if self._too_many():
            terminalreporter.write_line(
                f"too many tests needed a second run: {len(self._reasons)},"
                f" at most {SECOND_RUNS_AT_MOST}",
                red=True,
            )

    def _too_many(self) -> bool:
        return len(self._reasons) > SECOND_RUNS_AT_MOST


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SecondRuns(), "second-runs")


def _reason(report: pytest.TestReport) -> str:
    """The first line of what went wrong: one line of at most 120 characters."""
    crash = getattr(report.longrepr, "reprcrash", None)
    words = str(getattr(crash, "message", report.longrepr)).strip().splitlines()
    return f"{report.when}: {words[0][:120] if words else 'no reason given'}"
