"""Recordings and groups files: what is read, and the sentence for what is of no use."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.backtest.cells import PlanOverrides, PoolSetting, cells_of, read_plan
from app.backtest.traces import SPOT_PRICE_RATIO, TraceProblem, cut_window, read_trace

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
        ({"price": np.full((2, 40), -1.0)}, "negative or above"),
        ({"price": np.full((2, 40), np.inf)}, "negative or above"),
        ({"od": np.array([3.0, np.nan])}, "od must be a price above 0"),
        ({"avail": np.full((2, 40), np.nan)}, "negative, not whole or above"),
        ({"avail": np.full((2, 40), 1.9)}, "negative, not whole or above"),
        ({"avail": np.full((2, 40), 1e300)}, "negative, not whole or above"),
        ({"gap_seconds": np.array(0)}, "gap_seconds must be one whole number"),
        ({"gap_seconds": np.array(600.7)}, "gap_seconds must be one whole number"),
        ({"gap_seconds": np.array([600, 600])}, "gap_seconds must be one whole number"),
        ({"zones": np.array([b"a", b"b"])}, "text is needed"),
        ({"zones": np.array([], "U1")}, "names no zone"),
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


def test_a_gap_may_be_a_list_of_one(tmp_path: Path):
    assert read_trace(_write(tmp_path, gap_seconds=np.array([600]))).gap_seconds == 600


def test_bytes_that_broke_on_the_way_get_a_sentence(tmp_path: Path):
    """Whatever numpy, zipfile and zlib raise at them; some changes do no harm."""
    path = tmp_path / "tiny.npz"
    np.savez_compressed(path, **_arrays())
    whole, problems = path.read_bytes(), 0
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            read_trace(path)
        except TraceProblem:
            problems += 1
    assert problems > len(whole) / 10


def test_a_member_that_is_no_array_gets_a_sentence(tmp_path: Path):
    path = _write(tmp_path, od=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("od", "3.0")
    with pytest.raises(TraceProblem, match="od holds no array, numbers are needed"):
        read_trace(path)


def test_a_window_and_its_past_are_the_ticks_they_should_be(tmp_path: Path):
    prices = np.arange(80.0).reshape(2, 40)
    trace = read_trace(_write(tmp_path, price=prices, avail=np.arange(80).reshape(2, 40)))
    window = cut_window(trace, ("b",), 52, 10, 5, 4)
    assert window.prices.tolist() == [[50, 51, 52, 53, 54]]
    assert window.past_prices.tolist() == [[46, 47, 48, 49]]
    assert window.up.tolist() == [[False, False, True, True, True]]
    assert not window.past_up.any()


def test_cells_are_every_pool_start_overhead_and_slack(tmp_path: Path):
    trace = read_trace(_write(tmp_path))
    alone = read_plan(_plan_file(tmp_path), PoolSetting.ONE_ZONE, PlanOverrides())
    found = list(cells_of(alone.groups[0], trace, alone, PoolSetting.ONE_ZONE))
    # The longest window is 1.5 x 2 h = 18 ticks and 2 more, of 40.
    assert [(cell.zone, cell.start, cell.slack) for cell in found] == [
        (zone, start, slack) for zone in "ab" for start in (0, 20) for slack in (1.2, 1.5)
    ]
    chosen = PlanOverrides(slacks=(1.2,), overhead_hours=(0.05,), job_hours=1.0, starts=1)
    together = read_plan(_plan_file(tmp_path), PoolSetting.ZONES, chosen)
    [cell] = cells_of(together.groups[0], trace, together, PoolSetting.ZONES)
    assert (cell.zone, cell.pools, cell.slack, cell.job_hours) == ("*", ("a", "b"), 1.2, 1.0)
    assert cell.overhead_hours == 0.05


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"slacks": None}, "slacks is missing"),
        ({"slacks": ["wide"]}, "slacks must be numbers"),
        ({"slacks": [0.9]}, "deadline over job length"),
        ({"slacks": [1.01]}, r"groups\.json: 2 h of work and 0.1 h to start do not fit in"),
        ({"slacks": [10**400]}, "slacks must be numbers up to"),
        ({"job_hours": 10**400}, "job_hours must be above 0"),
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
        read_plan(_plan_file(tmp_path, **changed), PoolSetting.ONE_ZONE, PlanOverrides())


def test_a_figure_given_instead_is_what_a_sentence_blames(tmp_path: Path):
    path = _plan_file(tmp_path)
    for overrides, sentence in (
        (PlanOverrides(job_hours=0.0), "^--job-hours must be above 0"),
        (PlanOverrides(slacks=(0.5,)), "^--slack is deadline over job length"),
        (PlanOverrides(overhead_hours=(25.0,)), "^--overhead-hours must be from 0 to 24"),
        (PlanOverrides(slacks=(1.01,), job_hours=3.0), "^--slack and --job-hours: 3 h of work"),
    ):
        with pytest.raises(TraceProblem, match=sentence):
            read_plan(path, PoolSetting.ONE_ZONE, overrides)


@pytest.mark.parametrize("text", ["{", '{"a":' * 100_000, "\xff"])
def test_a_groups_file_that_is_no_json_gets_a_sentence(tmp_path: Path, text: str):
    path = tmp_path / "groups.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(TraceProblem, match=r"groups\.json: (is nested too|cannot be read as JSON)"):
        read_plan(path, PoolSetting.ONE_ZONE, PlanOverrides())
    with pytest.raises(TraceProblem, match=r"gone\.json: there is no such file"):
        read_plan(tmp_path / "gone.json", PoolSetting.ONE_ZONE, PlanOverrides())


def test_a_deadline_that_cuts_a_tick_counts_from_where_that_begins(tmp_path: Path):
    trace = read_trace(_write(tmp_path))
    tight = PlanOverrides(slacks=(1.05,), overhead_hours=(0.09,))
    plan = read_plan(_plan_file(tmp_path), PoolSetting.ONE_ZONE, tight)
    with pytest.raises(TraceProblem, match="need 13 ticks of 600 s, and the deadline leaves 12"):
        list(cells_of(plan.groups[0], trace, plan, PoolSetting.ONE_ZONE))


def test_a_group_that_does_not_fit_its_recording_gets_a_sentence(tmp_path: Path):
    trace = read_trace(_write(tmp_path))
    strange = {"one_zone": [{"file": "tiny.npz", "zones": ["a", "c"]}]}
    plan = read_plan(_plan_file(tmp_path, **strange), PoolSetting.ONE_ZONE, PlanOverrides())
    with pytest.raises(TraceProblem, match=r"tiny\.npz has no zone c"):
        list(cells_of(plan.groups[0], trace, plan, PoolSetting.ONE_ZONE))
    plan = read_plan(_plan_file(tmp_path), PoolSetting.ONE_ZONE, PlanOverrides(job_hours=20.0))
    with pytest.raises(TraceProblem, match="holds 40 ticks, 182 are needed"):
        list(cells_of(plan.groups[0], trace, plan, PoolSetting.ONE_ZONE))
