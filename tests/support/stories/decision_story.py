"""Decisions about a job's machines for the pages, the api and the command line to tell.

Here: real domain values, as a controller would record them, with figures that are easy to read.
Not here: the jobs (`money_story`, `page_story`), or making decisions (`placement.placement`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from app.domain.market.offer import Market
from app.domain.placement.placement_decision import (
    DecisionVerdict,
    PlacementDecision,
    PoolVerdict,
    Unblock,
)
from app.storage.unit_of_work import UnitOfWork

HOSTILE = "<script>document.title='taken'</script>\x1b[2J"
FULL_PRICE = 3_060_000
WAIT_FOR = "2 machines free in local us-west-2b (p3.2xlarge): $0.905/h"


def pool(zone: str, price: int, why: str, at: datetime, **fields: Any) -> PoolVerdict:
    """A pool of one zone, quoted two minutes before."""
    market = fields.pop("market", Market.SPOT)
    return PoolVerdict(
        pool=f"local/{zone[:-1]}/{zone}/p3.2xlarge/{market.value}",
        market=market,
        price_microusd_per_hour=price,
        on_demand_microusd_per_hour=FULL_PRICE,
        quoted_at=at - timedelta(seconds=120),
        fits=fields.pop("fits", True),
        chosen=fields.pop("chosen", False),
        why=why,
        **fields,
    )


def placed(at: datetime, fence: int = 1, **fields: Any) -> PlacementDecision:
    """Spot was taken in the cheapest of three pools; on-demand was not needed."""
    values = {
        "decided_at": at,
        "verdict": DecisionVerdict.SPOT,
        "reason": "cheapest",
        "sentence": "Spot in us-west-2a: $2.95 expected, $6.43 less than on-demand.",
        "fence": fence,
        "last_safe_at": at + timedelta(minutes=55),
        "slack_seconds": 3_300.0,
        "work_left_seconds": 5_400.0,
        "wait_microusd": 3_100_000,
        "spot_microusd": 2_950_000,
        "on_demand_microusd": 9_380_000,
        "pools": (
            pool(
                "us-west-2a", 918_000, "the most progress for its price and expected life", at,
                chosen=True, hazard_per_hour=0.084, expected_microusd=2_950_000,
                expected_finish_seconds=5_700.0,
            ),
            pool(
                "us-east-1c", 1_223_000, "fits, dearer for the same progress", at,
                hazard_per_hour=0.3, expected_microusd=4_310_000, expected_finish_seconds=6_240.0,
            ),
            pool(
                "us-west-2b", 905_000, "has capacity for 1 of 2", at, fits=False,
                hazard_per_hour=1.5, expected_microusd=5_120_000, expected_finish_seconds=9_000.0,
            ),
            pool(
                "us-west-2a", FULL_PRICE, "not needed: slack 55m", at, market=Market.ON_DEMAND,
                expected_microusd=9_380_000, expected_finish_seconds=5_520.0,
            ),
        ),
        **fields,
    }  # fmt: skip
    return PlacementDecision(**values)


def kept(at: datetime, fence: int = 2) -> PlacementDecision:
    """The machines at hand were enough: no pool was weighed."""
    return PlacementDecision(
        decided_at=at,
        verdict=DecisionVerdict.STAY,
        reason="machines_at_hand",
        sentence="Keeping the 2 current machines.",
        fence=fence,
    )


def waited(at: datetime, **fields: Any) -> PlacementDecision:
    """Nothing was asked for although a pool fits: the wait for a cheaper one costs less."""
    dear = pool(
        "us-west-2a", 1_918_000, "waiting for better capacity costs less", at, hazard_per_hour=0.9
    )
    full = pool(
        "us-west-2b", 905_000, "has capacity for 0 of 2", at, fits=False, hazard_per_hour=0.084
    )
    values = {
        "decided_at": at,
        "verdict": DecisionVerdict.WAIT,
        "reason": "waiting_costs_less",
        "sentence": "Waiting costs less than on-demand while the deadline allows it.",
        "unblock": Unblock("2 machines free in local us-west-2b (p3.2xlarge)", 905_000),
        "pools": (dear, full),
        **fields,
    }
    return PlacementDecision(**values)


def record(
    begin: Callable[[], AbstractContextManager[UnitOfWork]],
    job_id: UUID,
    *decisions: PlacementDecision,
) -> None:
    """Keep decisions of a job, each in a transaction of its own, through the real door."""
    for decision in decisions:
        with begin() as uow:
            uow.decisions.record(job_id, decision)
