"""What was decided about a job's machines, and why: the shape that is stored and shown.

Lives here: the decision with a verdict per pool, its JSON document, and when two of them are the
same. Not here: how it is made (`placement`, `placement_choice`), or where it is kept (the port
`placement_decisions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import PlainSerializer, TypeAdapter

from app.domain.market.offer import Market

Instant = Annotated[datetime, PlainSerializer(datetime.isoformat, when_used="json")]

POOLS_SHOWN_MAX = 40
"""Pools that a stored decision tells of: the best ones, then the rest by pool."""


class DecisionVerdict(StrEnum):
    """What was decided."""

    SPOT = "spot"  # spot machines are asked for
    WAIT = "wait"  # nothing is asked for now
    ON_DEMAND = "on_demand"  # on-demand machines are asked for
    STAY = "stay"  # the machines at hand are kept
    MOVE = "move"  # running machines are left for others of the same market
    RESIZE = "resize"  # the number of machines changes


@dataclass(frozen=True)
class PoolVerdict:
    """One pool as it was seen. Money in micro-USD, for one machine and its attachments.

    pool: its key. price_microusd_per_hour: with what comes with the machine. fits: it could have
    been taken. chosen: it was asked for; of several, the cloud decides. hazard_per_hour:
    interruptions per hour of a machine there, over its expected life; None for on-demand.
    expected_microusd: to finish the remaining work there with all machines, as it is billed; where
    that is not known, of one machine's billed hour of progress. expected_finish_seconds: from the
    decision on, a century at most; None where the work is not known. billing_speed: billed seconds
    of one second there, which what is expected counts and prices do not; 1 in decisions of releases
    that did not keep it.
    """

    pool: str
    market: Market
    price_microusd_per_hour: int
    on_demand_microusd_per_hour: int
    quoted_at: Instant
    fits: bool
    chosen: bool
    why: str
    hazard_per_hour: float | None = None
    expected_microusd: int | None = None
    expected_finish_seconds: float | None = None
    billing_speed: int = 1


@dataclass(frozen=True)
class Unblock:
    """What would end a wait, and the price per hour of one machine it would come at, if known."""

    sentence: str
    microusd_per_hour: int | None = None


@dataclass(frozen=True)
class PlacementDecision:
    """One decision, the pools best first.

    reason: a stable word for what decided, where `sentence` is for people and carries figures.
    fence: of the attempt that it began, or that ran. node_count: of the gang that it was made for,
    None in decisions of releases that did not keep it. last_safe_at, slack_seconds: with a deadline
    and an estimate of the work only. wait_, spot_, on_demand_microusd: expected cost of each way
    from here to the end; None where it was not weighed, or the deadline forbids it.
    """

    decided_at: Instant
    verdict: DecisionVerdict
    reason: str
    sentence: str
    fence: int | None = None
    node_count: int | None = None
    last_safe_at: Instant | None = None
    slack_seconds: float | None = None
    work_left_seconds: int | float | None = None
    wait_microusd: int | None = None
    spot_microusd: int | None = None
    on_demand_microusd: int | None = None
    unblock: Unblock | None = None
    pools: tuple[PoolVerdict, ...] = ()

    @property
    def chosen(self) -> tuple[str, ...]:
        """Keys of the pools asked for, best first."""
        return tuple(one.pool for one in self.pools if one.chosen)

    @property
    def billing_speed(self) -> int:
        """The most seconds that a second of one of its pools is billed as."""
        return max((one.billing_speed for one in self.pools), default=1)

    @property
    def outline(self) -> str:
        """Equal for decisions that only differ in figures and time."""
        return "|".join((self.verdict, self.reason, str(self.fence or ""), *self.chosen))


def kind_of_outline(outline: str) -> tuple[DecisionVerdict, str]:
    """Verdict and reason of a decision with this outline."""
    verdict, reason, *_ = outline.split("|")
    return DecisionVerdict(verdict), reason


_DOCUMENT: Final = TypeAdapter(PlacementDecision)


def document_of(decision: PlacementDecision) -> object:
    """The JSON form: field by field, instants as ISO 8601."""
    return _DOCUMENT.dump_python(decision, mode="json")


def decision_of(document: Mapping[str, object]) -> PlacementDecision:
    """The decision of a JSON form, of this release or another; unknown keys are ignored."""
    return _DOCUMENT.validate_python(document)
