"""A share for people, as whole percent. Not here: the command line's own signs (`app.cli`)."""

import math

_LEAST_SHOWN = 0.005


def percent(share: float) -> str:
    """0.3 → "30 %"."""
    return f"{share:.0%}".replace("%", " %")


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
