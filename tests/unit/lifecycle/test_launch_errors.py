"""Which pools a refusal reaches, and how a launch goes on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.lifecycle.launch import LAUNCH_CALLS_MAX, LaunchStep, launch_step
from app.domain.lifecycle.launch_errors import (
    REFUSAL_RULES,
    NextStep,
    RefusalKind,
    RefusalScope,
    covers,
    family_of,
    rule_of,
)
from app.domain.market.offer import Market, Pool

POOL = Pool("aws", "us-west-2", "us-west-2a", "p3.2xlarge", Market.SPOT)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_every_kind_has_its_row():
    assert set(REFUSAL_RULES) == set(RefusalKind)
    for kind in RefusalKind:
        needs_a_person = rule_of(kind).step is NextStep.ASK_A_PERSON
        assert (rule_of(kind).verdict is not None) is needs_a_person, kind


@pytest.mark.parametrize(
    ("instance_type", "family"),
    [("p3.2xlarge", "p3"), ("g6e.48xlarge", "g6e"), ("a3-megagpu-8g", "a3-megagpu"), ("n1", "n1")],
)
def test_families_are_what_quotas_are_counted_by(instance_type: str, family: str):
    assert family_of(instance_type) == family


OTHERS = {
    "same": POOL,
    "sister in the zone": replace(POOL, instance_type="p3.8xlarge"),
    "other family in the zone": replace(POOL, instance_type="g5.xlarge"),
    "same type next door": replace(POOL, zone="us-west-2b"),
    "sister next door": replace(POOL, zone="us-west-2b", instance_type="p3.8xlarge"),
    "longer family name": replace(POOL, instance_type="p3dn.24xlarge"),
    "other family next door": replace(POOL, zone="us-west-2b", instance_type="g5.xlarge"),
    "far away": replace(POOL, region="us-east-1", zone="us-east-1a"),
    "other cloud": replace(POOL, provider="gcp"),
    "on demand": replace(POOL, market=Market.ON_DEMAND),
}
REACHES = {
    RefusalScope.POOL: {"same"},
    RefusalScope.ZONE: {"same", "sister in the zone", "other family in the zone",
                        "longer family name"},
    RefusalScope.FAMILY: {"same", "sister in the zone", "same type next door",
                          "sister next door"},
    RefusalScope.REGION: set(OTHERS) - {"far away", "other cloud", "on demand"},
    RefusalScope.PROVIDER: set(OTHERS) - {"other cloud", "on demand"},
}  # fmt: skip


@pytest.mark.parametrize("scope", RefusalScope)
def test_a_refusal_reaches_as_far_as_its_scope(scope: RefusalScope):
    reached = {
        name for name, other in OTHERS.items() if covers(POOL, scope, other, both_markets=False)
    }
    assert reached == REACHES[scope]


def test_a_refusal_of_credentials_holds_for_both_markets():
    on_demand = OTHERS["on demand"]
    assert covers(POOL, RefusalScope.PROVIDER, on_demand, both_markets=True)


@pytest.mark.parametrize(
    ("wanted", "may_exist", "operation", "calls", "age", "step"),
    [
        (True, False, None, 0, 0, LaunchStep.CALL),
        (False, False, None, 0, 0, LaunchStep.NOTHING),
        (False, False, None, 3, 60, LaunchStep.NOTHING),
        (True, True, None, 1, 60, LaunchStep.CALL),
        (False, True, None, 1, 60, LaunchStep.FIND),
        (True, True, None, LAUNCH_CALLS_MAX, 60, LaunchStep.FIND),
        (True, True, "operation", 1, 60, LaunchStep.POLL),
        (False, True, "operation", 1, 60, LaunchStep.POLL),
        (True, True, "operation", 1, 900, LaunchStep.FIND),
        (False, True, "operation", 1, 900, LaunchStep.FIND),
    ],
)
def test_how_a_launch_goes_on(
    wanted: bool, may_exist: bool, operation: str | None, calls: int, age: int, step: LaunchStep
):
    chosen = launch_step(
        wanted=wanted,
        may_exist=may_exist,
        operation=operation,
        called_at=NOW - timedelta(seconds=age),
        calls_made=calls,
        poll_for=timedelta(seconds=900),
        now=NOW,
    )
    assert chosen is step
