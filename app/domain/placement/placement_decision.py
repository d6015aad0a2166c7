"""What was decided about a job's machines, and why: the shape that is stored and shown.

Lives here: the decision with a verdict per pool, its JSON document, and when two of them are the
same. Not here: how it is made (`placement`, `placement_choice`), or where it is kept (the port
`placement_decisions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from app.domain.market.offer import Market

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
    decision on, a century at most; None where the work is not known.
    """

    pool: str
    market: Market
    price_microusd_per_hour: int
    on_demand_microusd_per_hour: int
    quoted_at: datetime
    fits: bool
    chosen: bool
    why: str
    hazard_per_hour: float | None = None
    expected_microusd: int | None = None
    expected_finish_seconds: float | None = None


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

    decided_at: datetime
    verdict: DecisionVerdict
    reason: str
    sentence: str
    fence: int | None = None
    node_count: int | None = None
    last_safe_at: datetime | None = None
    slack_seconds: float | None = None
    work_left_seconds: float | None = None
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
    def outline(self) -> str:
        """Equal for decisions that only differ in figures and time."""
        return "|".join((self.verdict, self.reason, str(self.fence or ""), *self.chosen))


def kind_of_outline(outline: str) -> tuple[DecisionVerdict, str]:
    """Verdict and reason of a decision with this outline."""
    verdict, reason, *_ = outline.split("|")
    return DecisionVerdict(verdict), reason


def document_of(decision: PlacementDecision) -> dict[str, Any]:
    """The JSON form: field by field, instants as ISO 8601."""
    document: dict[str, Any] = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in vars(decision).items()
    }
    document["unblock"] = None if decision.unblock is None else dict(vars(decision.unblock))
    document["pools"] = [
        {**vars(one), "quoted_at": one.quoted_at.isoformat()} for one in decision.pools
    ]
    return document


def decision_of(document: dict[str, Any]) -> PlacementDecision:
    """The decision of a JSON form; keys that are not known here are left out of account."""
    fields = _known(PlacementDecision, document)
    fields["decided_at"] = datetime.fromisoformat(fields["decided_at"])
    fields["verdict"] = DecisionVerdict(fields["verdict"])
    if fields.get("last_safe_at") is not None:
        fields["last_safe_at"] = datetime.fromisoformat(fields["last_safe_at"])
    if fields.get("unblock") is not None:
        fields["unblock"] = Unblock(**_known(Unblock, fields["unblock"]))
    fields["pools"] = tuple(_pool_of(one) for one in fields.get("pools", ()))
    return PlacementDecision(**fields)


def _pool_of(document: dict[str, Any]) -> PoolVerdict:
    fields = _known(PoolVerdict, document)
    fields["market"] = Market(fields["market"])
    fields["quoted_at"] = datetime.fromisoformat(fields["quoted_at"])
    return PoolVerdict(**fields)


def _known(shape: type[Any], document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in shape.__dataclass_fields__ if name in document}
