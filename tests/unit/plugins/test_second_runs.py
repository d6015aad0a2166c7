"""Which tests get a second run, that it is named, and that many of them fail the run.

Each test runs pytest on a small suite of its own, under this project's own settings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
# Fails at its first call by that name, and at no later one.
FAILS_ONCE = """
import os, pathlib, pytest

def fails_once(name):
    seen = pathlib.Path(__file__).with_name(name)
    assert seen.exists() or seen.touch(), name + " came too early"
"""
ONE_RACE = FAILS_ONCE + "def test_races(): fails_once('race')\n"


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty suite with this project's settings and plugins."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    settings = (ROOT / "pyproject.toml").read_text("utf-8")
    pytester.path.joinpath("pyproject.toml").write_text(settings, "utf-8")
    _write(pytester, "conftest.py", 'pytest_plugins = ["tests.support.plugins.second_runs"]\n')
    return pytester


def _write(suite: pytest.Pytester, name: str, text: str) -> None:
    path = suite.path / "tests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _named(done: pytest.RunResult) -> list[str]:
    begins = "needed a second run: "
    return [line.removeprefix(begins) for line in done.outlines if line.startswith(begins)]


def test_what_raced_passes_and_is_named_and_what_fails_twice_fails(suite: pytest.Pytester):
    """As `make test` runs it: on two workers, whose reports another process sums up."""
    _write(suite, "integration/test_one.py", ONE_RACE)
    _write(suite, "e2e/test_two.py", "def test_never(): assert 1 == 2\n\ndef test_fine(): pass\n")
    _write(suite, "unit/test_rule.py", ONE_RACE)
    done = suite.runpytest_subprocess("-n", "2", "--dist", "loadfile", "tests")
    assert done.parseoutcomes() == {"passed": 2, "failed": 2, "rerun": 2}
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert _named(done) == [
        "tests/e2e/test_two.py::test_never (call: assert 1 == 2)",
        "tests/integration/test_one.py::test_races (call: AssertionError: race came too early)",
    ]
    done.stdout.fnmatch_lines(["FAILED tests/unit/test_rule.py::test_races*"])


def test_a_rule_without_processes_has_to_hold_at_once(suite: pytest.Pytester):
    rooms = ("architecture", "bench", "property", "simulation", "unit")
    for room in rooms:
        _write(suite, f"{room}/test_{room}.py", ONE_RACE)
    story = "@pytest.fixture\ndef story(): pass\n\ndef test_story(story): fails_once('story')\n"
    _write(suite, "integration/test_rows.py", FAILS_ONCE + story)
    done = suite.runpytest_inprocess("tests")
    assert done.parseoutcomes() == {"failed": len(rooms) + 1}
    assert _named(done) == []


@pytest.mark.parametrize(("races", "ends"), [(5, 0), (6, 1)])
def test_few_second_runs_pass_and_many_fail_the_run(suite: pytest.Pytester, races: int, ends: int):
    many = f"@pytest.mark.parametrize('n', range({races}))\ndef test_races(n): fails_once(str(n))\n"
    _write(suite, "providers/aws/test_many.py", FAILS_ONCE + many)
    done = suite.runpytest_inprocess("tests")
    assert done.parseoutcomes() == {"passed": races, "rerun": races}
    assert done.ret == ends
    assert len(_named(done)) == races
    too_many = f"too many tests needed a second run: {races}, at most 5"
    assert (too_many in done.outlines) == (ends == 1)


def test_shared_fixtures_stay_up_failed_ones_are_made_again_and_what_hangs_is_not(
    suite: pytest.Pytester,
):
    """What a module shares is not taken down between the runs, unless its own start failed.

    A time-out is for both runs together: who has used it up gets no second one.
    """
    shared = """
@pytest.fixture(scope="module")
def late():
    fails_once("start")
    yield "up"
    pathlib.Path(__file__).with_name("stopped").touch()

@pytest.fixture(scope="module")
def server():
    made.append("server")
    yield made
    made.clear()

made = []

def test_start(late): assert late == "up"

def test_first(server, late): fails_once("first")

def test_second(server, late):
    assert (server, late) == (["server"], "up")
    assert not pathlib.Path(__file__).with_name("stopped").exists()
"""
    hangs = "import pytest, time\n@pytest.mark.timeout(0.2)\ndef test_hangs(): time.sleep(60)\n"
    _write(suite, "browser/test_shared.py", FAILS_ONCE + shared)
    _write(suite, "training/test_hangs.py", hangs)
    done = suite.runpytest_inprocess("tests")
    assert done.parseoutcomes() == {"passed": 3, "failed": 1, "rerun": 2}
    assert [one.partition(" ")[0].rpartition("::")[2] for one in _named(done)] == [
        "test_first", "test_start",
    ]  # fmt: skip
    assert suite.path.joinpath("tests/browser/stopped").exists()
