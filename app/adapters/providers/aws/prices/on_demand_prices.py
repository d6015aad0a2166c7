"""On-demand prices: the Price List API once a day, else the list shipped with this release.

Source: Price List API, GetProducts; its products are JSON texts. Not here: spot (`price_source`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any, Final

from app.adapters.providers.aws.client.clients import AwsClients
from app.ports.cloud_provider import ProviderError

log = logging.getLogger(__name__)

PRICE_LIST_REGION: Final = "us-east-1"
"""The API has endpoints in few regions; each knows the prices of all."""

_FRESH_SECONDS: Final = 24 * 3_600.0
_RETRY_SECONDS: Final = 3_600.0
_PAGES_MAX: Final = 100
_SHIPPED: Final = Path(__file__).with_name("on_demand_prices.json")


@dataclass(frozen=True)
class ListPrice:
    """An on-demand price: since when it holds, and who says so."""

    microusd_per_hour: int
    effective_at: datetime
    source: str


class OnDemandPrices:
    """List prices by region, kept for a day; safe for threads."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, dict[str, ListPrice]]] = {}

    def of(self, region: str) -> Mapping[str, ListPrice]:
        """Prices by instance type. Never fails: the shipped list is the last resort."""
        with self._lock:
            kept = self._kept.get(region)
        if kept is not None and time.monotonic() < kept[0]:
            return kept[1]
        try:
            found, seconds = self._ask(region), _FRESH_SECONDS
        except ProviderError as error:
            known = shipped_prices(region) if kept is None else kept[1]
            log.warning("the price list of %s stays as it was: %s", region, error)
            found, seconds = dict(known), _RETRY_SECONDS
        # What the list leaves out, the shipped one may know.
        prices = {**shipped_prices(region), **found}
        with self._lock:
            self._kept[region] = (time.monotonic() + seconds, prices)
        return prices

    def _ask(self, region: str) -> dict[str, ListPrice]:
        asked: dict[str, Any] = {
            "ServiceCode": "AmazonEC2",
            "FormatVersion": "aws_v1",
            "Filters": [
                {"Type": "TERM_MATCH", "Field": name, "Value": value}
                for name, value in (
                    ("regionCode", region),
                    ("operatingSystem", "Linux"),
                    ("tenancy", "Shared"),
                    ("preInstalledSw", "NA"),
                    ("capacitystatus", "Used"),
                    ("marketoption", "OnDemand"),
                )
            ],
        }
        found: dict[str, ListPrice] = {}
        for _ in range(_PAGES_MAX):
            page = self._clients.ask("pricing", PRICE_LIST_REGION, "get_products", **asked)
            for text in page.get("PriceList", []):
                product = _read_product(text)
                if product is not None:
                    found[product[0]] = product[1]
            asked["NextToken"] = page.get("NextToken")
            if not asked["NextToken"]:
                break
        return found


@cache
def shipped_prices(region: str) -> dict[str, ListPrice]:
    """The shipped list; empty for a region that it does not cover."""
    document = json.loads(_SHIPPED.read_text("utf-8"))
    if region not in document["regions"]:
        return {}
    at = datetime.fromisoformat(document["as_of"]).replace(tzinfo=UTC)
    source = f"shipped list of {document['as_of']}"
    return {
        name: ListPrice(price, at, source) for name, price in document["microusd_per_hour"].items()
    }


def _read_product(text: object) -> tuple[str, ListPrice] | None:
    """Type and price of one product, None when it holds no hourly price."""
    try:
        product = json.loads(text) if isinstance(text, str) else text
        name = product["product"]["attributes"]["instanceType"]  # type: ignore[index]
        (term,) = product["terms"]["OnDemand"].values()  # type: ignore[index]
        for dimension in term["priceDimensions"].values():
            usd = Decimal(dimension["pricePerUnit"]["USD"])
            if usd > 0 and dimension.get("unit") == "Hrs":
                at = datetime.fromisoformat(term["effectiveDate"]).astimezone(UTC)
                return name, ListPrice(round(usd * 1_000_000), at, f"price list of {at:%Y-%m-%d}")
    except (KeyError, TypeError, ValueError, InvalidOperation, AttributeError):
        return None
    return None
