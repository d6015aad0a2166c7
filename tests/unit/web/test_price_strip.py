"""The strip of prices below the tide chart: on the chart's axis, few pieces, nothing invented."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from app.domain.market.offer import Market, Pool
from app.storage.reports.page_read_models import PriceSample
from app.web.charts.lane_pieces import Axis
from app.web.charts.price_strip import Prices, PriceStrip, pools_to_price, price_strip

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPOT = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", Market.SPOT)
FULL = replace(SPOT, market=Market.ON_DEMAND)
OTHER = replace(SPOT, zone="us-west-2b")


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def points(*told: tuple[float, int]) -> tuple[PriceSample, ...]:
    return tuple(PriceSample(after(seconds), price) for seconds, price in told)


def strip(prices: Prices, until: float = 500, *, live: bool = True) -> PriceStrip:
    found = price_strip(prices, Axis(START, after(1000)), after(until), 100, live=live)
    assert found is not None
    return found


def test_a_price_is_a_step_from_its_change_to_the_next_and_ends_at_the_present():
    found = strip(
        {SPOT: points((-60, 1_000_000), (250, 2_000_000)), FULL: points((-60, 4_000_000))}
    )
    on_demand, spot = found.curves
    assert (spot.kind, spot.label, spot.newest) == ("spot", "spot", "$2.000/h")
    assert spot.points == "0.0,765 250.0,765 250.0,530 500.0,530"
    assert on_demand.points == "0.0,60 500.0,60"
    assert [(one.x, one.width) for one in found.segments] == [(0.0, 25.0), (25.0, 25.0)]
    assert found.segments[1].title == ("12:04:10 to 12:08:20 · spot $2.000/h · on-demand $4.000/h")
    assert found.summary == (
        "Prices over time, in US dollars per hour of one machine: on-demand $4.000/h now, "
        "spot $2.000/h now."
    )


def test_the_newest_price_of_an_ended_job_is_not_called_the_present_one():
    found = strip({SPOT: points((-60, 1_000_000))}, live=False)
    assert found.when == "at the end"
    assert found.summary.endswith("spot $1.000/h at the end.")


def test_changes_too_close_to_be_seen_do_not_add_pieces():
    many = points(*((number / 10, 1_000_000 + number) for number in range(5_000)))
    found = strip({SPOT: many})
    assert len(found.segments) <= 350
    [curve] = found.curves
    assert curve.newest == "$1.005/h"


def test_several_zones_are_told_apart_and_a_later_price_is_not_drawn_before():
    found = strip({SPOT: points((-60, 1_000_000)), OTHER: points((300, 3_000_000))})
    assert [curve.label for curve in found.curves] == ["spot us-west-2a", "spot us-west-2b"]
    first, second = found.segments
    assert first.title == "12:00:00 to 12:05:00 · spot us-west-2a $1.000/h"
    assert "spot us-west-2b $3.000/h" in second.title


def test_without_a_recorded_price_there_is_no_strip():
    axis = Axis(START, after(1000))
    assert price_strip({}, axis, after(500), 0, live=True) is None
    assert price_strip({SPOT: points((600, 1))}, axis, after(500), 0, live=True) is None


def test_both_markets_of_the_newest_places_are_priced():
    zones = [replace(SPOT, zone=f"z{number}") for number in (1, 2, 3, 4, 1)]
    found = pools_to_price(zones)
    assert [pool.zone for pool in found] == ["z3", "z3", "z4", "z4", "z1", "z1"]
    assert {pool.market for pool in found} == {Market.SPOT, Market.ON_DEMAND}
