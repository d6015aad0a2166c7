"""What was decided about a job's machines, and why: the shape that is stored and shown.

Lives here: the decision with a verdict per pool, its JSON document, and when two of them are the
same. Not here: how it is made (`placement`, `placement_choice`), or where it is kept (the port
`placement_decisions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NotRequired, TypedDict

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


class UnblockDocument(TypedDict):
    """`Unblock` in JSON."""

    sentence: str
    microusd_per_hour: NotRequired[int | None]


class PoolVerdictDocument(TypedDict):
    """`PoolVerdict` in JSON, with its units; quoted_at in ISO 8601."""

    pool: str
    market: str
    price_microusd_per_hour: int
    on_demand_microusd_per_hour: int
    quoted_at: str
    fits: bool
    chosen: bool
    why: str
    hazard_per_hour: NotRequired[float | None]
    expected_microusd: NotRequired[int | None]
    expected_finish_seconds: NotRequired[float | None]


class DecisionDocument(TypedDict):
    """`PlacementDecision` in JSON, with its units; instants in ISO 8601.

    What decisions of earlier releases may lack is not required.
    """

    decided_at: str
    verdict: str
    reason: str
    sentence: str
    fence: NotRequired[int | None]
    node_count: NotRequired[int | None]
    last_safe_at: NotRequired[str | None]
    slack_seconds: NotRequired[float | None]
    work_left_seconds: NotRequired[float | None]
    wait_microusd: NotRequired[int | None]
    spot_microusd: NotRequired[int | None]
    on_demand_microusd: NotRequired[int | None]
    unblock: NotRequired[UnblockDocument | None]
    pools: NotRequired[list[PoolVerdictDocument]]


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


def document_of(decision: PlacementDecision) -> DecisionDocument:
    """The JSON form: field by field, instants as ISO 8601."""
    last_safe_at, unblock = decision.last_safe_at, decision.unblock
    return {
        "decided_at": decision.decided_at.isoformat(),
        "verdict": decision.verdict,
        "reason": decision.reason,
        "sentence": decision.sentence,
        "fence": decision.fence,
        "node_count": decision.node_count,
        "last_safe_at": None if last_safe_at is None else last_safe_at.isoformat(),
        "slack_seconds": decision.slack_seconds,
        "work_left_seconds": decision.work_left_seconds,
        "wait_microusd": decision.wait_microusd,
        "spot_microusd": decision.spot_microusd,
        "on_demand_microusd": decision.on_demand_microusd,
        "unblock": None
        if unblock is None
        else {"sentence": unblock.sentence, "microusd_per_hour": unblock.microusd_per_hour},
        "pools": [_document_of_pool(one) for one in decision.pools],
    }


def decision_of(document: DecisionDocument) -> PlacementDecision:
    """The decision of a JSON form, of this release or another; unknown keys are ignored."""
    last_safe_at, unblock = document.get("last_safe_at"), document.get("unblock")
    return PlacementDecision(
        decided_at=datetime.fromisoformat(document["decided_at"]),
        verdict=DecisionVerdict(document["verdict"]),
        reason=document["reason"],
        sentence=document["sentence"],
        fence=document.get("fence"),
        node_count=document.get("node_count"),
        last_safe_at=None if last_safe_at is None else datetime.fromisoformat(last_safe_at),
        slack_seconds=document.get("slack_seconds"),
        work_left_seconds=document.get("work_left_seconds"),
        wait_microusd=document.get("wait_microusd"),
        spot_microusd=document.get("spot_microusd"),
        on_demand_microusd=document.get("on_demand_microusd"),
        unblock=None
        if unblock is None
        else Unblock(unblock["sentence"], unblock.get("microusd_per_hour")),
        pools=tuple(_pool_of(one) for one in document.get("pools", ())),
    )


def _document_of_pool(pool: PoolVerdict) -> PoolVerdictDocument:
    return {
        "pool": pool.pool,
        "market": pool.market,
        "price_microusd_per_hour": pool.price_microusd_per_hour,
        "on_demand_microusd_per_hour": pool.on_demand_microusd_per_hour,
        "quoted_at": pool.quoted_at.isoformat(),
        "fits": pool.fits,
        "chosen": pool.chosen,
        "why": pool.why,
        "hazard_per_hour": pool.hazard_per_hour,
        "expected_microusd": pool.expected_microusd,
        "expected_finish_seconds": pool.expected_finish_seconds,
    }


def _pool_of(document: PoolVerdictDocument) -> PoolVerdict:
    return PoolVerdict(
        pool=document["pool"],
        market=Market(document["market"]),
        price_microusd_per_hour=document["price_microusd_per_hour"],
        on_demand_microusd_per_hour=document["on_demand_microusd_per_hour"],
        quoted_at=datetime.fromisoformat(document["quoted_at"]),
        fits=document["fits"],
        chosen=document["chosen"],
        why=document["why"],
        hazard_per_hour=document.get("hazard_per_hour"),
        expected_microusd=document.get("expected_microusd"),
        expected_finish_seconds=document.get("expected_finish_seconds"),
    )
