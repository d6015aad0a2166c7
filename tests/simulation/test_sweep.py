"""Sweeps, and hunts of mutants, go on where they stopped; a signal ends their runs with them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app.simulation import sweep
from app.simulation.runs.seed_runs import digest_of
from tests.mutants import __main__ as hunt
from tests.support.deployment.control_plane import left_running
from tests.support.servers.embedded import killed_at_the_end, open_folder, wait_until
from tests.support.sources.source_tree import ROOT


def _written(path: Path, **changed: object) -> None:
    kept = {
        "sources": digest_of(ROOT),
        "hours": 1.0,
        "rate": 6.0,
        "done": [1, 2],
        "faults": {"notice": 3},
    }
    path.write_text(json.dumps({**kept, **changed}))


def test_what_is_done_is_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    kept = tmp_path / "sweep.json"
    _written(kept)
    assert sweep.main(["--seeds", "2", "--progress", str(kept)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("2/2 seeds of 1 h at rate 6:")
    assert "notice" in told


@pytest.mark.parametrize("changed", [{"sources": "others"}, {"hours": 2.0}, {"rate": 1.0}])
def test_other_sources_or_settings_begin_anew(tmp_path: Path, changed: dict[str, object]):
    kept = tmp_path / "sweep.json"
    _written(kept, **changed)
    given = sweep._parser().parse_args(["--seeds", "2", "--progress", str(kept)])
    assert sweep._progress(given).done == []


def test_a_broken_seed_is_told_every_time(tmp_path: Path):
    kept = tmp_path / "sweep.json"
    _written(kept, broken={"2": "broken: a simulated world broke"})
    assert sweep.main(["--seeds", "2", "--progress", str(kept)]) == 1


def test_a_seed_that_did_not_end_is_run_again(tmp_path: Path):
    kept = tmp_path / "sweep.json"
    _written(kept, broken={"1": "timed_out: ", "2": "broken: a simulated world broke"})
    given = sweep._parser().parse_args(["--seeds", "2", "--progress", str(kept)])
    found = sweep._progress(given)
    assert (found.done, list(found.broken)) == ([2], ["2"])


def test_a_mutant_whose_run_did_not_end_is_hunted_again(tmp_path: Path):
    kept = tmp_path / "mutants.json"
    outcomes = {"one": "killed", "two": "timed_out", "three": "crashed", "four": "survived"}
    found = {name: hunt.Result(outcome, 1, 2.0, "") for name, outcome in outcomes.items()}
    hunt._write(kept, "digest", found)
    assert sorted(hunt._read(kept, "digest")) == ["four", "one"]
    assert hunt._read(kept, "another") == {}


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("what", [["app.simulation.sweep", "--hours", "24"], ["tests.mutants"]])
def test_a_signal_ends_the_runs_and_leaves_nothing(what: list[str], number: signal.Signals):
    with open_folder() as folder, open_folder() as other:
        kept = other / "progress.json"
        command = [sys.executable, "-m", *what, "--jobs", "1", "--progress", str(kept)]
        environment = {**os.environ, "TMPDIR": str(folder)}
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        with killed_at_the_end(process):
            wait_until(lambda: bool(_runs_of(process)), "a run of a seed")
            runs = _runs_of(process)
            process.send_signal(number)
            assert process.wait(60) == 128 + number
        assert [run for run in runs if run.is_running()] == []
        assert [*left_running(folder).values(), *folder.iterdir()] == []


def _runs_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Those of its children that simulate a seed."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "--seed" in _command(child)]


def _command(child: psutil.Process) -> list[str]:
    """Nothing of one that has just ended."""
    try:
        return child.cmdline()
    except psutil.Error:
        return []
