"""What would unblock a waiting job: every way out with its price, and none that does not exist."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market, Pool
from app.domain.placement.placement_decision import Unblock
from app.domain.spec.job_spec import parse_spec
from app.orchestration.placement.unmet_requirements import UnmetRequirements, unmet_requirements
from app.storage.reports.deployment_read_models import QuotedPoolRow
from tests.support.stories import decision_story

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FULL_PRICE = 3_060_000
RAW_SPEC: dict[str, Any] = {
    "trainer": {"model": "cnn", "data": "digits", "steps": 9},
    "nodes": 2,
    "resources": {"gpu": "V100"},
}
SPEC = parse_spec(RAW_SPEC)


def quote(zone: str, price: int, **fields: Any) -> QuotedPoolRow:
    market = fields.pop("market", Market.SPOT)
    hardware = {
        "gpu_name": fields.pop("gpu", "V100"), "gpu_count": 1, "gpu_memory_gb": 16, "vcpus": 8,
        "memory_gb": 61,
    }  # fmt: skip
    row = {
        "pool": Pool("local", zone[:-1], zone, "p3.2xlarge", market), "hardware": hardware,
        "price_microusd_per_hour": price, "on_demand_microusd_per_hour": FULL_PRICE,
        "cloud": "ec2", "quoted_at": NOW, "price_source": "trace", "available": 4,
        "billing_speed": 1, "attachments": None, "hazard_factor": None, "provider": "local",
        "cool_until_at": None, "cool_reason": None, "refusals": 0, "placement_score": None,
        "placement_scored_at": None, "preemption_rate": None, "preemption_rate_at": None,
        **fields,
    }  # fmt: skip
    return cast(QuotedPoolRow, row)


def unmet(*rows: QuotedPoolRow, **fields: Any) -> UnmetRequirements:
    return unmet_requirements(rows, parse_spec({**RAW_SPEC, **fields}), NOW)


def waiting_job(**fields: Any) -> Job:
    return Job(
        id=UUID(int=1), project_id=UUID(int=2), name="digits", spec=SPEC.to_json(),
        spec_digest="d",
        state=JobState.QUEUED, priority=50, node_count=2, submitted_at=NOW, updated_at=NOW,
        queue_rank_at=NOW, capacity_key="k", budget_id=UUID(int=3), **fields,
    )  # fmt: skip


def test_too_little_room_names_the_pool_that_lacks_least_and_the_price_of_the_gang():
    found = unmet(quote("a1a", 1_000_000, available=1), quote("b1a", 900_000, available=0))
    assert found.unblocked_by == (
        "2 machines free in a1a (p3.2xlarge), which has 1 now: $1.000/h each, $2.000/h together.",
    )
    assert [row.verdict for row in found.offers] == [
        "has capacity for 0 of 2",
        "has capacity for 1 of 2",
    ]


def test_too_dear_says_down_to_which_price():
    found = unmet(quote("a1a", 2_900_000), quote("b1a", 3_000_000), max_price_ratio=0.5)
    assert found.unblocked_by == (
        "A price of at most $1.530/h in a1a (p3.2xlarge), 50 % of on-demand; now it is $2.900/h.",
    )


def test_a_rest_after_a_refusal_says_when_it_ends():
    rest = quote("a1a", 900_000, cool_until_at=NOW + timedelta(seconds=90))
    assert unmet(rest, nodes=1).unblocked_by == (
        "The end of the cool-down of a1a (p3.2xlarge) after a refusal at 12:01:30 UTC: $0.900/h.",
    )


def test_on_demand_is_offered_as_the_price_of_not_waiting():
    full = quote("a1a", FULL_PRICE, market=Market.ON_DEMAND, available=None)
    found = unmet(quote("a1a", 900_000, available=1), full)
    assert found.unblocked_by[1] == (
        "`market: on_demand` in its spec, which starts it in a1a (p3.2xlarge) now: $3.060/h each, "
        "$6.120/h together."
    )
    assert len(found.offers) == 1


def test_what_fits_now_is_said_and_nothing_else():
    found = unmet(quote("a1a", 900_000), quote("b1a", 3_000_000))
    assert found.unblocked_by == ("a1a (p3.2xlarge) fits now: $0.900/h each, $1.800/h together.",)
    assert [row.fits for row in found.offers] == [True, False]


def test_pools_that_never_serve_are_no_way_out_but_another_spec_is():
    dear = quote("a1a", 900_000, market=Market.ON_DEMAND)
    for found, why in (
        (
            unmet(quote("a1a", 900_000, gpu="H100")),
            "no pool has 1 × V100; there are 1 × H100 16 GB",
        ),
        (
            unmet(quote("a1a", 900_000), resources={"gpu": "V100:8"}),
            "no pool has 8 × V100; there are 1 × V100 16 GB",
        ),
        (
            unmet(quote("a1a", 900_000), infra=["local/us-west-2"]),
            "this deployment rents nothing in local/us-west-2; it has pools at local only",
        ),
        (
            unmet(dear, market="on_demand", infra=["aws"]),
            "this deployment rents nothing in aws; it has pools at local only",
        ),
        (unmet(), "no known pool has that GPU"),
    ):
        assert found.offers == ()
        assert found.unblocked_by == (f"Waiting will not help: change the job's spec ({why}).",)


def test_an_image_waits_for_a_machine_image_with_docker():
    row = quote("a1a", 900_000)
    hardware = {**row["hardware"], "containers": False}
    bare = quote("a1a", 900_000, hardware=hardware, pool=replace(row["pool"], provider="gcp"))
    assert unmet(bare, image="own/image:1").unblocked_by == (
        "Machines with docker, for its `image`: name a machine image with docker in "
        "LOWTIDE_GCP_IMAGE.",
    )
    assert unmet(bare, row, image="own/image:1").unblocked_by[0].startswith("a1a")
    assert unmet(bare).unblocked_by[0].startswith("a1a (p3.2xlarge) fits now")


def test_prices_that_are_too_old_are_waited_for_and_nothing_else():
    """Not the end of a rest, or room, of a pool whose price nobody would act on."""
    at = NOW - timedelta(hours=7, minutes=5)
    rest = quote("a1a", 900_000, quoted_at=at, cool_until_at=NOW + timedelta(seconds=90))
    full = quote("b1a", 900_000, quoted_at=at - timedelta(hours=1), available=0)
    assert unmet(rest, full).unblocked_by == (
        "A fresh price for a1a (p3.2xlarge): the last one is 7h 5m old.",
    )


def test_a_wait_by_choice_names_what_it_waits_for_and_not_the_pool_it_leaves():
    cheap = quote("a1a", 900_000)
    decision = decision_story.waited(NOW)
    found = unmet_requirements(
        [cheap, quote("a1a", FULL_PRICE, market=Market.ON_DEMAND)], SPEC, NOW, None, decision
    )
    assert found.unblocked_by == (
        f"{decision_story.WAIT_FOR} each, $1.810/h together.",
        "`market: on_demand` in its spec, which starts it in a1a (p3.2xlarge) now: $3.060/h each, "
        "$6.120/h together.",
    )
    # What was placed since waits for nothing that a decision would know.
    placed = decision_story.placed(NOW)
    assert unmet_requirements([cheap], SPEC, NOW, None, placed).unblocked_by == (
        "a1a (p3.2xlarge) fits now: $0.900/h each, $1.800/h together.",
    )


def test_what_people_have_set_against_its_machines_is_the_only_thing_that_is_waited_for():
    way = Unblock("`lowtide thaw vision` by a maintainer of the project")
    for reason in ("frozen", "over_limit"):
        held = decision_story.waited(NOW, reason=reason, unblock=way, pools=())
        found = unmet_requirements(
            [quote("a1a", 900_000), quote("a1a", FULL_PRICE, market=Market.ON_DEMAND)],
            SPEC, NOW, waiting_job(), held,
        )  # fmt: skip
        assert found.unblocked_by == ("`lowtide thaw vision` by a maintainer of the project.",)


def test_a_deadline_ends_the_wait_at_its_last_safe_moment():
    rows = [quote("a1a", 900_000, available=0), quote("a1a", FULL_PRICE, market=Market.ON_DEMAND)]
    job = waiting_job(last_safe_at=NOW + timedelta(minutes=55))
    found = unmet_requirements(rows, parse_spec({**RAW_SPEC, "deadline": "4h"}), NOW, job)
    assert found.unblocked_by[-1] == (
        "Its last safe moment, 2026-03-01 12:55:00 UTC, when on-demand machines are requested in "
        "a1a (p3.2xlarge): $3.060/h each, $6.120/h together."
    )


def test_what_comes_with_a_machine_is_part_of_what_it_costs():
    attached = {
        "disk_gb": 0, "disk_microusd_per_gb_month": 0, "public_ip_microusd_per_hour": 40_000,
        "source": "list", "captured_at": NOW.isoformat(),
    }  # fmt: skip
    (row,) = unmet(quote("a1a", 900_000, attachments=attached)).offers
    assert (row.microusd_per_hour, row.cost_microusd_per_hour) == (900_000, 940_000)
