"""Jobs that no known pool can ever run: said before they are stored, and only of those."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.spec.job_spec import parse_spec
from app.orchestration.frame.limits import Limits
from app.orchestration.placement.never_runs import why_never

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WORK = {"run": "python t.py", "estimate": {"hours": 5, "gpu": "V100"}}


def offer(market: Market, *, available: int = 4) -> tuple[Offer, datetime | None]:
    pool = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", market)
    hardware = Hardware("V100", 1, 16, 8, 61)
    price = 3_060_000 if market is Market.ON_DEMAND else 918_000
    return Offer(
        pool=pool, hardware=hardware, price_microusd_per_hour=price,
        on_demand_microusd_per_hour=3_060_000, cloud="ec2", quoted_at=NOW, price_source="trace",
        available=available,
    ), None  # fmt: skip


SPOT, ON_DEMAND = offer(Market.SPOT), offer(Market.ON_DEMAND)
FULL = offer(Market.SPOT, available=0)


@pytest.mark.parametrize(
    ("spec", "quoted", "field"),
    [
        ({"resources": {"gpu": "H100"}}, [SPOT, ON_DEMAND], "resources"),
        ({"instance_types": ["p9.large"]}, [SPOT], "instance_types"),
        ({"market": "spot"}, [ON_DEMAND], "market"),
        ({"market": "auto"}, [ON_DEMAND], None),
        ({"resources": {"gpu": "V100"}}, [FULL], None),
        ({"resources": {"gpu": "H100"}}, [], None),
        ({"deadline": "1h"}, [FULL], "deadline"),
        ({"deadline": (NOW + timedelta(hours=1)).isoformat()}, [], "deadline"),
        ({"deadline": "6h"}, [FULL], None),
        ({"deadline": "1h"}, [SPOT], None),
    ],
)
def test_a_spec_never_runs_where_no_pool_has_what_it_asks_for_or_no_time_is_enough(
    spec: dict[str, Any], quoted: list[Any], field: str | None
):
    never = why_never(parse_spec({**WORK, **spec}), quoted, Limits(), NOW)
    assert (None if never is None else never[0]) == field
