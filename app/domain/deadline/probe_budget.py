"""What may be spent on looking at pools: a small share of what on-demand costs meanwhile.

So probing can never cost more than that share, whatever it finds. Here: the budget and its figures.
Not here: which pool is looked at (`placement_choice`), or what a look finds (`hazard_belief`).
"""

from __future__ import annotations

import math
from typing import Final

from app.domain.deadline.policy_state import JobTerms

PROBE_SECONDS: Final = 60
"""A probe rents a machine for one minimum billing, on both clouds a minute."""

PROBE_SHARE: Final = 0.015
"""Of the on-demand price of the time that passes."""

PROBE_AFTER_SECONDS: Final = 1_800.0
"""A pool seen since then is not looked at again."""

_HOURS_KEPT: Final = 1.0


class ProbeBudget:
    """usd: what may be spent now; at most the share of an hour is kept."""

    def __init__(self) -> None:
        self.usd = 0.0
        self._filled_at = math.inf  # seconds left then

    def fill(self, time_left_seconds: float, terms: JobTerms) -> None:
        """Add the share of one tick on on-demand, once per tick."""
        if time_left_seconds >= self._filled_at:
            return
        self._filled_at = time_left_seconds
        share = PROBE_SHARE * terms.on_demand_price
        self.usd = min(self.usd + share * terms.tick_seconds / 3600, share * _HOURS_KEPT)

    def pay(self, usd: float) -> bool:
        """Whether so much was there; if so, it is gone."""
        if usd > self.usd:
            return False
        self.usd -= usd
        return True
