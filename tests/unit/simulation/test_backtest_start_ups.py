"""Start-ups of replayed jobs: a figure of each job's own, and a part of every restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.backtest.cells import ComparisonPlan, PlanOverrides, PoolGroup, PoolSetting, read_plan
from app.backtest.lowtide import Lowtide
from app.backtest.policy_view import Briefing, JobView, Terms
from app.backtest.replay import PoolVisibility, Replay
from app.backtest.run_cells import POLICIES, Conditions, Row, run_plan
from app.backtest.start_ups import GRID_SECONDS, NO_START_UPS, StartUps
from app.backtest.traces import TraceProblem, Window

TICK = 600
POOLS = ("a", "b")


def _recording(folder: Path, ticks: int = 200) -> Path:
    """Two zones whose capacity comes and goes."""
    dice = np.random.default_rng(7)
    up = np.logical_xor.accumulate(dice.random((2, ticks)) < 0.12, axis=1)
    np.savez(
        folder / "tiny.npz",
        zones=np.array(POOLS),
        avail=up.astype(np.uint8),
        gap_seconds=np.array(TICK),
        price=np.full((2, ticks), np.nan, np.float32),
        od=np.array([3.0, 3.0], np.float32),
        gang=np.array(1),
    )
    return folder


def _plan(start_ups: StartUps, overhead_hours: float = 0.1, starts: int = 3) -> ComparisonPlan:
    group = PoolGroup("tiny", "tiny.npz", 1, None)
    return ComparisonPlan((group,), (1.4, 1.8), (overhead_hours,), 6.0, starts, 1.8, start_ups)


def _rows(
    folder: Path,
    plan: ComparisonPlan,
    setting: PoolSetting,
    policies: tuple[str, ...] = ("greedy", "uniform_progress", "lowtide"),
    **more: Any,
) -> list[Row]:
    conditions = Conditions(folder, policies, history_hours=10.0, **more)
    found = run_plan(plan, setting, conditions, 1, lambda _done, _of: None)
    assert found.problems == []
    return found.rows


@pytest.mark.parametrize(
    ("setting", "policies"),
    [
        (PoolSetting.ONE_ZONE, ("greedy", "lowtide")),
        pytest.param(PoolSetting.ONE_ZONE, tuple(POLICIES), marks=pytest.mark.full),
        pytest.param(PoolSetting.ZONES, tuple(POLICIES), marks=pytest.mark.full),
    ],
)
def test_a_start_up_is_in_every_restart_of_every_policy_and_of_the_optimum(
    setting: PoolSetting, policies: tuple[str, ...], tmp_path: Path
):
    """As costly to the cent as an overhead that is so much longer."""
    folder = _recording(tmp_path)
    rows = _rows(folder, _plan(StartUps(540.0, 540.0)), setting, policies)
    longer = _rows(folder, _plan(NO_START_UPS, overhead_hours=0.25), setting, policies)
    own = {"overhead_hours", "start_up_seconds"}
    assert [{k: row[k] for k in row if k not in own} for row in rows] == [
        {k: row[k] for k in row if k not in own} for row in longer
    ]
    assert {row["start_up_seconds"] for row in rows} == {540.0}
    plain = _rows(folder, _plan(NO_START_UPS), setting, policies)
    assert sum(row["cost_usd"] for row in rows) > sum(row["cost_usd"] for row in plain)
    assert any(row["launches"] > 2 for row in rows), "nothing was restarted"


def test_drawn_start_ups_differ_from_job_to_job_and_nothing_is_late(tmp_path: Path):
    rows = _rows(_recording(tmp_path), _plan(StartUps(10.0, 1_200.0)), PoolSetting.ONE_ZONE)
    by_job: dict[tuple[str, int], set[float]] = {}
    for row in rows:
        by_job.setdefault((row["zone"], row["start"]), set()).add(row["start_up_seconds"])
        assert row["cost_usd"] >= row["optimum_usd"] - 1e-6
        assert not row["missed"] or row["policy"] != "lowtide"
    assert all(len(one) == 1 for one in by_job.values())
    assert len(set.union(*by_job.values())) >= 3


def test_a_drawn_start_up_is_the_same_in_every_run_and_within_its_bounds():
    drawn = StartUps(10.0, 1_200.0)
    all_ = [drawn.of_job("group", zone, start) for zone in POOLS for start in range(50)]
    assert all_ == [drawn.of_job("group", zone, start) for zone in POOLS for start in range(50)]
    assert (min(all_), max(all_)) == (10.0, 1_200.0)
    assert all(seconds % GRID_SECONDS == 0 for seconds in all_ if seconds > 10.0)
    assert StartUps(600.0, 600.0).of_job("group", "a", 0) == 600.0
    assert NO_START_UPS.of_job("group", "a", 0) == 0.0
    assert 0 <= StartUps(0.0, 20.0).of_job("group", "a", 0) <= 20.0


def test_lowtide_learns_a_start_up_that_nobody_told_it():
    """It plans with what of it has passed, and with all of it once work has begun."""
    terms = Terms(6 * 3600.0, 10 * 3600.0, 360.0 + 1_200.0, start_up_seconds=1_200.0)
    up = np.ones((1, 80), dtype=bool)
    window = Window(("a",), TICK, up, np.ones((1, 80)), up[:, :0], np.zeros((1, 0)), 3.0)
    briefing = Briefing(("a",), TICK, 3.0, terms, window.past_up, window.past_prices)
    policy = Lowtide(briefing, told_start_up=False)
    planned: list[tuple[float, float]] = []
    decide = policy.decide

    def watched(view: JobView) -> object:
        choice = decide(view)
        planned.append((view.progress_seconds, policy.placement.terms.restart_seconds))
        return choice

    policy.decide = watched  # type: ignore[assignment]
    outcome = Replay(window, terms, PoolVisibility.VISIBLE).run(policy)
    # Of 26 minutes the first six are no part of the start-up.
    assert [restart for done, restart in planned if done == 0] == [360.0, 600.0, 1_200.0]
    assert {restart for done, restart in planned if done > 0} == {1_560.0}
    assert outcome.launches == 1
    assert not outcome.missed
    told = Lowtide(briefing)
    assert told.placement.terms.restart_seconds == 1_560.0


def test_a_start_that_lasts_is_not_given_up_for_a_new_one(tmp_path: Path):
    """What a running start has left is never thought longer than a start from the beginning."""
    plan = _plan(StartUps(1_200.0, 1_200.0), starts=6)
    told, learned = (
        sum(
            row["launches"]
            for row in _rows(
                _recording(tmp_path),
                plan,
                PoolSetting.ONE_ZONE,
                ("lowtide",),
                learns_start_up=learns,
            )
        )
        for learns in (False, True)
    )
    assert learned <= 1.5 * told


def test_an_untold_start_up_is_left_to_lowtide_to_learn(tmp_path: Path):
    folder = _recording(tmp_path)
    plan = _plan(StartUps(1_200.0, 1_200.0))
    told = _rows(folder, plan, PoolSetting.ONE_ZONE)
    learned = _rows(folder, plan, PoolSetting.ONE_ZONE, learns_start_up=True)
    others = [row for row in told if row["policy"] != "lowtide"]
    assert [row for row in learned if row["policy"] != "lowtide"] == others


@pytest.mark.parametrize(
    ("least", "most"), [(-1.0, 5.0), (10.0, 5.0), (0.0, 1e9), (float("nan"), float("nan"))]
)
def test_start_ups_of_no_use_get_a_sentence(least: float, most: float, tmp_path: Path):
    path = tmp_path / "groups.json"
    path.write_text(
        '{"job_hours": 2, "slacks": [2], "overhead_hours": [0.1], "starts": 1, '
        '"one_zone": [{"file": "tiny.npz"}]}'
    )
    with pytest.raises(TraceProblem, match="--start-up-seconds must be from 0 to 7200"):
        read_plan(path, PoolSetting.ONE_ZONE, PlanOverrides(start_ups=StartUps(least, most)))


def test_a_start_up_that_leaves_no_time_is_said_beforehand(tmp_path: Path):
    folder = _recording(tmp_path)
    plan = ComparisonPlan(
        _plan(NO_START_UPS).groups, (1.1,), (0.1,), 6.0, 2, 1.8, StartUps(60.0, 3_600.0)
    )
    conditions = Conditions(folder, ("lowtide",))
    found = run_plan(plan, PoolSetting.ONE_ZONE, conditions, 1, lambda _done, _of: None)
    assert found.rows == []
    assert "6 h of work and 1.1 h to start need" in found.problems[0]
