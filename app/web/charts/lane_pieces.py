"""One machine's lane in the timeline: its spans as coloured pieces, never too many to draw.

Lives here: which activity a piece shows, what its seconds cost, and how pieces narrower than a
pixel are gathered. Not here: the chart around the lanes (`time_chart`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.domain.billing.cost_statement import Activity
from app.domain.billing.phase_timeline import PhaseSpan, rework_ends_at
from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES
from app.domain.market.price_book import PriceSegment
from app.domain.units.durations import measured_duration
from app.storage.reports.page_read_models import MachineLane
from app.web import formats
from trainer.protocol.agent_report import MachinePhase

_WIDTH_MIN: Final = 0.12
"""Percent of the width; about a pixel. At most some 800 pieces are drawn per lane."""


@dataclass(frozen=True)
class Axis:
    """Instants to percentages of the width."""

    start_at: datetime
    end_at: datetime

    @property
    def seconds(self) -> float:
        """Length of the axis."""
        return (self.end_at - self.start_at).total_seconds()

    def x(self, at: datetime, *, clip: bool = True) -> float:
        """Where an instant lies, 0 to 100 unless `clip` is off."""
        share = 100 * (at - self.start_at).total_seconds() / self.seconds
        return min(100.0, max(0.0, share)) if clip else share


@dataclass(frozen=True)
class LanePiece:
    """A coloured segment of a lane; `x` and `width` are percentages."""

    activity: str
    x: float
    width: float
    title: str
    microusd_per_hour: int | None


@dataclass
class _Segment:
    """Time of one activity, with what it cost."""

    activity: str
    from_at: datetime
    to_at: datetime
    steps: str = ""

    @property
    def seconds(self) -> float:
        return (self.to_at - self.from_at).total_seconds()


def lane_price(lane: MachineLane) -> int | None:
    """The newest price of the machine, micro-dollars per hour."""
    return lane.prices[-1].microusd_per_hour if lane.prices else None


def requested_piece(lane: MachineLane, axis: Axis, now: datetime) -> Iterator[LanePiece]:
    """The wait from asking for a machine to the cloud's start of it, which costs nothing."""
    machine = lane.instance
    until = machine.launched_at
    if until is None:
        until = now if machine.state in LIVE_INSTANCE_STATES else machine.updated_at
    x, width = _place(axis, machine.requested_at, until)
    if width >= _WIDTH_MIN:
        waited = formats.brief((until - machine.requested_at).total_seconds())
        yield LanePiece("requested", x, width, f"requested: {waited}, not billed", None)


def lane_pieces(lane: MachineLane, axis: Axis, through: Mapping[int, int]) -> list[LanePiece]:
    """The machine's billed time, in order, without gaps between neighbouring spans."""
    speed = lane.instance.billing_speed
    pieces = []
    for group in _gathered(_segments(lane.spans, through), axis):
        lengths: dict[str, float] = {}
        for segment in group:
            lengths[segment.activity] = lengths.get(segment.activity, 0.0) + segment.seconds
        activity = max(lengths, key=lambda name: lengths[name])
        from_at, to_at = group[0].from_at, group[-1].to_at
        x, width = _place(axis, from_at, to_at)
        cost = _cost_words(lane, from_at, to_at, speed)
        mostly = "mostly " if len(lengths) > 1 else ""
        steps = group[0].steps if len(group) == 1 else ""
        title = f"{lane.label}: {mostly}{formats.words(activity)}, {_seconds(group)}{steps}{cost}"
        pieces.append(LanePiece(activity, x, width, title, _price_at(lane.prices, from_at)))
    return pieces


def _segments(spans: Iterable[PhaseSpan], through: Mapping[int, int]) -> Iterator[_Segment]:
    """Spans as activities, training cut where rework ends; equal neighbours are one."""
    last: _Segment | None = None
    for span in spans:
        redone_until = rework_ends_at(span, through)
        for activity, from_at, to_at in (
            (Activity.REWORK, span.from_at, redone_until),
            (_activity(span.phase), redone_until, span.to_at),
        ):
            if from_at >= to_at:
                continue
            if last is not None and last.activity == activity and last.to_at == from_at:
                last.to_at, last.steps = to_at, ""
                continue
            if last is not None:
                yield last
            last = _Segment(activity.value, from_at, to_at, _steps(span, activity))
    if last is not None:
        yield last


def _gathered(segments: Iterable[_Segment], axis: Axis) -> Iterator[list[_Segment]]:
    """Segments too narrow to be seen, together until they are wide enough."""
    group: list[_Segment] = []
    for segment in segments:
        wide = _place(axis, segment.from_at, segment.to_at)[1] >= _WIDTH_MIN
        if group and (wide or segment.from_at > group[-1].to_at):
            yield group
            group = []
        group.append(segment)
        if _place(axis, group[0].from_at, group[-1].to_at)[1] >= _WIDTH_MIN:
            yield group
            group = []
    if group:
        yield group


def _activity(phase: MachinePhase) -> Activity:
    """What a phase's time buys; all but training, evaluation and compiling are called alike."""
    if phase in (MachinePhase.TRAIN, MachinePhase.EVAL):
        return Activity.USEFUL
    if phase is MachinePhase.COMPILE:
        return Activity.SETUP
    return Activity(phase.value)


def _steps(span: PhaseSpan, activity: Activity) -> str:
    if activity is not Activity.USEFUL or span.first_step is None or span.last_step is None:
        return ""
    return f", steps {span.first_step:,} to {span.last_step:,}"


def _place(axis: Axis, from_at: datetime, to_at: datetime) -> tuple[float, float]:
    x = axis.x(from_at)
    return round(x, 3), round(max(0.0, axis.x(to_at) - x), 3)


def _seconds(group: list[_Segment]) -> str:
    total = sum(segment.seconds for segment in group)
    return measured_duration(total)


def _price_at(prices: Iterable[PriceSegment], at: datetime) -> int | None:
    found = None
    for price in prices:
        if found is None or price.from_at <= at:
            found = price.microusd_per_hour
    return found


def _cost_words(lane: MachineLane, from_at: datetime, to_at: datetime, speed: int) -> str:
    """What a piece cost; of a machine that its cloud does not charge for, that."""
    rating = lane.instance.rating
    if rating is not None and rating["waived"]:
        return ", not charged"
    cost = _cost_microusd(lane.prices, from_at, to_at, speed)
    return "" if cost is None else f", about {formats.usd(cost)}"


def _cost_microusd(
    prices: tuple[PriceSegment, ...], from_at: datetime, to_at: datetime, speed: int
) -> int | None:
    """Roughly what the seconds cost; the ledger has the exact amounts."""
    if not prices:
        return None
    total = 0.0
    for price in prices:
        seconds = (min(to_at, price.to_at) - max(from_at, price.from_at)).total_seconds()
        total += max(0.0, seconds) * price.microusd_per_hour / 3600
    return round(total * speed)
