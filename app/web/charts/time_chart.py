"""The timeline's geometry: progress, machines and prices over one axis of time.

Places across are percentages of the width, so that one drawing fits every screen; heights are
pixels. Not here: the drawing (`templates/time_chart.html`), or how spans of one machine become
coloured pieces (`lane_pieces`), or the strip of prices (`price_strip`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from app.domain.billing.phase_timeline import AttemptSteps, rework_through
from app.domain.lifecycle.entities import Attempt
from app.domain.lifecycle.instance import ENDED_BY_CLOUD, InstanceState
from app.domain.units.durations import DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS, stopwatch
from app.domain.wording.checkpoint_words import where_it_went_on
from app.domain.wording.machine_words import ended_words
from app.storage.reports.page_read_models import JobTimeline, MachineLane
from app.web import formats
from app.web.charts.lane_pieces import Axis, LanePiece, lane_pieces, lane_price, requested_piece
from app.web.charts.price_strip import STRIP_HEIGHT, Prices, PriceStrip, price_strip

PROGRESS_TOP: Final = 14
PROGRESS_HEIGHT: Final = 104
LANES_TOP: Final = PROGRESS_TOP + PROGRESS_HEIGHT + 14
LANE_STEP: Final = 44
LANE_LABEL: Final = 17
BAR_HEIGHT_MAX: Final = 20
BAR_HEIGHT_MIN: Final = 8
AXIS_HEIGHT: Final = 24
_TICKS_MAX: Final = 6
_LABEL_X_MAX: Final = 50
_STEPS: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
    *(hours * HOUR_SECONDS for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_SECONDS for days in (1, 2, 7, 14, 30, 90, 365)),
)  # fmt: skip


@dataclass(frozen=True)
class Mark:
    """Something that happened at one instant, or a limit. `kind` is its class in the drawing."""

    x: float
    kind: str
    title: str
    label: str = ""
    anchor: str = "start"


@dataclass(frozen=True)
class PlacedPiece:
    """A piece with its place: `y` and `height` in pixels."""

    piece: LanePiece
    y: float
    height: float


@dataclass(frozen=True)
class Lane:
    """One machine: `label` and `place` are written above its bars."""

    label: str
    place: str
    y: int
    bars: tuple[PlacedPiece, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class TimeChart:
    """Everything that is drawn. Curves are points in a square of 1000 × 1000, y downwards."""

    height: int
    ticks: tuple[Mark, ...]
    curves: tuple[str, ...]
    projection: str
    goal_label: str
    lanes: tuple[Lane, ...]
    limits: tuple[Mark, ...]
    activities: tuple[str, ...]
    strip: PriceStrip | None
    earlier_machines: int
    summary: str

    @property
    def axis_y(self) -> int:
        """Where the axis lies."""
        return self.height - AXIS_HEIGHT

    @property
    def marks_shown(self) -> frozenset[str]:
        """The kinds of marks in the lanes: the legend explains no other."""
        return frozenset(mark.kind for lane in self.lanes for mark in lane.marks)


@dataclass(frozen=True)
class ChartData:
    """What the chart tells: instants are None where they do not apply.

    points: rows of (fence, step, at). step_at: when the newest step was finished.
    prices: recorded ones of the pools that were used.
    """

    timeline: JobTimeline
    points: Sequence[Mapping[str, Any]]
    now: datetime
    live: bool
    step: int
    step_at: datetime | None
    total_steps: int | None
    eta_at: datetime | None
    deadline_at: datetime | None
    last_safe_at: datetime | None
    prices: Prices = field(default_factory=dict)


def time_chart(story: ChartData) -> TimeChart | None:
    """The chart, or None while no machine has been asked for."""
    if not story.timeline.lanes:
        return None
    axis = _axis(story)
    through = rework_through(
        AttemptSteps(one.fence, one.parent_step or 0, one.best_step)
        for one in story.timeline.attempts
    )
    dearest = max(lane_price(lane) or 0 for lane in story.timeline.lanes)
    lanes = tuple(
        _lane(lane, LANES_TOP + number * LANE_STEP, axis, through, dearest, story.now)
        for number, lane in enumerate(story.timeline.lanes)
    )
    shown = {bar.piece.activity for lane in lanes for bar in lane.bars}
    lanes_end = LANES_TOP + len(lanes) * LANE_STEP
    last_at = story.now if story.live else axis.end_at
    strip = price_strip(story.prices, axis, last_at, lanes_end, live=story.live)
    goal = story.total_steps or max([story.step, *(row["step"] for row in story.points)], default=0)
    return TimeChart(
        height=lanes_end + (STRIP_HEIGHT if strip is not None else 0) + AXIS_HEIGHT,
        ticks=_ticks(axis),
        curves=_curves(story, axis, goal),
        projection=_projection(story, axis, goal),
        goal_label=f"step {goal:,}" if goal else "",
        lanes=lanes,
        limits=_limits(story, axis),
        activities=tuple(name for name in LEGEND if name in shown),
        strip=strip,
        earlier_machines=story.timeline.earlier_machines,
        summary=_summary(story) + (f" {strip.summary}" if strip is not None else ""),
    )


LEGEND: Final = (
    "useful", "rework", "checkpoint", "restore", "boot", "setup", "drain", "gang_wait", "idle",
    "requested",
)  # fmt: skip
"""Activities in the order of the legend."""


def _axis(story: ChartData) -> Axis:
    lanes = story.timeline.lanes
    start = min(lane.instance.requested_at for lane in lanes)
    ends = [lane.instance.ended_at or story.now for lane in lanes]
    end = story.now if story.live else max(ends)
    elapsed = max(timedelta(seconds=1), end - start)
    if story.live and story.eta_at is not None:
        # What is left is shown as far as it leaves half of the width to what has happened.
        end = max(end, min(story.eta_at, end + elapsed))
    if story.deadline_at is not None and end < story.deadline_at <= end + elapsed / 2:
        end = story.deadline_at + (story.deadline_at - start) / 50
    return Axis(start, max(end, start + timedelta(seconds=1)))


def _ticks(axis: Axis) -> tuple[Mark, ...]:
    step = next((one for one in _STEPS if axis.seconds / one <= _TICKS_MAX), _STEPS[-1])
    ticks = []
    for number in range(int(axis.seconds // step) + 1):
        seconds = number * step
        x = 100 * seconds / axis.seconds
        label = stopwatch(seconds) if axis.seconds < DAY_SECONDS else formats.brief(seconds)
        anchor = "start" if x < 3 else "end" if x > 96 else "middle"
        at = axis.start_at + timedelta(seconds=seconds)
        ticks.append(Mark(x, "tick", formats.full_time(at), label, anchor))
    return tuple(ticks)


def _curves(story: ChartData, axis: Axis, goal: int) -> tuple[str, ...]:
    """One line per attempt: where it resumed, its points, and where it is now."""
    if not goal:
        return ()
    curves = []
    for attempt in story.timeline.attempts:
        if attempt.trained_at is None:
            continue
        line = [(attempt.trained_at, attempt.parent_step or 0)]
        line += [(row["at"], row["step"]) for row in story.points if row["fence"] == attempt.fence]
        newest = attempt is story.timeline.attempts[-1]
        if newest and story.step_at is not None and story.step >= line[-1][1]:
            line.append((story.step_at, story.step))
        elif attempt.best_step >= line[-1][1]:
            line.append((attempt.ended_at or story.now, attempt.best_step))
        curves.append(_points(line, axis, goal))
    return tuple(curves)


def _projection(story: ChartData, axis: Axis, goal: int) -> str:
    if not goal or not story.live or story.eta_at is None or story.total_steps is None:
        return ""
    return _points([(story.now, story.step), (story.eta_at, goal)], axis, goal)


def _points(line: Sequence[tuple[datetime, int]], axis: Axis, goal: int) -> str:
    return " ".join(
        f"{axis.x(at, clip=False) * 10:.1f},{1000 - 1000 * min(step, goal) / goal:.1f}"
        for at, step in line
    )


def _lane(
    lane: MachineLane, top: int, axis: Axis, through: Mapping[int, int], dearest: int, now: datetime
) -> Lane:
    machine = lane.instance
    pieces = [*requested_piece(lane, axis, now), *lane_pieces(lane, axis, through)]
    floor = top + LANE_LABEL + BAR_HEIGHT_MAX
    bars = []
    for piece in pieces:
        height = float(BAR_HEIGHT_MIN)
        if dearest and piece.microusd_per_hour:
            share = piece.microusd_per_hour / dearest
            height = max(height, min(1.0, share) * BAR_HEIGHT_MAX)
        bars.append(PlacedPiece(piece, round(floor - height, 1), round(height, 1)))
    where = [] if machine.pool is None else [machine.pool.zone]
    where.append(formats.words(machine.market))
    price = lane_price(lane)
    if price is not None:
        where.append(formats.per_hour(price))
    label = lane.label or formats.words(machine.state)
    return Lane(label, " · ".join(where), top, tuple(bars), _lane_marks(lane, axis))


def _lane_marks(lane: MachineLane, axis: Axis) -> tuple[Mark, ...]:
    machine = lane.instance
    marks = []
    if machine.noticed_at is not None:
        title = f"{lane.label}: the cloud gave notice at {formats.clock_time(machine.noticed_at)}"
        if machine.notice_deadline_at is not None:
            left = (machine.notice_deadline_at - machine.noticed_at).total_seconds()
            title += f", {formats.brief(left)} ahead"
        marks.append(Mark(axis.x(machine.noticed_at), "notice", title))
    if machine.ended_at is not None:
        title = (
            f"{lane.label}: gone at {formats.clock_time(machine.ended_at)}, "
            f"ended by {ended_words(machine.ended_by)}"
        )
        kind = "gone-cloud" if machine.ended_by in ENDED_BY_CLOUD else "gone"
        marks.append(Mark(axis.x(machine.ended_at), kind, title))
    elif machine.state is InstanceState.LAUNCH_FAILED:
        title = "The cloud refused the launch"
        marks.append(Mark(axis.x(machine.updated_at), "gone", title))
    return tuple(marks)


def _limits(story: ChartData, axis: Axis) -> tuple[Mark, ...]:
    """The deadline's wall and the last safe moment, where they lie on the axis."""
    limits = []
    for at, kind, label in (
        (story.last_safe_at, "last-safe", "last safe moment"),
        (story.deadline_at, "deadline", "deadline"),
    ):
        if at is not None and axis.start_at <= at <= axis.end_at:
            x = axis.x(at)
            title = f"{label}: {formats.full_time(at)}"
            limits.append(Mark(x, kind, title, label, "end" if x > 60 else "start"))
    if story.live and axis.end_at > story.now + timedelta(seconds=1):
        limits.append(Mark(axis.x(story.now), "now", "now", "now", "middle"))
    attempts = enumerate(story.timeline.attempts, 1)
    trained = [(ordinal, one) for ordinal, one in attempts if one.trained_at is not None]
    # The first one to train began at the beginning, unless it restored something.
    resumed = [pair for pair in trained if pair is not trained[0] or pair[1].parent_step]
    for ordinal, attempt in resumed:
        earlier = [one.committed_step for one in story.timeline.attempts[: ordinal - 1]]
        went_on = where_it_went_on(attempt.parent_step, max(earlier, default=0))
        label = went_on.partition(":")[0] if attempt is resumed[-1][1] else ""
        limits.append(_resumed(f"Attempt {ordinal} {went_on}", label, attempt, axis))
    return tuple(limits)


def _resumed(told: str, label: str, attempt: Attempt, axis: Axis) -> Mark:
    """Where an attempt went on; only the newest is written out, for they may lie close."""
    x = axis.x(attempt.trained_at or attempt.created_at)
    # To the left where the right has no room, as on a phone.
    anchor = "end" if x > _LABEL_X_MAX else "start"
    return Mark(x, "resumed", told, label, anchor)


def _summary(story: ChartData) -> str:
    """The chart in a sentence, for those who do not see it."""
    lanes = story.timeline.lanes
    taken = sum(1 for lane in lanes if lane.instance.noticed_at is not None)
    machines = "1 machine" if len(lanes) == 1 else f"{len(lanes)} machines"
    notices = "no notice" if taken == 0 else "1 notice" if taken == 1 else f"{taken} notices"
    total = f" of {story.total_steps:,}" if story.total_steps else ""
    reached = f"Step {story.step:,}" if story.step else "No step"
    start = min(lane.instance.requested_at for lane in lanes)
    span = max(MINUTE_SECONDS / 60, (story.now - start).total_seconds())
    tail = f" over {formats.brief(span)}" if story.live else ""
    return f"{reached}{total} on {machines}, with {notices} of interruption{tail}."
