"""CPU-seconds that each folder of tests used: a pytest plugin.

A process counts what it used itself and what its ended children used, so a server that outlives a
test is counted where it is stopped, and a process that nobody waited for is not counted.
`--cpu-report FILE` writes the figures of each test as JSON.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def _used() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class CpuSeconds:
    """Measures each phase where it runs, and adds the phases up where the reports arrive."""

    def __init__(self) -> None:
        self._began = 0.0
        self._cpu: dict[str, float] = defaultdict(float)  # by test id
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
    def pytest_runtest_teardown(self) -> Iterator[None]:
        self._began = _used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report: Any = yield
        # xdist sends a report's attributes to the process that prints.
        report.cpu_seconds = _used() - self._began
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._cpu[report.nodeid] += getattr(report, "cpu_seconds", 0.0)
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
            terminalreporter.write_line(f"{cpu:8.1f}  tests/{folder}")
        terminalreporter.write_line(f"{sum(by_folder.values()):8.1f}  in all")


def _folder(test: str) -> str:
    """The folder under tests/ of a test's id, "" where it lies elsewhere."""
    parts = test.split("::")[0].split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-report", default=None, help="write each test's CPU-seconds as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuSeconds(), "cpu-seconds")
