"""What the policies cost on recordings: Lowtide's own less than the published ones, never late."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.backtest.cells import ComparisonPlan, PoolGroup, PoolSetting
from app.backtest.replay import PoolVisibility
from app.backtest.report import cells, summarise, svg, text_chart
from app.backtest.run_cells import Conditions, Row, run_plan

TRACES = Path(__file__).parents[3] / "app/adapters/providers/local/traces"
GROUPS = (
    PoolGroup("h100", "gcp_2025_h100_13z.npz", 1, ("us-west1-a", "us-central1-c", "us-east4-a")),
)
NAMES = ("greedy", "uniform_progress", "evolved", "lowtide")


def _rows(setting: PoolSetting, information: PoolVisibility, hours: float) -> list[Row]:
    plan = ComparisonPlan(GROUPS, (1.2, 1.5), (0.2,), 48.0, 2, 1.9)
    conditions = Conditions(TRACES, NAMES, information, history_hours=hours)
    found = run_plan(plan, setting, conditions, 1, lambda _done, _of: None)
    assert found.problems == []
    return found.rows


@pytest.mark.parametrize(
    "hours", [pytest.param(0.0, marks=pytest.mark.full, id="cold"), pytest.param(120.0, id="warm")]
)
@pytest.mark.parametrize(
    "information",
    # What the product knows; who sees every pool is the comparison.
    [PoolVisibility.ATTEMPTS, pytest.param(PoolVisibility.VISIBLE, marks=pytest.mark.full)],
)
@pytest.mark.parametrize(
    "setting", [PoolSetting.ZONES, pytest.param(PoolSetting.ONE_ZONE, marks=pytest.mark.full)]
)
def test_lowtide_costs_less_than_uniform_progress(
    setting: PoolSetting, information: PoolVisibility, hours: float
):
    rows = _rows(setting, information, hours)
    by_name = {summary.policy: summary for summary in summarise(rows)}
    ratios = {name: by_name[name].ratio for name in NAMES}
    assert all(summary.missed == 0 for summary in by_name.values())
    assert all(ratio is not None and ratio >= 1 for ratio in ratios.values())
    assert ratios["lowtide"] < ratios["uniform_progress"]  # type: ignore[operator]
    assert {(cell.group, cell.slack) for cell in cells(rows)} == {("h100", 1.2), ("h100", 1.5)}
    assert len(text_chart(list(by_name.values()))) == len(NAMES)
    assert svg(rows, "one & all").count("<circle") == len(NAMES) + 2 * len(NAMES)
