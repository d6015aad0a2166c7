"""Figures, the goals they are held against, and how both are shown: a table and a JSON file.

Not here: how a figure is measured.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured number.

    goal: the most (`at_most`) or the least that meets it; None for a number without a goal.
    detail: whatever explains the number, for the JSON file and the line below the figure.
    """

    benchmark: str
    what: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = True
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


@dataclass(frozen=True)
class Failure:
    """A benchmark that gave no figures, and why."""

    benchmark: str
    why: str


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(pages / (1 << 30), 1),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def load_average() -> float:
    """Processes that ran or waited for a core, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def table(figures: Iterable[Figure], failures: Iterable[Failure]) -> str:
    """All figures as text, one line each."""
    rows = [("benchmark", "figure", "measured", "goal", "met")]
    rows += [
        (one.benchmark, one.what, _number(one.value, one.unit), _goal(one), _met(one))
        for one in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines += [f"{one.benchmark}: no figures: {one.why}" for one in failures]
    return "\n".join(lines)


def write_json(
    path: Path,
    figures: Sequence[Figure],
    failures: Sequence[Failure],
    about: dict[str, Any],
) -> None:
    """Everything that was found, for programs."""
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
        "figures": [{**asdict(one), "met": one.met} for one in figures],
        "failures": [asdict(one) for one in failures],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        text.rjust(width) if column in (2, 3) else text.ljust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _number(value: float, unit: str) -> str:
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2
    return f"{value:,.{digits}f} {unit}".strip()


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return "-"
    return f"{'≤' if figure.at_most else '≥'} {figure.goal:g} {figure.unit}".strip()


def _met(figure: Figure) -> str:
    return {None: "", True: "yes", False: "NO"}[figure.met]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    found = next((line for line in lines if line.startswith("model name")), "")
    return found.partition(":")[2].strip() or platform.machine()
