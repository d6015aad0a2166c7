"""CPU-seconds that each folder of tests used: a pytest plugin.

A process counts what it used itself and what its ended children used, so a server that outlives a
test is counted where it is stopped, and a process that nobody waited for is not counted. What is
stopped after a process' last test was there for several folders, and has a line of its own.
`--cpu-report FILE` writes the figures of each test as JSON. A folder has a budget for what
`make test` runs of it; one that is over says so. It fails no run: a busy machine needs more for
the same work.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

SHARED = "(shared servers)"
# Goals for `make test` on two quiet cores: eight minutes of them have 960 CPU-seconds.
BUDGETS = {
    SHARED: 130,
    "tests/architecture": 20,
    "tests/browser": 48,
    "tests/decisions": 6,
    "tests/e2e": 38,
    "tests/integration": 315,
    "tests/property": 25,
    "tests/providers": 93,
    "tests/simulation": 42,
    "tests/training": 76,
    "tests/unit": 37,
}


def _used() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class CpuSeconds:
    """Measures each phase where it runs, and adds the phases up where the reports arrive."""

    def __init__(self) -> None:
        self._began = 0.0
        self._last = False  # whether the test that ends is the last one of this process
        self._cpu: dict[str, float] = defaultdict(float)  # by test id, or SHARED
        self._wall: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        self._began = _used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self._began = _used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        self._began = _used()
        self._last = nextitem is None
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report: Any = yield
        # xdist sends a report's attributes to the process that prints.
        report.cpu_seconds = _used() - self._began
        report.stops_shared = report.when == "teardown" and self._last
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        whose = SHARED if getattr(report, "stops_shared", False) else report.nodeid
        self._cpu[whose] += getattr(report, "cpu_seconds", 0.0)
        self._wall[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        path = terminalreporter.config.getoption("--cpu-report")
        if path is not None:
            figures = {
                test: {"cpu": round(cpu, 3), "wall": round(self._wall[test], 3)}
                for test, cpu in self._cpu.items()
            }
            Path(path).write_text(json.dumps(figures, indent=1), encoding="utf-8")
        if not self._cpu:
            return
        by_folder: dict[str, float] = defaultdict(float)
        for test, cpu in self._cpu.items():
            by_folder[_folder(test)] += cpu
        terminalreporter.section("CPU-seconds by folder", sep="-")
        for folder, cpu in sorted(by_folder.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{cpu:8.1f}  {folder}{_beyond(folder, cpu)}")
        terminalreporter.write_line(f"{sum(by_folder.values()):8.1f}  in all")


def _folder(test: str) -> str:
    """tests/FOLDER of a test's id, SHARED for what is stopped at the end."""
    return test if test == SHARED else "/".join(test.split("::")[0].split("/")[:2])


def _beyond(folder: str, cpu: float) -> str:
    budget = BUDGETS.get(folder, 0)
    return f"  (budget {budget})" if cpu > budget else ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-report", default=None, help="write each test's CPU-seconds as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuSeconds(), "cpu-seconds")
