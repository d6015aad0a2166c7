"""Curves of what the trainer reports: loss first, then every other numeric key.

Not here: the chart of time (`time_chart`), or the drawing (`templates/metric_charts.html`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from app.web import formats

CHARTS_MAX: Final = 6
_NO_CHART: Final = frozenset({"step", "total_steps", "seconds", "epoch", "ranks"})
# Shown as a verdict and its table instead (`run_verdict`).
_NO_CHART_PREFIX: Final = "share_"
_FIRST: Final = (
    "loss",
    "accuracy",
    "gpu_utilization",
    "samples_per_second",
    "mfu",
    "learning_rate",
)


@dataclass(frozen=True)
class MetricChart:
    """One key over the steps. Lines are points in a square of 1000 × 1000, one per attempt."""

    name: str
    lines: tuple[str, ...]
    newest: str
    lowest: str
    highest: str
    first_step: int
    last_step: int

    @property
    def summary(self) -> str:
        """The curve in a sentence, for those who do not see it."""
        return (
            f"{formats.words(self.name)} from step {self.first_step:,} to {self.last_step:,}: "
            f"now {self.newest}, between {self.lowest} and {self.highest}."
        )


def metric_charts(points: Sequence[Mapping[str, Any]]) -> tuple[MetricChart, ...]:
    """The charts of rows of (fence, step, metrics), in that order; at most `CHARTS_MAX`."""
    names = {
        name
        for row in points
        for name, value in row["metrics"].items()
        if name not in _NO_CHART and not name.startswith(_NO_CHART_PREFIX) and _is_number(value)
    }
    charts = (_chart(name, points) for name in sorted(names, key=_rank)[:CHARTS_MAX])
    return tuple(chart for chart in charts if chart is not None)


def _rank(name: str) -> tuple[int, str]:
    for place, word in enumerate(_FIRST):
        if word in name:
            return place, name
    return len(_FIRST), name


def _chart(name: str, points: Sequence[Mapping[str, Any]]) -> MetricChart | None:
    found = [
        (int(row["fence"]), int(row["step"]), float(row["metrics"][name]))
        for row in points
        if _is_number(row["metrics"].get(name))
    ]
    if len(found) < 2:
        return None
    steps, values = [step for _, step, _ in found], [value for _, _, value in found]
    low, high, first, last = min(values), max(values), min(steps), max(steps)
    lines: dict[int, list[str]] = {}
    for fence, step, value in found:
        x = 1000 * (step - first) / max(1, last - first)
        y = 1000 - 1000 * (value - low) / ((high - low) or 1.0)
        lines.setdefault(fence, []).append(f"{x:.0f},{y:.0f}")
    return MetricChart(
        name=name,
        lines=tuple(" ".join(line) for line in lines.values()),
        newest=formats.count(values[-1]),
        lowest=formats.count(low),
        highest=formats.count(high),
        first_step=first,
        last_step=last,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
