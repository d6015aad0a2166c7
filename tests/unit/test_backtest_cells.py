"""Recordings and groups files: what is read, and the sentence for what is of no use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.simulation.backtest.cells import Overrides, Setting, cells_of, read_plan
from app.simulation.backtest.traces import SPOT_PRICE_RATIO, TraceProblem, cut_window, read_trace

GROUPS: dict[str, Any] = {
    "job_hours": 2,
    "slacks": [1.2, 1.5],
    "overhead_hours": {"one_zone": [0.1], "zones": [0.2]},
    "starts": {"one_zone": 2, "zones": 3},
    "one_zone": [{"file": "tiny.npz", "gang": 2}],
    "zones": [{"name": "both", "file": "tiny.npz", "gang": 1, "zones": ["a", "b"]}],
}


def _arrays(**changed: Any) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "zones": np.array(["a", "b"]),
        "avail": np.tile(np.array([[2], [1]], np.uint8), (1, 40)),
        "gap_seconds": np.array(600),
        "price": np.tile(np.array([[1.0], [np.nan]], np.float32), (1, 40)),
        "od": np.array([3.0, 4.0], np.float32),
        "gang": np.array(2),
    }
    return arrays | changed


def _write(folder: Path, **changed: Any) -> Path:
    path = folder / "tiny.npz"
    np.savez(path, **{key: value for key, value in _arrays(**changed).items() if value is not None})
    return path


def _plan_file(folder: Path, **changed: Any) -> Path:
    path = folder / "groups.json"
    path.write_text(json.dumps(GROUPS | changed))
    return path


def test_a_missing_price_is_the_usual_share_of_on_demand(tmp_path: Path):
    trace = read_trace(_write(tmp_path))
    assert trace.prices[1, 0] == pytest.approx(SPOT_PRICE_RATIO * 4.0)
    window = cut_window(trace, ("a", "b"), 2, 10, 5, 4)
    assert window.up.tolist() == [[True] * 5, [False] * 5]
    assert window.past_up.shape == (2, 4)
    assert window.on_demand == 3.0


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"price": None, "od": None}, r"tiny\.npz: lacks price, od"),
        ({"avail": np.ones((3, 40))}, r"avail has the shape \(3, 40\), expected \(2 zones"),
        ({"price": np.ones((2, 39))}, "price must have avail's shape"),
        ({"price": np.full((2, 40), -1.0)}, "negative or infinite"),
        ({"od": np.array([3.0, np.nan])}, "od must be a price above 0"),
        ({"avail": np.full((2, 40), np.nan)}, "negative or not a number"),
        ({"gap_seconds": np.array(0)}, "gap_seconds must be one number"),
        ({"zones": np.array(["a", "a"])}, "a zone stands twice"),
        ({"price": np.array([["x"] * 40] * 2)}, "numbers are needed"),
    ],
)
def test_a_recording_of_no_use_gets_a_sentence(
    tmp_path: Path, changed: dict[str, Any], sentence: str
):
    with pytest.raises(TraceProblem, match=sentence):
        read_trace(_write(tmp_path, **changed))


@pytest.mark.parametrize(
    "content", [b"", b"not a zip", b"PK\x03\x04 cut off", b"\x93NUMPY\x01\x00"]
)
def test_a_broken_file_gets_a_sentence(tmp_path: Path, content: bytes):
    path = tmp_path / "tiny.npz"
    path.write_bytes(content)
    with pytest.raises(TraceProblem, match=r"tiny\.npz: cannot be read"):
        read_trace(path)
    with pytest.raises(TraceProblem, match=r"gone\.npz: there is no such file"):
        read_trace(tmp_path / "gone.npz")


def test_cells_are_every_pool_start_overhead_and_slack(tmp_path: Path):
    trace = read_trace(_write(tmp_path))
    alone = read_plan(_plan_file(tmp_path), Setting.ONE_ZONE, Overrides())
    found = list(cells_of(alone.groups[0], trace, alone, Setting.ONE_ZONE))
    # The longest window is 1.5 x 2 h = 18 ticks and 2 more, of 40.
    assert [(cell.zone, cell.start, cell.slack) for cell in found] == [
        (zone, start, slack) for zone in "ab" for start in (0, 20) for slack in (1.2, 1.5)
    ]
    chosen = Overrides(slacks=(1.1,), overhead_hours=(0.05,), job_hours=1.0, starts=1)
    together = read_plan(_plan_file(tmp_path), Setting.ZONES, chosen)
    [cell] = cells_of(together.groups[0], trace, together, Setting.ZONES)
    assert (cell.zone, cell.pools, cell.slack, cell.job_hours) == ("*", ("a", "b"), 1.1, 1.0)
    assert cell.overhead_hours == 0.05


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"slacks": None}, "slacks is missing"),
        ({"slacks": ["wide"]}, "slacks must be numbers"),
        ({"slacks": [0.9]}, "deadline over job length"),
        ({"slacks": [1.01]}, "do not fit in"),
        ({"starts": {"zones": 1}}, "starts is missing for one_zone"),
        ({"starts": {"one_zone": 1.5}}, "starts must be a count"),
        ({"overhead_hours": {"one_zone": [-1]}}, "overhead_hours must be from 0 to 24"),
        ({"job_hours": 0}, "job_hours must be above 0"),
        ({"one_zone": []}, "names no group"),
        ({"one_zone": [{"gang": 1}]}, "group 1 names no file"),
        ({"one_zone": [{"file": "../x.npz"}]}, "file is a name"),
        ({"one_zone": [{"file": "x.npz", "gang": 0}]}, "gang must be a count"),
        ({"one_zone": [{"file": "x.npz", "zones": "a"}]}, "zones must be a list"),
        ({"one_zone": [{"file": "x.npz"}] * 2}, "the same name"),
    ],
)
def test_a_groups_file_of_no_use_gets_a_sentence(
    tmp_path: Path, changed: dict[str, Any], sentence: str
):
    with pytest.raises(TraceProblem, match=sentence):
        read_plan(_plan_file(tmp_path, **changed), Setting.ONE_ZONE, Overrides())


def test_a_group_that_does_not_fit_its_recording_gets_a_sentence(tmp_path: Path):
    trace = read_trace(_write(tmp_path))
    strange = {"one_zone": [{"file": "tiny.npz", "zones": ["a", "c"]}]}
    plan = read_plan(_plan_file(tmp_path, **strange), Setting.ONE_ZONE, Overrides())
    with pytest.raises(TraceProblem, match=r"tiny\.npz has no zone c"):
        list(cells_of(plan.groups[0], trace, plan, Setting.ONE_ZONE))
    plan = read_plan(_plan_file(tmp_path), Setting.ONE_ZONE, Overrides(job_hours=20.0))
    with pytest.raises(TraceProblem, match="holds 40 ticks, 182 are needed"):
        list(cells_of(plan.groups[0], trace, plan, Setting.ONE_ZONE))
