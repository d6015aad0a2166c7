"""Amounts of money as people write them, and back."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.units.errors import InvalidValue
from app.domain.units.money import MAX_MICROUSD, format_usd, parse_usd, usd_text


@pytest.mark.parametrize(
    ("written", "microusd"),
    [
        ("25", 25_000_000),
        (25, 25_000_000),
        (25.5, 25_500_000),
        ("$25", 25_000_000),
        (" $0.000001 ", 1),
        (25.1, 25_100_000),
        (Decimal("3.06"), 3_060_000),
        ("1000000000", MAX_MICROUSD),
        (0, 0),
    ],
)
def test_reads_an_amount(written: object, microusd: int) -> None:
    assert parse_usd(written) == microusd


@pytest.mark.parametrize(
    "written",
    ["", "$", "25 USD", "1,800", "1e3", "0.0000001", 1e-07, "٢٥", "25.", ".5", True, None, [],
     "NaN", float("nan"), "$$5", "25\n\n5"],
)  # fmt: skip
def test_refuses_what_is_no_amount(written: object) -> None:
    with pytest.raises(InvalidValue, match="write dollars as"):
        parse_usd(written)


@pytest.mark.parametrize("written", [-1, "-1", -0.5, "$-3", Decimal(-1)])
def test_refuses_a_negative_amount(written: object) -> None:
    with pytest.raises(InvalidValue, match="must not be negative"):
        parse_usd(written)


@pytest.mark.parametrize("written", [10**9 + 1, 10**4000, 1e300, float("inf"), "1000000000.01"])
def test_refuses_a_huge_amount(written: object) -> None:
    with pytest.raises(InvalidValue, match=r"at most \$1,000,000,000"):
        parse_usd(written)


def test_refuses_less_than_the_least() -> None:
    assert parse_usd("0.01", at_least_microusd=10_000) == 10_000
    with pytest.raises(InvalidValue, match=r"at least \$0.01"):
        parse_usd("0.009999", at_least_microusd=10_000)


@given(st.integers(0, MAX_MICROUSD))
def test_exact_text_is_read_back(microusd: int) -> None:
    assert parse_usd(usd_text(microusd)) == microusd


@pytest.mark.parametrize(
    ("microusd", "places", "text"),
    [
        (1_800_000_000, 2, "$1,800.00"),
        (-459_000, 3, "-$0.459"),
        (5_000, 2, "$0.00"),
        (15_000, 2, "$0.02"),
        (-1, 2, "$0.00"),
        (1, 6, "$0.000001"),
        (2_500_000, 0, "$2"),
    ],
)
def test_format_for_people(microusd: int, places: int, text: str) -> None:
    assert format_usd(microusd, places) == text
