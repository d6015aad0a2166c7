"""Numbers that are not money, time or size, as people read them."""

from __future__ import annotations

import math


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
