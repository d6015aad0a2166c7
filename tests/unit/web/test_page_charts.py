"""Geometry of the pages' charts: axes, lanes that never have too many pieces, curves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.billing.phase_timeline import PhaseSpan
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Instance
from app.domain.lifecycle.instance import ENDED_BY_CLOUD, EndedBy, InstanceState
from app.domain.market.offer import Market, Pool
from app.domain.market.price_book import PriceSegment
from app.domain.wording.machine_words import ended_words
from app.storage.reports.page_read_models import JobTimeline, MachineLane
from app.web.charts.lane_pieces import Axis, lane_pieces
from app.web.charts.metric_charts import CHARTS_MAX, metric_charts
from app.web.charts.time_chart import ChartData, time_chart
from trainer.protocol.agent_report import MachinePhase

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
POOL = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", Market.SPOT)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def instance(**fields: Any) -> Instance:
    known = {"launched_at": after(10), "pool": POOL, "state": InstanceState.REGISTERED, **fields}
    return Instance(
        id=UUID(int=1), job_id=UUID(int=2), launch_id=None, provider="local", market=Market.SPOT,
        origin="launch", requested_at=START, updated_at=START, **known,
    )  # fmt: skip


def span(phase: MachinePhase, first: float, last: float, *steps: int) -> PhaseSpan:
    fence, first_step, last_step = (*steps, None, None, None)[:3]
    return PhaseSpan(phase, after(first), after(last), fence, first_step, last_step)


def lane(*spans: PhaseSpan, price: int = 3_600_000, **fields: Any) -> MachineLane:
    prices = (PriceSegment(after(10), after(100_000), price, "trace", START),)
    return MachineLane(instance(**fields), "m1", spans, prices)


def attempt(fence: int = 1, trained: float = 20, **fields: Any) -> Attempt:
    return Attempt(
        id=UUID(int=fence), job_id=UUID(int=2), fence=fence, state=AttemptState.RUNNING,
        node_count=1, created_at=START, updated_at=START, form_until_at=START,
        trained_at=after(trained), **fields,
    )  # fmt: skip


def story(*lanes: MachineLane, **fields: Any) -> ChartData:
    known = {
        "timeline": JobTimeline((attempt(),), lanes, 0), "points": [], "now": after(100),
        "live": True, "step": 50, "step_at": after(99), "total_steps": 100, "eta_at": None,
        "deadline_at": None, "last_safe_at": None, **fields,
    }  # fmt: skip
    return ChartData(**known)


AXIS = Axis(START, after(1000))


def test_pieces_lie_where_their_time_does_and_tell_their_cost():
    [boot, useful] = lane_pieces(
        lane(span(MachinePhase.BOOT, 10, 60), span(MachinePhase.TRAIN, 60, 160, 1, 1, 40)),
        AXIS,
        {},
    )
    assert (boot.activity, boot.x, boot.width) == ("boot", 1.0, 5.0)
    assert boot.title == "m1: boot, 50s, about $0.050"
    assert (useful.activity, useful.x, useful.width) == ("useful", 6.0, 10.0)
    assert useful.title == "m1: useful, 1m 40s, steps 1 to 40, about $0.100"


def test_a_faster_bill_costs_more_in_the_same_time():
    [piece] = lane_pieces(lane(span(MachinePhase.BOOT, 10, 60), billing_speed=60), AXIS, {})
    assert piece.title.endswith("about $3.00")


def test_a_machine_that_the_cloud_does_not_charge_for_shows_no_money():
    waived: Any = {"waived": True}
    [piece] = lane_pieces(lane(span(MachinePhase.BOOT, 10, 60), rating=waived), AXIS, {})
    assert piece.title == "m1: boot, 50s, not charged"


def test_steps_that_were_done_before_are_rework():
    trained = span(MachinePhase.TRAIN, 100, 200, 2, 41, 60)
    [rework, useful] = lane_pieces(lane(trained), AXIS, {2: 50})
    assert (rework.activity, rework.x, rework.width) == ("rework", 10.0, 5.0)
    assert (useful.activity, useful.x, useful.width) == ("useful", 15.0, 5.0)


def test_a_lane_never_has_more_pieces_than_can_be_seen_and_leaves_no_gap():
    phases = [MachinePhase.TRAIN, MachinePhase.CHECKPOINT]
    spans = [
        span(phases[number % 2], 10 + number / 20, 10 + (number + 1) / 20)
        for number in range(19_800)
    ]
    pieces = lane_pieces(lane(*spans), AXIS, {})
    assert 100 < len(pieces) < 1_000
    ends = [round(piece.x + piece.width, 2) for piece in pieces]
    assert ends[:-1] == [round(piece.x, 2) for piece in pieces[1:]]
    assert ends[-1] == 100.0


def test_short_checkpoints_do_not_hide_the_training_around_them():
    spans = []
    for number in range(9):
        spans.append(span(MachinePhase.TRAIN, 10 + number * 100, 109.9 + number * 100))
        spans.append(span(MachinePhase.CHECKPOINT, 109.9 + number * 100, 110 + number * 100))
    pieces = lane_pieces(lane(*spans), AXIS, {})
    useful = sum(piece.width for piece in pieces if piece.activity == "useful")
    assert useful == pytest.approx(90, abs=1.5)


def test_there_is_no_chart_without_machines():
    assert time_chart(story()) is None


def test_a_machine_that_was_only_asked_for_has_an_unbilled_lane():
    chart = time_chart(story(lane(launched_at=None, state=InstanceState.LAUNCHING, pool=None)))
    assert chart is not None
    [bar] = chart.lanes[0].bars
    assert bar.piece.activity == "requested"
    assert bar.piece.title == "requested: 1m 40s, not billed"


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (5, ["0:00", "0:01", "0:02", "0:03", "0:04", "0:05"]),
        (61, ["0:00", "0:15", "0:30", "0:45", "1:00"]),
        (3600 * 5, ["0:00", "1:00:00", "2:00:00", "3:00:00", "4:00:00", "5:00:00"]),
        (86_400 * 3, ["0s", "12h", "1d", "1d 12h", "2d", "2d 12h", "3d"]),
    ],
)
def test_ticks_are_few_and_round(seconds: int, labels: list[str]):
    chart = time_chart(story(lane(), now=after(seconds)))
    assert chart is not None
    assert [tick.label for tick in chart.ticks] == labels


def test_what_is_left_never_takes_more_than_half_of_the_width():
    chart = time_chart(story(lane(), eta_at=after(100_000)))
    assert chart is not None
    [now] = [mark for mark in chart.limits if mark.kind == "now"]
    assert now.x == 50.0
    assert chart.projection


def test_a_near_deadline_is_on_the_axis_and_a_far_one_is_not():
    for deadline, shown in ((140, True), (7200, False)):
        chart = time_chart(story(lane(), deadline_at=after(deadline), last_safe_at=after(90)))
        assert chart is not None
        kinds = {mark.kind for mark in chart.limits}
        assert ("deadline" in kinds) is shown
        assert "last-safe" in kinds


def test_the_axis_of_an_ended_job_stops_with_its_last_machine():
    gone = lane(ended_at=after(200), ended_by=EndedBy.US, state=InstanceState.TERMINATED)
    chart = time_chart(story(gone, live=False, now=after(90_000)))
    assert chart is not None
    assert chart.lanes[0].marks[0].x == 100.0
    assert chart.lanes[0].marks[0].kind == "gone"


@pytest.mark.parametrize("by", EndedBy)
def test_the_end_of_a_machine_is_marked_by_who_ended_it(by: EndedBy):
    gone = lane(ended_at=after(200), ended_by=by, state=InstanceState.TERMINATED)
    chart = time_chart(story(gone, now=after(300)))
    assert chart is not None
    [mark] = [one for one in chart.lanes[0].marks if one.kind.startswith("gone")]
    assert mark.kind == ("gone-cloud" if by in ENDED_BY_CLOUD else "gone")
    assert chart.marks_shown == {mark.kind}
    assert f"ended by {ended_words(by)}" in mark.title


def test_a_second_attempt_begins_its_curve_where_it_resumed():
    timeline = JobTimeline(
        (attempt(1, 20, best_step=40, ended_at=after(60)),
         attempt(2, 80, parent_fence=1, parent_step=30, best_step=30)),
        (lane(),), 0,
    )  # fmt: skip
    points = [{"fence": 1, "step": 20, "at": after(40)}]
    chart = time_chart(story(timeline=timeline, points=points))
    assert chart is not None
    assert chart.curves == (
        "200.0,1000.0 400.0,800.0 600.0,600.0",
        "800.0,700.0 990.0,500.0",
    )


@pytest.mark.parametrize(
    ("saved", "parent", "label", "title"),
    [
        (30, 30, "resumed at step 30", "Attempt 2 resumed at step 30"),
        (0, None, "started again from the beginning",
         "Attempt 2 started again from the beginning: no checkpoint had been saved"),
        (30, None, "started again from the beginning",
         "Attempt 2 started again from the beginning: no checkpoint was restored"),
        (0, 0, "resumed from its last checkpoint", "Attempt 2 resumed from its last checkpoint"),
    ],
)  # fmt: skip
def test_the_mark_of_an_attempt_says_where_it_went_on_and_why(
    saved: int, parent: int | None, label: str, title: str
):
    first = attempt(1, 20, best_step=40, committed_step=saved, ended_at=after(60))
    timeline = JobTimeline((first, attempt(2, 80, parent_step=parent)), (lane(),), 0)
    chart = time_chart(story(timeline=timeline))
    assert chart is not None
    [mark] = [one for one in chart.limits if one.kind == "resumed"]
    assert (mark.label, mark.title, mark.anchor) == (label, title, "end")


def test_an_attempt_before_which_nothing_trained_has_no_mark():
    untrained = attempt(1)
    untrained.trained_at = None
    chart = time_chart(story(timeline=JobTimeline((untrained, attempt(2, 80)), (lane(),), 0)))
    assert chart is not None
    assert not [one for one in chart.limits if one.kind == "resumed"]


def points(values: list[tuple[int, int, Any]], name: str = "loss") -> list[dict[str, Any]]:
    return [{"fence": fence, "step": step, "metrics": {name: v}} for fence, step, v in values]


def test_a_curve_fills_its_square_and_begins_anew_with_every_attempt():
    [chart] = metric_charts(points([(1, 0, 2.0), (1, 10, 1.0), (2, 10, 1.0), (2, 20, 0.0)]))
    assert chart.lines == ("0,0 500,500", "500,500 1000,1000")
    assert (chart.newest, chart.lowest, chart.highest) == ("0", "0", "2")


def test_values_that_are_no_numbers_are_left_out():
    rows = points([(1, 1, 1.0), (1, 2, "text"), (1, 3, None), (1, 4, True), (1, 5, 3.0)])
    [chart] = metric_charts([*rows, *points([(1, 6, float("nan")), (1, 7, float("inf"))])])
    assert (chart.first_step, chart.last_step, chart.highest) == (1, 5, "3")


def test_loss_comes_first_and_charts_are_few():
    rows = [
        {"fence": 1, "step": step, "metrics": {"zeta": 1.0, "loss": 2.0, "step": step, "a": 0.0,
         "b": 0.0, "c": 0.0, "d": 0.0, "e": 0.0}}
        for step in (1, 2)
    ]  # fmt: skip
    charts = metric_charts(rows)
    assert len(charts) == CHARTS_MAX
    assert charts[0].name == "loss"
    assert "step" not in {chart.name for chart in charts}
