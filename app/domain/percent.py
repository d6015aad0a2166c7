"""A share for people, as whole percent. Not here: the command line's own signs (`app.cli`)."""

import math


def percent(share: float) -> str:
    """0.3 → "30 %"."""
    return f"{share:.0%}".replace("%", " %")


def chances_text(deadline: float | None, budget: float | None) -> str:
    """`deadline 71 %, budget 99 %`; empty where neither was promised.

    Rounded down, so that nothing looks as if it reached a bound that it missed.
    """
    named = (("deadline", deadline), ("budget", budget))
    return ", ".join(
        f"{word} {percent(math.floor(100 * one) / 100)}" for word, one in named if one is not None
    )
