"""A pool's recorded prices as people look at them: thinned, summed up, laid over a span of time.

Lives here: pure functions over steps of a price. Not here: the price at an instant (`price_book`)
and what machine time costs (`billing`), which use every step; how a history is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise

Step = tuple[datetime, int]
"""From then on an hour costs so many micro-dollars."""

STEPS_MAX = 720
"""What is kept of one pool's past: eight a day over ninety days."""


@dataclass(frozen=True, slots=True)
class PriceSummary:
    """Micro-USD per hour. `median`: half of the time the price was at most this."""

    least: int
    median: int
    most: int


def thinned(steps: Iterable[Step], most: int = STEPS_MAX) -> list[Step]:
    """The steps by time, at most so many (three or more): where there are more, the first, the
    lowest and the highest of each of equal spans of time. So extremes stay as they were.
    """
    ordered = _changes(sorted(steps))
    if len(ordered) <= most:
        return ordered
    from_at, to_at = ordered[0][0], ordered[-1][0]
    spans = most // 3
    whole = (to_at - from_at) / spans
    kept: list[Step] = []
    for _, group in groupby(ordered, lambda step: min(spans - 1, (step[0] - from_at) // whole)):
        inside = list(group)
        chosen = {inside[0], min(inside, key=_price), max(inside, key=_price)}
        kept += sorted(chosen)
    return _changes(kept)


def within(steps: Sequence[Step], from_at: datetime, to_at: datetime) -> list[Step]:
    """The steps of a span, `from_at` to `to_at`; the one in effect at its start begins there."""
    before = [step for step in steps if step[0] <= from_at]
    inside = [step for step in steps if from_at < step[0] < to_at]
    return [*((from_at, step[1]) for step in before[-1:]), *inside]


def summary(steps: Sequence[Step], to_at: datetime) -> PriceSummary | None:
    """Least, median and most by time, the last step lasting to `to_at`; None without a step."""
    if not steps:
        return None
    ends = [*(at for at, _ in steps[1:]), to_at]
    held = sorted(
        (price, max(end - at, end - end)) for (at, price), end in zip(steps, ends, strict=True)
    )
    whole = sum((length for _, length in held), start=to_at - to_at)
    passed, median = to_at - to_at, held[0][0]
    for price, length in held:
        passed += length
        median = price
        if passed * 2 >= whole:
            break
    return PriceSummary(held[0][0], median, held[-1][0])


def levels(
    steps: Sequence[Step], from_at: datetime, to_at: datetime, count: int
) -> list[int | None]:
    """The price at the middle of each of `count` equal parts of a span; None before the first."""
    width = (to_at - from_at) / count
    found: list[int | None] = []
    place = -1
    for number in range(count):
        middle = from_at + width * (number + 0.5)
        while place + 1 < len(steps) and steps[place + 1][0] <= middle:
            place += 1
        found.append(None if place < 0 else steps[place][1])
    return found


def _changes(ordered: Sequence[Step]) -> list[Step]:
    """Without steps to the price that is in effect already."""
    changed = [later for earlier, later in pairwise(ordered) if later[1] != earlier[1]]
    return [*ordered[:1], *changed]


def _price(step: Step) -> tuple[int, datetime]:
    return step[1], step[0]
