"""The Cloud Billing Catalog: the public unit prices of Compute Engine, filtered as they come.

Asked over plain HTTP, signed by the credentials that are there anyway: one more client library
would load gRPC for a single list. Not here: a machine's price (`machine_pricing`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final

from app.adapters.providers.gcp.client.compute_api import ComputeApi, translated
from app.adapters.providers.gcp.client.google_credentials import json_of, session_of
from app.adapters.providers.gcp.client.refusals import of_document
from app.adapters.providers.gcp.prices.price_data import HOURS_PER_MONTH, PriceData
from app.domain.market.offer import Market
from app.ports.cloud_provider import ProviderError, RefusalKind

log = logging.getLogger(__name__)

_PAGE_SIZE: Final = 5_000
_PAGES_MAX: Final = 100
_SERVICE: Final = "cloudbilling.googleapis.com"
_SPOT_WORDS: Final = ("Spot Preemptible ", "Preemptible ")
_NANOS: Final = 1_000_000_000
_MONTHLY: Final = ".mo"
_OK, _DENIED_STATUS = 200, (401, 403)


@dataclass(frozen=True)
class UnitPrice:
    """The price of one unit-hour of what `sku` names, in micro-USD, in its regions."""

    sku: str
    market: Market
    regions: frozenset[str]
    microusd_per_hour: Fraction
    effective_at: datetime


def read_unit_prices(api: ComputeApi, data: PriceData, now: datetime) -> tuple[UnitPrice, ...]:
    """Every unit price that a GPU machine is made of. Raises ProviderError."""
    found = []
    markets = {usage: market for market, usage in data.usage_types.items()}
    for sku in _skus(api, data.service):
        market = markets.get(sku.get("category", {}).get("usageType"))
        name = _name_of(str(sku.get("description", "")), data)
        if market is None or name is None:
            continue
        price = _price(sku, now)
        if price is not None:
            regions = frozenset(sku.get("serviceRegions", ()))
            found.append(UnitPrice(name, market, regions, price[0], price[1]))
    return tuple(found)


def _skus(api: ComputeApi, service: str) -> Iterator[dict[str, Any]]:
    seconds = api.settings.request_seconds
    address = f"{api.settings.catalog_url}/v1/services/{service}/skus"
    query = {"pageSize": str(_PAGE_SIZE), "currencyCode": "USD"}
    with session_of(api.credentials()) as session:
        for _ in range(_PAGES_MAX):
            with translated("list of SKUs"):
                answer = session.get(address, params=query, timeout=seconds)
                if answer.status_code != _OK:
                    raise _failed(answer)
                page = answer.json()
            yield from page.get("skus", ())
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]
    raise ProviderError(RefusalKind.UNAVAILABLE, "Google's list of SKUs does not end")


def _failed(answer: Any) -> ProviderError:
    status = answer.status_code
    text = f"Google's list of prices answered {status}"
    if status not in _DENIED_STATUS:
        return ProviderError(RefusalKind.UNAVAILABLE, text)
    told = of_document(json_of(answer), status, _SERVICE).message or "it says no more"
    return ProviderError(
        RefusalKind.DENIED, f"{text}: {told} (the Cloud Billing API must be enabled)"
    )


def _name_of(description: str, data: PriceData) -> str | None:
    """Which of our names a description begins with; None for what is something else."""
    lowered = description.lower()
    if any(word in lowered for word in data.left_out):
        return None
    for word in _SPOT_WORDS:
        description = description.removeprefix(word)
    return next((one for one in data.skus if description.startswith(one)), None)


def _price(sku: dict[str, Any], now: datetime) -> tuple[Fraction, datetime] | None:
    """The price in effect: the last of the timeline that has begun."""
    chosen = None
    for info in sku.get("pricingInfo", ()):
        at = datetime.fromisoformat(info["effectiveTime"]).astimezone(UTC)
        if at <= now or chosen is None:
            chosen = (info["pricingExpression"], at)
    if chosen is None:
        return None
    expression, at = chosen
    rates = expression.get("tieredRates", ())
    if not rates:
        return None
    unit = rates[-1]["unitPrice"]
    nanos = int(unit.get("units") or 0) * _NANOS + int(unit.get("nanos") or 0)
    if nanos < 0:
        log.warning("the price of SKU %s is negative; it is left out", sku.get("description"))
        return None
    hours = HOURS_PER_MONTH if str(expression.get("usageUnit", "")).endswith(_MONTHLY) else 1
    return Fraction(nanos, 1_000 * hours), at
