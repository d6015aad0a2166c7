"""A share for people, as whole percent."""

import math

_LEAST_SHOWN = 0.005


def percent(share: float) -> str:
    """0.3 → "30 %"."""
    return f"{share:.0%}".replace("%", " %")


def against(share: float) -> str:
    """A share of another figure as the difference to it: 0.3 → "-70 %", 1.04 → "+4 %"."""
    percents = round(100 * (share - 1))
    return f"{'+' if percents > 0 else ''}{percents} %"


def part_percent(share: float) -> str:
    """The share of a part that is listed: 0.3 → "30 %", 0.001 → "<1 %"."""
    return "<1 %" if 0 < share < _LEAST_SHOWN else percent(share)


def chances_text(deadline: float | None, budget: float | None) -> str:
    """`deadline 71 %, budget 99 %`; empty where neither was promised.

    Rounded down, so that nothing looks as if it reached a bound that it missed.
    """
    named = (("deadline", deadline), ("budget", budget))
    return ", ".join(
        f"{word} {percent(math.floor(100 * one) / 100)}" for word, one in named if one is not None
    )
