"""`lowtide backtest` from its options to its files, on recordings of a few hours."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from app.backtest.run_cells import POLICIES
from app.cli.server import backtest_command

ROW_KEYS = {
    "group", "zone", "start", "slack", "overhead_hours", "policy", "cost_usd", "on_demand_usd",
    "optimum_usd", "missed", "launches", "probes",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings, one of them broken, and a groups file over both."""
    folder = tmp_path_factory.mktemp("traces")
    dice = np.random.default_rng(5)
    up = np.logical_xor.accumulate(dice.random((2, 60)) < 0.1, axis=1)
    np.savez(
        folder / "tiny.npz",
        zones=np.array(["a", "b"]),
        avail=up.astype(np.uint8) * 2,
        gap_seconds=np.array(600),
        price=np.full((2, 60), np.nan, np.float32),
        od=np.array([3.0, 3.0], np.float32),
        gang=np.array(2),
    )
    (folder / "broken.npz").write_bytes(b"PK")
    groups = {
        "job_hours": 3,
        "slacks": [1.2, 1.8],
        "overhead_hours": {"one_zone": [0.1], "zones": [0.2]},
        "starts": {"one_zone": 2, "zones": 2},
        "one_zone": [{"file": "tiny.npz", "gang": 2}],
        "zones": [
            {"name": "both", "file": "tiny.npz", "gang": 2},
            {"name": "gone", "file": "broken.npz"},
        ],
    }
    (folder / "groups.json").write_text(json.dumps(groups))
    return folder


def _run(*arguments: str) -> tuple[int, str, str]:
    program = typer.Typer()
    backtest_command.register(program)
    result = CliRunner().invoke(program, list(arguments), catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.full
def test_every_policy_over_every_cell_in_two_processes_and_in_one(folder: Path, tmp_path: Path):
    out = tmp_path / "rows.json"
    code, text, _ = _run(
        "--traces", str(folder), "--policies", "all", "--processes", "2", "--json", str(out)
    )
    assert code == 0
    rows = json.loads(out.read_text())
    assert len(rows) == 2 * 2 * 2 * len(POLICIES)
    assert all(set(row) >= ROW_KEYS for row in rows)
    assert all(row["cost_usd"] >= row["optimum_usd"] - 1e-6 for row in rows)
    assert not any(row["missed"] for row in rows)
    assert "lowtide" in text
    assert ElementTree.parse(out.with_suffix(".svg")).getroot().tag.endswith("svg")
    again = tmp_path / "again.json"
    _run("--traces", str(folder), "--policies", "all", "--json", str(again))
    assert json.loads(again.read_text()) == rows


def test_a_group_of_no_use_is_named_and_the_rest_is_run(folder: Path):
    code, text, errors = _run(
        "--traces", str(folder), "--setting", "zones", "--information", "attempts",
        "--policies", "lowtide,up_s", "--history", "cold",
    )  # fmt: skip
    assert code == backtest_command.LEFT_OUT
    assert "both" in text
    assert "Left out: broken.npz: cannot be read" in errors


def test_estimates_are_held_against_the_outcomes(folder: Path, tmp_path: Path):
    out = tmp_path / "rows.json"
    code, text, _ = _run(
        "--traces", str(folder), "--policies", "greedy,lowtide", "--calibration", "--starts", "1",
        "--json", str(out),
    )  # fmt: skip
    assert code == 0
    assert "90 % below P90 is correct" in text
    rows = json.loads(out.read_text())
    told = [row for row in rows if "cost_p90_usd" in row]
    assert {row["policy"] for row in told} == {"lowtide"}
    for row in told:
        assert 0 < row["cost_p50_usd"] <= row["cost_p90_usd"]
        assert row["finish_p50_hours"] <= row["finish_p90_hours"] <= row["slack"] * 3 + 1e-9
    code, _, errors = _run("--traces", str(folder), "--policies", "greedy", "--calibration")
    assert code == 2
    assert "--calibration needs the policy lowtide" in errors


def test_figures_given_replace_those_of_the_file(folder: Path, tmp_path: Path):
    out = tmp_path / "rows.json"
    _run(
        "--traces", str(folder), "--policies", "greedy", "--slack", "1.5", "--job-hours", "2",
        "--overhead-hours", "0.05,0.3", "--starts", "1", "--json", str(out), "--billing", "ec2",
    )  # fmt: skip
    rows = json.loads(out.read_text())
    assert {(row["slack"], row["overhead_hours"]) for row in rows} == {(1.5, 0.05), (1.5, 0.3)}
    assert {row["optimum_usd"] for row in rows} == {None}
    assert len(rows) == 4
    assert not out.with_suffix(".svg").exists(), "it would show cost over the optimum"


def test_start_ups_are_given_or_drawn_for_each_job(folder: Path, tmp_path: Path):
    out = tmp_path / "rows.json"

    def figures(text: str) -> list[float]:
        code, _, _ = _run(
            "--traces", str(folder), "--policies", "greedy,lowtide", "--learn-start-up", "--slack",
            "1.8", "--start-up-seconds", text, "--json", str(out),
        )  # fmt: skip
        assert code == 0
        return [row["start_up_seconds"] for row in json.loads(out.read_text())]

    assert set(figures("600")) == {600.0}
    drawn = figures("60..1200")
    assert len(set(drawn)) > 1
    assert all(60 <= seconds <= 1_200 for seconds in drawn)


def test_all_among_the_policies_is_all_of_them(folder: Path, tmp_path: Path):
    out = tmp_path / "rows.json"
    code, _, _ = _run(
        "--traces", str(folder), "--policies", "greedy, all", "--starts", "1", "--slack", "1.8",
        "--json", str(out),
    )  # fmt: skip
    assert code == 0
    assert {row["policy"] for row in json.loads(out.read_text())} == set(POLICIES)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--setting", "moon"], "--setting 'moon' is unknown; choose from one-zone, zones."),
        (["--information", "all"], "--information 'all' is unknown"),
        (
            ["--policies", "greedy,wish"],
            "--policies 'wish' is unknown; choose from on_demand, greedy",
        ),
        (["--history", "hot"], "--history 'hot' is unknown"),
        (["--billing", "moon"], "--billing 'moon' is unknown"),
        (["--slack", "a"], "--slack takes numbers"),
        (["--slack", "1"], "do not fit in"),
        (["--start-up-seconds", "1..2..3"], "--start-up-seconds takes a number, or a range"),
        (["--start-up-seconds", "60..10"], "--start-up-seconds must be from 0 to 7200"),
        (["--start-up-seconds", "nan"], "--start-up-seconds must be from 0 to 7200"),
        (["--groups", "nowhere.json"], "nowhere.json: there is no such file"),
        (["--job-hours", "0"], "--job-hours must be above 0"),
        (["--egress-usd", "inf"], "--egress-usd must be from 0 to 1e+06"),
        (["--transfer-hours", "99"], "--transfer-hours must be from 0 to 24"),
        (["--json", "rows.svg"], "--json rows.svg: the picture gets the ending .svg"),
        (["--json", "."], ". cannot be written: it is a folder"),
        (["--json", "/nowhere/x.json", "--policies", "greedy"], "/nowhere/x.json cannot be"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(folder: Path, arguments: list[str], sentence: str):
    code, _, errors = _run("--traces", str(folder), *arguments)
    assert code == 2
    assert sentence in errors
