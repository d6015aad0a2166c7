"""What a folder shares is opened once and closed before the next folder; what is dear to start
runs in one process.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.plugins.scheduling import ALONE, GANGS, group_of
from tests.support.sources.source_tree import ROOT

pytest_plugins = ["pytester"]

CONFTEST = """
    from contextlib import contextmanager
    import pytest
    from tests.support.plugins.folder_scope import shared_by_folder

    @contextmanager
    def opened():
        print("opened")
        yield "it"
        print("closed")
        assert {closes_well}

    @pytest.fixture(scope="module")
    def shared(request):
        return shared_by_folder(request, "shared", opened)
"""
TESTS = """
    def test_it(shared):
        print(f"used {shared}")
"""


@pytest.fixture
def folders(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Two modules of a folder share something; a module of another folder comes after them."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    pytester.makeini("[pytest]\naddopts = -s")
    pytester.mkdir("first")
    pytester.makepyfile(**{"first/test_one": TESTS, "first/test_two": TESTS})
    pytester.mkdir("second")
    pytester.makepyfile(**{"second/test_three": "def test_it(): print('elsewhere')"})
    return pytester


def test_it_is_open_for_the_modules_of_its_folder(folders: pytest.Pytester) -> None:
    folders.makepyfile(**{"first/conftest": CONFTEST.format(closes_well=True)})
    result = folders.runpytest_inprocess()
    result.assert_outcomes(passed=3)
    said = re.findall("opened|used it|closed|elsewhere", str(result.stdout))
    assert said == ["opened", "used it", "used it", "closed", "elsewhere"]


def test_what_does_not_close_well_fails_the_last_test(folders: pytest.Pytester) -> None:
    folders.makepyfile(**{"first/conftest": CONFTEST.format(closes_well=False)})
    result = folders.runpytest_inprocess()
    result.assert_outcomes(passed=3, errors=1)
    assert "ERROR first/test_two.py::test_it" in str(result.stdout)


def test_every_file_that_is_named_is_there() -> None:
    assert [name for name in sorted(ALONE | GANGS) if not (ROOT / name).is_file()] == []


def test_files_are_grouped_by_what_they_share() -> None:
    shared = {group_of(f"tests/e2e/test_{name}.py::test_it") for name in ("kills", "limits")}
    assert len(shared) == 1
    assert group_of("tests/e2e/own_deployment/test_demo.py::test_it") not in shared
    assert len({group_of(f"{name}::test_it") for name in GANGS}) == 1
    assert (
        group_of("tests/unit/plugins/test_tiers.py::test_it") == "tests/unit/plugins/test_tiers.py"
    )
