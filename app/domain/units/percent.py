"""A share for people, in percent: "30 %" with a space, and "-" before what is less.

All that people read comes from here, on pages and in commands.
"""

import math
from fractions import Fraction

_LEAST_SHOWN = 0.005


def percent(share: float) -> str:
    """0.3 → "30 %"."""
    return f"{share:.0%}".replace("%", " %")


def percent_fine(share: float) -> str:
    """With one decimal, where whole percent would not tell figures apart: 0.1234 → "12.3 %"."""
    return f"{100 * share:.1f} %"


def percent_down(share: float) -> str:
    """0.746 → "74 %": a share below 100 % is rounded down, so that nothing looks as if it reached
    what it missed, or as if more was saved than was. What is negative is rounded to the nearest.
    """
    value = 100 * share
    if 0 < value < 100:
        # 100 * 0.29 is 28.999999999999996.
        value = math.floor(round(value, 6))
    return f"{value:.0f} %"


def progress_percent(step: int, total_steps: int) -> float:
    """How far a job is, 0 to 100 with one decimal, rounded down: 100 is reached by the last step.

    Whoever shows whole percent rounds down, too, so that no two places differ.
    """
    return min(1000, 1000 * step // total_steps) / 10


def saved_percent(ratio: float | Fraction) -> str:
    """How much of on-demand's cost was saved: 0.746 → "74 %"; -0.256 → "-26 %", which cost more."""
    return percent_down(float(ratio))


def saved_size(ratio: float | Fraction) -> str:
    """The same without its sign, where words say whether it was saved or paid: -0.256 → "26 %"."""
    return saved_percent(ratio).removeprefix("-")


def against(share: float) -> str:
    """A share of another figure as the difference to it: 0.3 → "-70 %", 1.04 → "+4 %"."""
    return change(share - 1)


def change(by: float) -> str:
    """A difference with its sign: -0.7 → "-70 %", 0.04 → "+4 %", 0 → "0 %"."""
    percents = round(100 * by)
    return f"{'+' if percents > 0 else ''}{percents} %"


def part_percent(share: float) -> str:
    """The share of a part that is listed: 0.3 → "30 %", 0.001 → "<1 %"."""
    return "<1 %" if 0 < share < _LEAST_SHOWN else percent(share)


def chances_text(deadline: float | None, budget: float | None) -> str:
    """`deadline 71 %, budget 99 %`, rounded down; empty where neither was promised."""
    named = (("deadline", deadline), ("budget", budget))
    return ", ".join(f"{word} {percent_down(one)}" for word, one in named if one is not None)
