"""A run prints the CPU-seconds of each folder of tests, and which ones are over their budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.plugins.cpu_seconds import BUDGETS, SHARED

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[2]
QUIET_SECONDS = 2 * 8 * 60
"""What `make test` may take on two quiet cores."""

# By the clock that the plugin reads: it ticks a hundred times a second, and another one is ahead.
BUSY = """
import os

def used():
    times = os.times()
    return times.user + times.system

def test_busy():
    ends = used() + 0.3
    while used() < ends:
        pass
"""
IDLE = "def test_idle(): pass\n"


def test_each_folder_has_its_line_and_one_over_its_budget_says_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    pytester.makeini("[pytest]")
    for name, text in (("tests/unit/test_idle.py", IDLE), ("tests/none/test_busy.py", BUSY)):
        path = pytester.path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    report = pytester.path / "cpu.json"
    result = pytester.runpytest_inprocess(
        "-p", "tests.support.plugins.cpu_seconds", f"--cpu-report={report}"
    )
    result.assert_outcomes(passed=2)
    busy, *others = [line.split() for line in result.outlines if "  tests/" in line]
    assert busy[1:] == ["tests/none", "(budget", "0)"]
    assert float(busy[0]) >= 0.3
    assert [line[1:] for line in others] == [["tests/unit"]]
    assert any(line.endswith("  in all") for line in result.outlines)
    cpu = json.loads(report.read_text("utf-8"))["tests/none/test_busy.py::test_busy"]["cpu"]
    assert cpu >= 0.299  # a hundredth of a second is no binary fraction


def test_every_folder_has_a_budget_and_together_they_fit_into_eight_minutes() -> None:
    folders = {f"tests/{path.relative_to(TESTS).parts[0]}" for path in TESTS.rglob("test_*.py")}
    assert set(BUDGETS) == {SHARED, *folders}
    assert sum(BUDGETS.values()) <= QUIET_SECONDS
