"""What one process collected is run by others, which import only the modules of their tests."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGINS = ("-p", "tests.support.plugins.tiers", "-p", "tests.support.plugins.late_modules")
WORKERS = ("-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")
FIRST = """
    import sys
    import pytest

    @pytest.fixture(scope="module", params=[1, 2])
    def number(request): return request.param

    def test_second_is_not_imported_yet(): assert "test_second" not in sys.modules

    class TestClass:
        def test_alone(self, number, shared): assert shared == ["first"]

    @pytest.mark.full
    def test_long(): pass
"""
SECOND = """
    import test_first

    def test_the_folders_fixture_is_the_same(shared): assert shared == ["first"]
    def test_wrong(): assert False, "it ran"
"""
CONFTEST = """
    import pytest

    @pytest.fixture(scope="package")
    def shared():
        yield ["first"]
        print("closed once")
"""


@pytest.fixture
def collected(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of two modules whose tests were written down."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    pytester.makeini("[pytest]\nmarkers = full: long")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_first=FIRST, test_second=SECOND)
    pytester.runpytest_inprocess(*PLUGINS, "--collect-only", "--collected", "ids.json")
    return pytester


def test_a_worker_imports_a_module_when_its_first_test_runs(collected: pytest.Pytester) -> None:
    result = collected.runpytest_subprocess(*PLUGINS, *WORKERS, "--collected", "ids.json", "-rA")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: it ran"])
    assert result.stdout.str().count("closed once") == 1
    result.stdout.fnmatch_lines(["left for `make test-full`*: 1 long tests"])


@pytest.mark.full  # test_a_worker_imports_a_module_when_its_first_test_runs needs the same ids
def test_a_test_that_went_since_stops_the_run(collected: pytest.Pytester) -> None:
    collected.makepyfile(test_second="def test_other(): pass")
    result = collected.runpytest_subprocess(*PLUGINS, *WORKERS, "--collected", "ids.json")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*was collected once, and is not there now*"])


@pytest.mark.full  # as above
def test_a_module_that_cannot_be_imported_says_why(collected: pytest.Pytester) -> None:
    collected.makepyfile(test_second="import nothing_of_that_name")
    result = collected.runpytest_subprocess(*PLUGINS, *WORKERS, "--collected", "ids.json")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*No module named 'nothing_of_that_name'*"])
