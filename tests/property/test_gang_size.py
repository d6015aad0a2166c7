"""The size of an elastic gang: within its range, and moved by deadline and price one way only."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.domain.placement.gang_size import SizeOption, SizeQuestion, choose_size
from app.domain.spec.node_range import NodeRange

HOUR = 3_600.0


@st.composite
def ranges(draw: st.DrawFn) -> NodeRange:
    least = draw(st.integers(1, 8))
    return NodeRange(least, draw(st.integers(least, 12)))


@st.composite
def markets(draw: st.DrawFn) -> list[SizeOption]:
    """Sizes with room; what takes more machines is never cheaper, as fewer fit there too."""
    prices = sorted(draw(st.lists(st.integers(1, 3_000_000), min_size=12, max_size=12)))
    hazard = draw(st.none() | st.floats(0.05, 5.0))
    counts = draw(st.sets(st.integers(1, 12), min_size=1))
    return [SizeOption(count, prices[count - 1], 3_000_000, hazard) for count in sorted(counts)]


works = st.none() | st.floats(60.0, 1_000 * HOUR)
restarts = st.floats(10.0, 900.0)


@given(ranges(), markets(), works, restarts, st.none() | st.floats(0, 500 * HOUR))
def test_the_size_is_in_the_range_and_on_offer(
    nodes: NodeRange,
    market: list[SizeOption],
    work: float | None,
    restart: float,
    deadline: float | None,
) -> None:
    choice = choose_size(market, SizeQuestion(nodes, work, restart, deadline))
    able = [one.count for one in market if nodes.least <= one.count <= nodes.most]
    assert (choice is None) == (not able)
    assert choice is None or choice.count in able
    assert choice == choose_size(market[::-1], SizeQuestion(nodes, work, restart, deadline))


@given(
    ranges(), markets(), works, restarts, st.floats(0, 500 * HOUR), st.floats(0, 1),
    st.none() | st.integers(0, 10**9),
)  # fmt: skip
def test_a_tighter_deadline_never_gives_fewer(
    nodes: NodeRange,
    market: list[SizeOption],
    work: float | None,
    restart: float,
    deadline: float,
    share: float,
    money: int | None,
) -> None:
    loose = SizeQuestion(nodes, work, restart, deadline, 1_800.0, money)
    wide, tight = (
        choose_size(market, question)
        for question in (loose, replace(loose, deadline_seconds=deadline * share))
    )
    assert (wide is None) == (tight is None)
    assert wide is None or tight is None or tight.count >= wide.count


@given(ranges(), markets(), works, restarts, st.floats(1, 20))
def test_a_dearer_market_never_gives_more_without_a_deadline(
    nodes: NodeRange, market: list[SizeOption], work: float | None, restart: float, times: float
) -> None:
    question = SizeQuestion(nodes, work, restart)
    dearer = [
        replace(one, microusd_per_hour=round(one.microusd_per_hour * times)) for one in market
    ]
    before, after = choose_size(market, question), choose_size(dearer, question)
    assert before is None or (after is not None and after.count <= before.count)
