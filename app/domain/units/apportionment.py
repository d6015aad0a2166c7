"""Exact integer rounding and sharing: half-even division, and largest-remainder apportionment.

Lives here: arithmetic on integers that must lose nothing. Not here: what is being shared
(`billing` shares a bill over its keys, `cost_statement` a booked amount over activities).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

KeyT = TypeVar("KeyT")


def divide_half_even(numerator: int, denominator: int) -> int:
    """The integer nearest to `numerator / denominator`; a tie goes to the even one.

    Non-decreasing in `numerator`, which is what keeps a growing bill from ever stepping back.
    Raises ValueError for a denominator that is not positive.
    """
    if denominator <= 0:
        raise ValueError(f"cannot divide by {denominator}: the denominator must be positive")
    quotient, remainder = divmod(numerator, denominator)
    if 2 * remainder > denominator or (2 * remainder == denominator and quotient % 2 == 1):
        return quotient + 1
    return quotient


def divide_up(numerator: int, denominator: int) -> int:
    """The smallest integer not below `numerator / denominator` (for reserves and roundings up)."""
    if denominator <= 0:
        raise ValueError(f"cannot divide by {denominator}: the denominator must be positive")
    return -(-numerator // denominator)


def apportion(total: int, weights: Mapping[KeyT, int]) -> dict[KeyT, int]:
    """Share `total` by `weights` with the largest-remainder (Hamilton) method; the sum is exact.

    Every key of `weights` is in the answer, in the same order. Units left over go to the largest
    remainders; of equal ones, to the earlier key. A negative total is shared as its mirror image.
    Raises ValueError for a negative weight, or when a non-zero total has no weight to go to.
    """
    if any(weight < 0 for weight in weights.values()):
        raise ValueError("cannot share by a negative weight")
    whole = sum(weights.values())
    if whole == 0:
        if total != 0:
            raise ValueError(f"cannot share {total}: no key has any weight")
        return dict.fromkeys(weights, 0)
    sign = -1 if total < 0 else 1
    shares: dict[KeyT, int] = {}
    remainders: list[tuple[int, int, KeyT]] = []
    for place, (key, weight) in enumerate(weights.items()):
        shares[key], remainder = divmod(abs(total) * weight, whole)
        remainders.append((-remainder, place, key))
    left_over = abs(total) - sum(shares.values())
    for _, _, key in sorted(remainders, key=lambda entry: entry[:2])[:left_over]:
        shares[key] += 1
    return {key: sign * share for key, share in shares.items()}
