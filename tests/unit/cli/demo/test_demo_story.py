"""What the demo calls things: as every other command and page does."""

from __future__ import annotations

from typing import Any

from app.cli.client import wording
from app.cli.demo.demo_story import plan

JOB: dict[str, Any] = {
    "name": "demo",
    "node_count": 2,
    "spec": {"trainer": {"model": "cnn"}},
}


def offer(pool: str, microusd: int) -> dict[str, Any]:
    return {
        "pool": pool,
        "price_microusd_per_hour": microusd,
        "on_demand_microusd_per_hour": 3_060_000,
        "hazard_per_hour": 0.38,
        "fits": microusd < 3_060_000,
        "why": "fits, cheapest",
    }


def test_a_pool_of_the_local_cloud_is_called_local_in_the_demo_too() -> None:
    offers = [
        offer("local/us-west-2/us-west-2a/p3.2xlarge/spot", 918_000),
        offer("local/us-west-2/us-west-2b/p3.2xlarge/spot", 930_000),
        offer("local/us-west-2/us-west-2a/p3.2xlarge/on_demand", 3_060_000),
    ]
    rows = plan(JOB, offers, "$20", "2h")[3:]
    for row, one in zip(rows, offers, strict=True):
        assert wording.place(one["pool"]) in row
        assert "aws" not in row
    assert len({row.index("-70 %") for row in rows[:2]}) == 1, "the columns stay aligned"
