"""The learned scaling of gangs: by evidence alone, one way, and never slower with more machines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.placement.gang_size import SizeOption, SizeQuestion, choose_size
from app.domain.spec.node_range import NodeRange
from app.domain.throughput.gang_scaling import (
    EXPECTED_SCALING,
    SERIAL_SHARE,
    GangScaling,
    gang_scaling,
    scaling_of_share,
)
from app.domain.throughput.measured_run import GpuShape, MeasuredRun

V100, A100 = GpuShape("V100", 16, 1), GpuShape("A100", 40, 8)
HOUR = 3_600.0

counts = st.integers(1, 16)
shares = st.floats(0.0, 0.95)
times = st.floats(600.0, 50 * HOUR)
runs = st.lists(
    st.builds(
        MeasuredRun, st.sampled_from([V100, A100]), counts, st.integers(0, 10**7),
        st.floats(0.0, 10**6),
    ),
    max_size=12,
)  # fmt: skip


def run(nodes: int, share: float, seconds: float = 4 * HOUR, kind: GpuShape = V100) -> MeasuredRun:
    """An attempt of work that scales so: a thousand steps a second on one machine."""
    pace = GangScaling(share).speed_up(nodes)
    return MeasuredRun(kind, nodes, max(1, round(1_000 * seconds * pace)), seconds)


@given(runs)
def test_more_machines_are_faster_but_never_by_more_than_their_number(
    seen: list[MeasuredRun],
) -> None:
    scaling = gang_scaling(seen)
    assert scaling.speed_up(1) == 1
    for count in range(2, 65):
        assert scaling.speed_up(count - 1) < scaling.speed_up(count) < count
    assert scaling_of_share(scaling.kept_share) == scaling


@given(counts, shares, st.lists(times, max_size=5))
def test_one_size_of_each_kind_says_nothing(count: int, share: float, lasted: list[float]) -> None:
    seen = [run(count, share, seconds) for seconds in lasted]
    seen += [run(count + 1, share, HOUR, A100), replace(run(count + 1, share), steps=0)]
    assert gang_scaling(seen) == EXPECTED_SCALING
    assert scaling_of_share(None).serial_share == SERIAL_SHARE


@given(counts, counts, shares, shares)
def test_the_worse_a_larger_gang_did_the_more_is_taken_as_serial(
    one: int, other: int, share: float, worse: float
) -> None:
    less, more = min(one, other), max(one, other) + 1
    well, badly = (
        gang_scaling([run(less, 0.0), replace(run(less, 0.0), nodes=more, steps=steps)])
        for steps in sorted((run(more, share).steps, run(more, worse).steps), reverse=True)
    )
    assert well.serial_share <= badly.serial_share + 1e-12
    assert well.measured
    assert badly.measured


@given(shares, times)
def test_the_belief_lies_between_what_was_expected_and_what_runs_say(
    share: float, seconds: float
) -> None:
    seen = [run(nodes, share, seconds) for nodes in (1, 2, 4, 8)]
    learned = gang_scaling(seen).serial_share
    longer = gang_scaling([*seen, *seen, *seen]).serial_share
    low, high = sorted((share, SERIAL_SHARE))
    assert low - 0.02 <= learned <= high + 0.02
    assert abs(longer - share) <= abs(learned - share) + 0.005


def test_hours_of_runs_outweigh_the_expectation_and_minutes_do_not():
    assert gang_scaling([run(1, 0.3), run(4, 0.3)]).serial_share == pytest.approx(0.24, abs=0.02)
    many = [run(nodes, 0.3) for nodes in (1, 4) for _ in range(8)]
    assert gang_scaling(many).serial_share == pytest.approx(0.3, abs=0.02)
    short = [run(1, 0.3, 120.0), run(4, 0.3, 120.0)]
    assert gang_scaling(short).serial_share == pytest.approx(SERIAL_SHARE, abs=0.005)


def test_a_faster_kind_is_no_better_scaling():
    seen = [run(1, 0.2), run(4, 0.2)]
    faster = replace(run(8, 0.2, kind=A100), steps=10**9)
    assert gang_scaling([*seen, faster]) == gang_scaling(seen)


@given(shares, shares, st.integers(1, 4), st.integers(4, 12))
def test_work_that_scales_worse_never_gets_more_machines(
    share: float, worse: float, least: int, most: int
) -> None:
    market = [SizeOption(count, 300_000, 3_000_000, 0.5) for count in range(1, 13)]
    chosen = []
    for one in sorted((share, worse)):
        question = SizeQuestion(NodeRange(least, most), None, 300.0, scaling=GangScaling(one, True))
        choice = choose_size(market, question)
        assert choice is not None
        assert "measured on this work" in choice.why
        chosen.append(choice.count)
    assert chosen[1] <= chosen[0]
