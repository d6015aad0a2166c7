"""Advice on spot capacity: a machine type's past prices and preemption rates in a region.

Source: `advice.capacityHistory` of Compute Engine. Not here: prices of now (`machine_pricing`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.prices.machine_pricing import MachinePrice
from app.adapters.providers.gcp.zones.machine_view import instant
from app.domain.market.machine_catalog import MachineType
from app.ports.pool_past import PreemptionRate

log = logging.getLogger(__name__)

SOURCE: Final = "gcp-capacity-history"


@dataclass(frozen=True)
class CapacityHistory:
    """One type in one region; prices by time."""

    prices: tuple[MachinePrice, ...]
    preemptions: tuple[PreemptionRate, ...]


def read_history(api: ComputeApi, kind: MachineType, region: str) -> CapacityHistory:
    """Ask for both histories. Raises ProviderError."""
    properties: dict[str, Any] = {
        "machine_type": kind.base_type or kind.name,
        "scheduling": {"provisioning_model": "SPOT"},
    }
    if kind.accelerator:
        properties["guest_accelerators"] = [
            {"accelerator_type": kind.accelerator, "accelerator_count": kind.gpu_count}
        ]
    answer = api.read(
        "AdviceClient",
        "capacity_history",
        api.deadline(),
        region=region,
        capacity_history_request_resource={
            "instance_properties": properties,
            "types": ["PRICE", "PREEMPTION"],
        },
    )
    prices = (_price(one) for one in answer.price_history)
    return CapacityHistory(
        prices=tuple(sorted((one for one in prices if one), key=lambda one: one.at)),
        preemptions=tuple(
            PreemptionRate(
                instant(one.interval.start_time),
                instant(one.interval.end_time),
                one.preemption_rate,
            )
            for one in answer.preemption_history
        ),
    )


def _price(record: Any) -> MachinePrice | None:
    at, money = instant(record.interval.start_time), record.list_price
    if at is None or money.currency_code not in ("", "USD"):
        return None
    microusd = round(int(money.units) * 1_000_000 + int(money.nanos) / 1_000)
    if microusd < 0:
        log.warning("%s: the price since %s is negative; it is left out", SOURCE, at)
        return None
    return MachinePrice(microusd, at, SOURCE)
