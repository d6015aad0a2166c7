"""Long tests are left out by default, are counted, and run when they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
    import pytest

    def test_short(): pass

    @pytest.mark.full
    def test_long(): pass
"""


@pytest.fixture
def tiered(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    pytester.makeini("[pytest]\nmarkers = full: long")
    pytester.makepyfile(test_two=TESTS)
    return pytester


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.full)])
def test_long_tests_are_left_out_and_counted(
    tiered: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    run = tiered.runpytest_subprocess if workers else tiered.runpytest_inprocess
    result = run("-p", "tests.support.plugins.tiers", *workers)
    result.stdout.fnmatch_lines(["left for `make test-full`*: 1 long tests", "*1 passed*"])


def test_all_tests_run_in_full(tiered: pytest.Pytester) -> None:
    result = tiered.runpytest_inprocess("-p", "tests.support.plugins.tiers", "--full")
    result.assert_outcomes(passed=2)


def test_a_long_test_that_is_named_runs(tiered: pytest.Pytester) -> None:
    result = tiered.runpytest_inprocess(
        "-p", "tests.support.plugins.tiers", "test_two.py::test_long"
    )
    result.assert_outcomes(passed=1)
