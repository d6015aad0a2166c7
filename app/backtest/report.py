"""What the rows of a backtest say: means, worst cells and misses, as tables of text and an SVG.

Here: figures and layout. Not here: making rows (`run_cells`), writing files
(`server.backtest_command`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from app.backtest.run_cells import Row
from app.domain.units.percent import percent_fine

_BAR_WIDTH: Final = 40
_PLOT: Final = (260, 560)  # left edge and width of the plot, in pixels
_LINE: Final = 15
_COLOURS: Final = ("#9aa5b1", "#c9b458", "#7a9cc6", "#c67a9c", "#8f8f8f", "#b08968", "#1f7a4d")


@dataclass(frozen=True)
class PolicySummary:
    """One policy over all its rows; ratios are means of cost over optimum, None without optimum."""

    policy: str
    jobs: int
    ratio: float | None
    share_of_on_demand: float
    worst_ratio: float | None
    missed: int
    launches: float
    probes: float


@dataclass(frozen=True)
class CellSummary:
    """One (group, slack) with the mean ratio of each policy."""

    group: str
    slack: float
    ratios: dict[str, float]


def summarise(rows: Sequence[Row]) -> list[PolicySummary]:
    """One summary per policy, in the order of the rows."""
    names = dict.fromkeys(str(row["policy"]) for row in rows)
    return [_summary(name, [row for row in rows if row["policy"] == name]) for name in names]


def cells(rows: Sequence[Row]) -> list[CellSummary]:
    """Mean ratio by (group, slack) and policy; empty when the rows have no optimum."""
    collected: dict[tuple[str, float], dict[str, list[float]]] = {}
    for row in rows:
        ratio = _ratio(row)
        if ratio is not None:
            cell = collected.setdefault((row["group"], row["slack"]), {})
            cell.setdefault(row["policy"], []).append(ratio)
    return [
        CellSummary(group, slack, {policy: _mean(all_) for policy, all_ in ratios.items()})
        for (group, slack), ratios in collected.items()
    ]


@dataclass(frozen=True)
class CalibrationSummary:
    """Shares of one group's outcomes that stayed under what was foretold; P90 should hold 0.9."""

    group: str
    jobs: int
    cost_under_p50: float
    cost_under_p90: float
    finish_under_p50: float
    finish_under_p90: float


def calibration(rows: Sequence[Row]) -> list[CalibrationSummary]:
    """A line per group, and one over all of them; empty where nothing was foretold."""
    told = [row for row in rows if "cost_p90_usd" in row]
    groups = dict.fromkeys(str(row["group"]) for row in told)
    lines = [_held(name, [row for row in told if row["group"] == name]) for name in groups]
    return [*lines, _held("all", told)] if told else []


def _held(group: str, rows: Sequence[Row]) -> CalibrationSummary:
    def share(what: str, limit: str) -> float:
        return _mean(row[what] is not None and row[what] <= row[limit] for row in rows)

    return CalibrationSummary(
        group=group,
        jobs=len(rows),
        cost_under_p50=share("cost_usd", "cost_p50_usd"),
        cost_under_p90=share("cost_usd", "cost_p90_usd"),
        finish_under_p50=share("finish_hours", "finish_p50_hours"),
        finish_under_p90=share("finish_hours", "finish_p90_hours"),
    )


def text_chart(summaries: Sequence[PolicySummary]) -> list[str]:
    """A bar per policy: what it costs above the optimum, best first."""
    rated = sorted((s.ratio, s.policy) for s in summaries if s.ratio is not None)
    if not rated:
        return []
    most = max(rated[-1][0] - 1, 1e-9)
    return [
        f"{policy:<18}{'█' * max(1, round((ratio - 1) / most * _BAR_WIDTH)):<{_BAR_WIDTH}}"
        f"  +{percent_fine(ratio - 1)}"
        for ratio, policy in rated
    ]


def svg(rows: Sequence[Row], title: str) -> str:
    """A dot per cell and policy: cost over optimum, one line per (group, slack)."""
    summaries = cells(rows)
    policies = list(dict.fromkeys(str(row["policy"]) for row in rows))
    shown = [name for name in policies if name != "on_demand"] or policies
    most = max((cell.ratios[name] for cell in summaries for name in shown), default=1.5)
    height = 70 + _LINE * (len(summaries) + 1)
    left, width = _PLOT

    def x(ratio: float) -> float:
        return left + (ratio - 1) / max(most - 1, 1e-9) * width

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 40}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="18" font-size="13">{escape(title)}: cost over optimum</text>',
    ]
    for index, name in enumerate(shown):
        at = 10 + 120 * index
        parts.append(
            f'<circle cx="{at + 4}" cy="36" r="4" fill="{_colour(name, policies)}"/>'
            f'<text x="{at + 12}" y="40">{escape(name)}</text>'
        )
    for step in range(6):
        ratio = 1 + (most - 1) * step / 5
        parts.append(
            f'<line x1="{x(ratio):.1f}" y1="52" x2="{x(ratio):.1f}" y2="{height - 16}" '
            f'stroke="#e3e3e3"/><text x="{x(ratio) - 10:.1f}" y="{height - 4}">{ratio:.2f}</text>'
        )
    for line, cell in enumerate(summaries):
        y = 64 + _LINE * line
        parts.append(f'<text x="10" y="{y + 4}">{escape(cell.group)}, slack {cell.slack:g}</text>')
        parts.extend(
            f'<circle cx="{x(cell.ratios[name]):.1f}" cy="{y}" r="4" '
            f'fill="{_colour(name, policies)}" fill-opacity="0.85"/>'
            for name in shown
            if name in cell.ratios
        )
    return "\n".join([*parts, "</svg>", ""])


def _summary(policy: str, rows: list[Row]) -> PolicySummary:
    ratios = [ratio for row in rows if (ratio := _ratio(row)) is not None]
    return PolicySummary(
        policy=policy,
        jobs=len(rows),
        ratio=_mean(ratios) if ratios else None,
        share_of_on_demand=_mean(row["cost_usd"] / row["on_demand_usd"] for row in rows),
        worst_ratio=max(ratios, default=None),
        missed=sum(bool(row["missed"]) for row in rows),
        launches=_mean(row["launches"] for row in rows),
        probes=_mean(row["probes"] for row in rows),
    )


def _ratio(row: Row) -> float | None:
    optimum = row["optimum_usd"]
    return None if not optimum else float(row["cost_usd"]) / float(optimum)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _colour(policy: str, policies: Sequence[str]) -> str:
    if policy == "lowtide":
        return _COLOURS[-1]
    return _COLOURS[policies.index(policy) % (len(_COLOURS) - 1)]
