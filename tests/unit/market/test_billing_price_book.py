"""The price book: a step function that never guesses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.market.price_book import PriceBook, PricePoint, PriceSegment, UnknownPrice

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def point(minute: int, price: int, captured: int = 0) -> PricePoint:
    return PricePoint(NOON + minute * MINUTE, price, "trace", NOON + captured * MINUTE)


def price_at(book: PriceBook, instant: datetime) -> PriceSegment:
    [segment] = book.segments(instant, instant)
    return segment


def test_a_price_holds_until_the_next_point() -> None:
    book = PriceBook.of([point(10, 200), point(0, 100)])
    assert price_at(book, NOON).microusd_per_hour == 100
    assert price_at(book, NOON + 10 * MINUTE - timedelta(microseconds=1)).microusd_per_hour == 100
    assert price_at(book, NOON + 10 * MINUTE).microusd_per_hour == 200
    assert price_at(book, NOON + 999 * MINUTE).microusd_per_hour == 200


def test_before_the_first_point_there_is_no_price() -> None:
    with pytest.raises(UnknownPrice, match="prices are known from 2026-03-01T12:00:00"):
        price_at(PriceBook.of([point(0, 100)]), NOON - MINUTE)
    with pytest.raises(UnknownPrice, match="no price is recorded"):
        PriceBook.of([]).segments(NOON, NOON + MINUTE)


def test_segments_cover_the_span_without_a_gap() -> None:
    book = PriceBook.of([point(0, 100), point(10, 200), point(20, 300)])
    segments = book.segments(NOON + 5 * MINUTE, NOON + 20 * MINUTE)
    assert [(s.from_at, s.to_at, s.microusd_per_hour) for s in segments] == [
        (NOON + 5 * MINUTE, NOON + 10 * MINUTE, 100),
        (NOON + 10 * MINUTE, NOON + 20 * MINUTE, 200),
    ]


def test_an_empty_span_still_has_its_price() -> None:
    (segment,) = PriceBook.of([point(0, 100), point(10, 200)]).segments(
        NOON + 10 * MINUTE, NOON + 10 * MINUTE
    )
    assert (segment.from_at, segment.to_at, segment.microusd_per_hour) == (
        NOON + 10 * MINUTE,
        NOON + 10 * MINUTE,
        200,
    )


def test_a_reversed_span_is_refused() -> None:
    with pytest.raises(ValueError, match="reversed"):
        PriceBook.of([point(0, 100)]).segments(NOON + MINUTE, NOON)


def test_a_later_capture_replaces_a_point_in_any_order_of_arrival() -> None:
    first, corrected = point(0, 100, captured=1), point(0, 150, captured=5)
    for points in ([first, corrected], [corrected, first]):
        assert price_at(PriceBook.of(points), NOON).microusd_per_hour == 150
    assert PriceBook.of([first, corrected]).points == (corrected,)


def test_naive_times_and_negative_prices_are_refused() -> None:
    with pytest.raises(ValueError, match="at has no time zone"):
        PricePoint(datetime(2026, 3, 1), 1, "trace", NOON)  # noqa: DTZ001
    with pytest.raises(ValueError, match="negative"):
        point(0, -1)
