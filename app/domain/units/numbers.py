"""Numbers that are not money, time or size, as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

NUMBER_WORDS: Final[Mapping[str, str]] = {
    "float_parsing": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
}
"""What is said of a value that is no such number, by the type that pydantic gives the error."""


def number_text(value: float, digits: int = 4) -> str:
    """1234567.0 → "1,234,567", 7.0 → "7", 0.12345 → "0.1235"; what is not finite, by its name.

    A whole number has all its digits, with separators. Any other is rounded to so many significant
    `digits`, but never to fewer than those before its point.
    """
    if not math.isfinite(value):
        return str(value)
    if value == int(value) or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"
