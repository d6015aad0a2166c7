"""CreateFleet's parameters from an order, and the order's answer from CreateFleet's.

Lives here: pure translation. Not here: the call, and what is asked before it (`launching`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from app.adapters.providers.aws.client.aws_errors import kind_of, scope_of, sentence
from app.adapters.providers.aws.client.aws_settings import DEPLOYMENT_TAG, ORDER_TAG, TOKEN_TAG
from app.adapters.providers.aws.machines.launch_template import VERSION
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import (
    AcceptedMachine,
    LaunchOrder,
    LaunchResult,
    PoolBid,
    PoolRefusal,
    RefusalKind,
)

OVERRIDES_MAX: Final = 300
LEAST_MAX_PRICE_MICROUSD: Final = 1_000
"""EC2 takes no maximum price at or below $0.001."""

_TAGGED: Final = ("fleet", "instance", "volume", "network-interface")
_PERSON: Final = (RefusalKind.DENIED, RefusalKind.REJECTED)


@dataclass(frozen=True)
class FleetOverride:
    """A bid with the subnet, template and placement group of its machines.

    quota: name of the quota that counts them, "" where no document tells.
    """

    bid: PoolBid
    subnet_id: str
    template: str
    placement_group: str | None
    quota: str


def order_digest(order: LaunchOrder) -> str:
    """Short fingerprint of what an order asks for; user data and tags are no part of it."""
    told = repr((order.count, order.min_count, order.market, order.bids, order.disk_gb))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def fleet_request(
    order: LaunchOrder, places: list[FleetOverride], user_data: bytes, deployment_id: str
) -> dict[str, Any]:
    """CreateFleet's parameters: one synchronous call, one type in one zone, all or nothing.

    Spot goes where EC2 sees both capacity and a low price; on-demand follows the order's own
    preference, for its price is known and its capacity is not told.
    """
    spot = order.market is Market.SPOT
    gang: dict[str, Any] = {
        "AllocationStrategy": "price-capacity-optimized" if spot else "prioritized",
        "SingleInstanceType": True,
        "SingleAvailabilityZone": True,
        "MinTargetCapacity": order.min_count,
    }
    if spot:
        gang["InstanceInterruptionBehavior"] = "terminate"
    by_template: dict[str, list[dict[str, Any]]] = {}
    for priority, place in enumerate(places[:OVERRIDES_MAX]):
        by_template.setdefault(place.template, []).append(_override(place, priority, spot))
    tags = {
        **order.tags,
        DEPLOYMENT_TAG: deployment_id,
        TOKEN_TAG: order.client_token,
        ORDER_TAG: order_digest(order),
    }
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    encoded = base64.b64encode(user_data).decode()
    return {
        "ClientToken": order.client_token,
        "Type": "instant",
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": order.count,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        "SpotOptions" if spot else "OnDemandOptions": gang,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateName": template,
                    "Version": VERSION,
                    "LaunchTemplateSpecificationUserData": encoded,
                },
                "Overrides": overrides,
            }
            for template, overrides in by_template.items()
        ],
        "TagSpecifications": [{"ResourceType": noun, "Tags": listed} for noun in _TAGGED],
    }


def _override(place: FleetOverride, priority: int, spot: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "InstanceType": place.bid.pool.instance_type,
        "SubnetId": place.subnet_id,
    }
    limit = place.bid.max_price_microusd_per_hour
    if not spot:
        told["Priority"] = float(priority)
    elif limit is not None:
        told["MaxPrice"] = f"{Decimal(limit) / 1_000_000:.6f}"
    if place.placement_group is not None:
        told["Placement"] = {"GroupName": place.placement_group}
    return told


def fleet_result(
    reply: Mapping[str, Any], order: LaunchOrder, places: list[FleetOverride]
) -> LaunchResult:
    """Machines and refusals of a 200 answer, which may carry both, or refusals alone."""
    pools = {(one.bid.pool.instance_type, one.subnet_id): one.bid.pool for one in places}
    quotas = {one.bid.pool: one.quota for one in places}
    accepted: list[AcceptedMachine] = []
    for group in reply.get("Instances", []):
        pool = _pool(group, pools) or _pool_by_zone(group, places)
        accepted += [
            AcceptedMachine(machine_id, pool, None, "") for machine_id in group["InstanceIds"]
        ]
    refused: dict[tuple[Pool | None, RefusalKind], PoolRefusal] = {}
    for error in reply.get("Errors", []):
        code, message = error.get("ErrorCode", "Unknown"), error.get("ErrorMessage", "")
        one = _refusal(_pool(error, pools), code, message, quotas)
        refused.setdefault((one.pool, one.kind), one)
    missing = order.count - len(accepted)
    if missing > 0 and not refused:
        text = f"EC2 started {missing} fewer than requested and gave no reason"
        for place in places:
            pool = place.bid.pool
            refused[pool, RefusalKind.NO_CAPACITY] = PoolRefusal(
                pool, RefusalKind.NO_CAPACITY, text
            )
    return LaunchResult(tuple(accepted), _of_pools(tuple(refused.values()), bool(accepted)))


def _refusal(pool: Pool | None, code: str, message: str, quotas: Mapping[Pool, str]) -> PoolRefusal:
    """One of a fleet's errors; of a quota it tells which one to raise."""
    kind, told = kind_of(code, message=message), sentence(code, message)
    name = "" if pool is None else quotas.get(pool, "")
    if kind is RefusalKind.QUOTA and name:
        told = f"{told} (quota: {name})"
    return PoolRefusal(pool, kind, told, scope_of(code))


def _of_pools(refused: tuple[PoolRefusal, ...], started: bool) -> tuple[PoolRefusal, ...]:
    """A configuration that one pool refuses and another takes is that pool's own limit.

    Only where every pool refuses for such a reason a person is needed. A right that is missing is
    nobody's limit: it is back as soon as it is given.
    """
    if not started and all(one.kind in _PERSON for one in refused):
        return refused
    return tuple(
        replace(one, kind=RefusalKind.UNSUPPORTED) if one.kind is RefusalKind.REJECTED else one
        for one in refused
    )


def _pool(told: Mapping[str, Any], pools: Mapping[tuple[str, str], Pool]) -> Pool | None:
    override = told.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return pools.get((override.get("InstanceType", ""), override.get("SubnetId", "")))


def _pool_by_zone(group: Mapping[str, Any], places: list[FleetOverride]) -> Pool:
    """Where EC2 does not repeat the override; the first of the order when it says nothing."""
    told = (group.get("InstanceType"), group.get("AvailabilityZone"))
    pools = [one.bid.pool for one in places]
    return next((one for one in pools if (one.instance_type, one.zone) == told), pools[0])
