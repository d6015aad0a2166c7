"""The timeline as lines of text: progress and machines over one axis of time.

Pure: what the api answers goes in, lines come out; each character stands for the same length of
time. Not here: when it is redrawn (`follow`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from app.cli.client import wording
from app.domain.units.durations import stopwatch

LANES_MAX: Final = 12
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_ASKED, _TRAINS, _ELSE = "·", "█", "▒"
_NOTICE, _TAKEN, _GONE = "▼", "×", "|"
_CELLS_MIN: Final = 20
LEGEND: Final = (
    f"{_TRAINS} training  {_ELSE} not training  {_ASKED} requested  "
    f"{_NOTICE} notice  {_TAKEN} interrupted by the cloud  {_GONE} released"
)

Document = dict[str, Any]


@dataclass(frozen=True)
class Timeline:
    """What the chart is drawn from, as the api answers it.

    points: of metrics, by fence and step. instances: those that have ended too.
    """

    job: Document
    attempts: Sequence[Document]
    instances: Sequence[Document]
    points: Sequence[Document]
    now: datetime

    @cached_property
    def first_points(self) -> dict[int, datetime]:
        """When each attempt, by its fence, first reported steps."""
        found: dict[int, datetime] = {}
        for point in self.points:
            found.setdefault(point["fence"], _at(point["at"]))
        return found


def timeline_lines(timeline: Timeline, width: int) -> list[str]:
    """The chart in at most `width` columns; nothing while no machine was asked for."""
    machines = sorted(timeline.instances, key=lambda one: (one["requested_at"], one["id"]))
    if not machines:
        return []
    shown = machines[-LANES_MAX:]
    heads = [_head(one) for one in shown]
    total = timeline.job["progress"]["total_steps"]
    reached = timeline.job["progress"]["step"]
    step = f"step {reached:,}" if reached else "no step"
    side = max(len(step), *map(len, heads)) + 2
    clock = _Clock.of(timeline, shown, max(_CELLS_MIN, width - side - 1))
    lines = [" " * side + clock.ruler()]
    lines.append(step.ljust(side) + _curve(timeline, clock, total))
    for machine, head in zip(shown, heads, strict=True):
        lines.append(head.ljust(side) + _lane(machine, timeline, clock))
    if len(shown) < len(machines):
        earlier = wording.plural(len(machines) - len(shown), "earlier machine")
        lines.append(f"{earlier} not shown")
    return [line.rstrip() for line in (*lines, LEGEND)]


@dataclass(frozen=True)
class _Clock:
    """Instants to columns."""

    start_at: datetime
    seconds: float
    cells: int

    @staticmethod
    def of(timeline: Timeline, shown: Iterable[Document], cells: int) -> _Clock:
        """From the first request to the end of the last machine, or to now."""
        start = min(_at(one["requested_at"]) for one in shown)
        live = timeline.job["ended_at"] is None and timeline.job["state"] != "paused"
        ends = [_ended(one, timeline.now) for one in shown]
        seconds = ((timeline.now if live else max(ends)) - start).total_seconds()
        return _Clock(start, max(1.0, seconds), cells)

    def cell(self, at: datetime) -> int:
        """The column of an instant, within the chart."""
        share = (at - self.start_at).total_seconds() / self.seconds
        return min(self.cells - 1, max(0, int(share * self.cells)))

    def instant(self, cell: int) -> datetime:
        """The middle of a column."""
        return self.start_at + timedelta(seconds=(cell + 0.5) * self.seconds / self.cells)

    def ruler(self) -> str:
        """Times since the start: at the beginning, in the middle and at the end."""
        marks = ["0:00", stopwatch(round(self.seconds / 2)), stopwatch(round(self.seconds))]
        middle = self.cells // 2 - len(marks[1]) // 2
        text = marks[0].ljust(middle) + marks[1]
        return text.ljust(self.cells - len(marks[2])) + marks[2]


def _curve(timeline: Timeline, clock: _Clock, total: int | None) -> str:
    """The step reached by each column's time, as a height; gaps where nothing trained."""
    told = sorted((_at(point["at"]), int(point["step"])) for point in timeline.points)
    goal = total or max((step for _, step in told), default=0)
    cells = []
    for cell in range(clock.cells):
        at = clock.instant(cell)
        reached = [step for when, step in told if when <= at]
        if (
            not goal
            or not reached
            or not any(_trains(one, at, timeline) for one in timeline.attempts)
        ):
            cells.append(" ")
        else:
            share = min(1.0, reached[-1] / goal)
            cells.append(_LEVELS[max(1, round(share * (len(_LEVELS) - 1)))])
    return "".join(cells)


def _lane(machine: Document, timeline: Timeline, clock: _Clock) -> str:
    """What a machine did in each column, with its notice and its end."""
    own = [
        one
        for one in timeline.attempts
        if any(member["instance_id"] == machine["id"] for member in one["members"])
    ]
    requested, ended = _at(machine["requested_at"]), _ended(machine, timeline.now)
    launched = None if machine["launched_at"] is None else _at(machine["launched_at"])
    first, last = clock.cell(requested), clock.cell(ended)
    cells = [" "] * clock.cells
    for cell in range(first, last + 1):
        at = min(max(clock.instant(cell), requested), ended)
        if launched is None or at < launched:
            cells[cell] = _ASKED
        else:
            cells[cell] = _TRAINS if any(_trains(one, at, timeline) for one in own) else _ELSE
    if machine["noticed_at"] is not None:
        cells[clock.cell(_at(machine["noticed_at"]))] = _NOTICE
    if machine["ended_at"] is not None:
        taken = str(machine["ended_by"] or "").startswith("cloud")
        # A notice and the end it announces may fall into one column: the end is shown beside it.
        place = last if cells[last] != _NOTICE else min(last + 1, clock.cells - 1)
        cells[place] = _TAKEN if taken else _GONE
    return "".join(cells)


def _trains(attempt: Document, at: datetime, timeline: Timeline) -> bool:
    """From its first steps on: the start of its trainer is not yet training."""
    first = timeline.first_points.get(attempt["fence"])
    if first is None or at < first:
        return False
    return at <= (timeline.now if attempt["ended_at"] is None else _at(attempt["ended_at"]))


def _head(machine: Document) -> str:
    return f"{machine.get('name') or '…'} ${wording.hourly(machine['microusd_per_hour'])}/h"


def _ended(machine: Document, now: datetime) -> datetime:
    if machine["ended_at"] is not None:
        return _at(machine["ended_at"])
    # A launch that failed has no end of its own: it is drawn where it was asked for.
    return _at(machine["requested_at"]) if machine["state"] == "launch_failed" else now


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)
