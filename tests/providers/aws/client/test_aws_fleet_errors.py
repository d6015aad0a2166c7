"""One answer of CreateFleet with several errors: what each pool is told to have refused, and why.

Source: CreateFleetError in EC2's API reference: one for each override that could not be launched,
which may be repeated. Not here: single errors (`test_aws_launching`), kinds (`test_aws_errors`).
"""

from __future__ import annotations

from typing import Any

import pytest

from app.adapters.providers.aws.machines.fleet_request import FleetOverride, fleet_result
from app.domain.market.offer import Pool
from app.ports.cloud_provider import LaunchResult, PoolBid, RefusalKind, RefusalScope
from tests.support.aws.aws_parts import aws_order, aws_pool

FIRST, SECOND = aws_pool("us-east-1a"), aws_pool("us-east-1b")
FULL, BAD, DENIED = "InsufficientInstanceCapacity", "InvalidParameterValue", "UnauthorizedOperation"


def error(pool: Pool | None, code: str, message: str = "so it is") -> dict[str, Any]:
    told = {"ErrorCode": code, "ErrorMessage": message}
    if pool is None:
        return told
    override = {"InstanceType": pool.instance_type, "SubnetId": f"subnet-{pool.zone}"}
    return {**told, "LaunchTemplateAndOverrides": {"Overrides": override}}


def told(*errors: dict[str, Any], started: Pool | None = None) -> LaunchResult:
    places = [
        FleetOverride(PoolBid(pool, None), f"subnet-{pool.zone}", "template", None, "")
        for pool in (FIRST, SECOND)
    ]
    groups = [{**error(started, ""), "InstanceIds": ["i-1"]}] if started is not None else []
    return fleet_result(
        {"Instances": groups, "Errors": list(errors)}, aws_order(FIRST, SECOND), places
    )


def kinds(result: LaunchResult) -> list[tuple[Pool | None, RefusalKind]]:
    return [(one.pool, one.kind) for one in result.refused]


def test_a_pool_is_told_every_kind_of_refusal_by_its_first_words() -> None:
    result = told(
        error(FIRST, FULL, "no room"),
        error(FIRST, "MaxSpotInstanceCountExceeded", "no quota"),
        error(FIRST, FULL, "no room for the next one either"),
        error(SECOND, FULL, "nor here"),
    )
    assert kinds(result) == [
        (FIRST, RefusalKind.NO_CAPACITY),
        (FIRST, RefusalKind.QUOTA),
        (SECOND, RefusalKind.NO_CAPACITY),
    ]
    assert [one.message.partition(";")[0] for one in result.refused] == [
        f"{FULL}: no room",
        "MaxSpotInstanceCountExceeded: no quota",
        f"{FULL}: nor here",
    ]


@pytest.mark.parametrize("other", [FULL, "MaxSpotInstanceCountExceeded", "Unsupported"])
def test_a_job_does_not_fail_for_one_pool_while_another_may_give_later(other: str) -> None:
    result = told(error(FIRST, BAD), error(SECOND, other))
    assert result.accepted == ()
    assert kinds(result)[0] == (FIRST, RefusalKind.UNSUPPORTED)
    assert RefusalKind.REJECTED not in {one.kind for one in result.refused}


def test_a_missing_right_and_a_wrong_configuration_together_need_a_person() -> None:
    result = told(error(FIRST, BAD), error(SECOND, DENIED))
    assert kinds(result) == [(FIRST, RefusalKind.REJECTED), (SECOND, RefusalKind.DENIED)]


def test_a_missing_right_stays_one_beside_machines_that_started() -> None:
    result = told(error(FIRST, DENIED), error(FIRST, BAD), started=SECOND)
    assert [one.pool for one in result.accepted] == [SECOND]
    assert kinds(result) == [(FIRST, RefusalKind.DENIED), (FIRST, RefusalKind.UNSUPPORTED)]


def test_an_error_without_an_override_is_of_no_pool_and_keeps_its_reach() -> None:
    (one,) = told(error(None, "VolumeLimitExceeded")).refused
    assert (one.pool, one.kind, one.scope) == (None, RefusalKind.QUOTA, RefusalScope.REGION)
