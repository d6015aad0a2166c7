"""What placement found of one offer, as a value: code branches on it, never on the sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FitVerdict(StrEnum):
    """Whether an offer serves a need, and if not, for what kind of reason."""

    FITS = "fits"
    INTERRUPTED_HERE = "interrupted_here"  # fits, but the pool has just interrupted this job
    RESTING = "resting"  # cooling down after a refusal or an interruption
    FULL = "full"  # fewer machines available than needed
    TOO_DEAR = "too_dear"  # above max_price_ratio
    QUOTE_TOO_OLD = "quote_too_old"
    TOO_SLOW = "too_slow"  # would end after the deadline
    WAITING_SAVES = "waiting_saves"  # patience is expected to find something cheaper
    FROZEN = "frozen"  # would serve, but people have frozen launches
    OVER_LIMIT = "over_limit"  # would serve, but a limit of the project or the deployment is full
    UNSUITABLE = "unsuitable"  # another market, place, type or machine: no wait changes that

    @property
    def fits(self) -> bool:
        """Whether machines may be requested there now."""
        return self in (FitVerdict.FITS, FitVerdict.INTERRUPTED_HERE)

    @property
    def passes_by_itself(self) -> bool:
        """Whether the pool may serve after a while: it is full, or it rests."""
        return self in (FitVerdict.RESTING, FitVerdict.FULL)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What people have set against machines of an offer that would serve otherwise.

    sentence: what it is, remedy: what would end it, both without a full stop. of_deployment: it
    stands in the way of every project alike.
    """

    verdict: FitVerdict
    sentence: str
    remedy: str
    of_deployment: bool
