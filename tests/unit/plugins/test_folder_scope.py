"""What a folder shares is opened once, and closed before another folder's tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
