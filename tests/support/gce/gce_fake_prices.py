"""Prices as Google publishes them: the billing catalogue's SKUs, and the advice on spot prices.

Not here: composing a machine's price, which is the product's part, or the fake's own bill.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from google.cloud import compute_v1

from tests.support.gce.gce_fake_requests import check_types

SERVICE = "6F81-5844-456A"
_NANO = 1_000_000_000
START = datetime(2026, 1, 1, tzinfo=UTC)

# (description, usage type, regions, USD an hour (or a month, for disks) in nanos)
_SKUS: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    ("A2 Instance Core running in Americas", "OnDemand", ("us-central1",), 31_611_000),
    ("A2 Instance Ram running in Americas", "OnDemand", ("us-central1",), 4_237_000),
    ("Nvidia Tesla A100 GPU running in Americas", "OnDemand", ("us-central1",), 2_933_908_000),
    ("Spot Preemptible A2 Instance Core running in Americas", "Preemptible", ("us-central1",),
     15_806_000),
    ("Spot Preemptible A2 Instance Ram running in Americas", "Preemptible", ("us-central1",),
     2_118_000),
    ("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas", "Preemptible",
     ("us-central1",), 1_466_954_000),
    ("G2 Instance Core running in Americas", "OnDemand", ("us-central1",), 24_988_000),
    ("G2 Instance Ram running in Americas", "OnDemand", ("us-central1",), 2_927_000),
    ("Nvidia L4 GPU running in Americas", "OnDemand", ("us-central1",), 560_040_000),
    ("Spot Preemptible G2 Instance Core running in Americas", "Preemptible", ("us-central1",),
     9_995_000),
    ("Spot Preemptible G2 Instance Ram running in Americas", "Preemptible", ("us-central1",),
     1_171_000),
    ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", "Preemptible",
     ("us-central1",), 224_000_000),
    # What must not be taken for one of the above.
    ("Commitment v1: A2 Cpu in Americas for 1 Year", "Commit1Yr", ("us-central1",), 1_000),
    ("A2 Custom Instance Core running in Americas", "OnDemand", ("us-central1",), 9_000_000_000),
    ("Reserved A2 Instance Core in Americas", "OnDemand", ("us-central1",), 9_000_000_000),
    ("Nvidia Tesla A100 80GB GPU running in Americas", "OnDemand", ("us-central1",), 3_927_500_000),
    ("Sole Tenancy Premium for A2 Instance Core", "OnDemand", ("us-central1",), 9_000_000_000),
)  # fmt: skip


class FakePrices:
    """`history[(region, machine type)]` are (instant, nanos of a dollar an hour), oldest first."""

    def __init__(self) -> None:
        self.rows = list(_SKUS)
        self.effective_at = START
        self.page_size = 5
        self.history: dict[tuple[str, str], list[tuple[datetime, int]]] = {}
        self.preemption_rates: dict[tuple[str, str], float] = {}

    def skus(self, service: str, query: dict[str, str]) -> Any:
        """`services.skus.list`, a few at a time."""
        rows = self.rows if service == SERVICE else []
        start = int(query.get("pageToken") or 0)
        size = min(int(query.get("pageSize", 5000)), self.page_size)
        following = str(start + size) if start + size < len(rows) else ""
        return {
            "skus": [self._sku(number, *row) for number, row in enumerate(rows)][
                start : start + size
            ],
            "nextPageToken": following,
        }

    def capacity_history(self, region: str, body: Any) -> Any:
        """`advice.capacityHistory`."""
        check_types(compute_v1.CapacityHistoryRequest, body, "resource")
        properties = body["instanceProperties"]
        assert properties["scheduling"]["provisioningModel"] == "SPOT"
        machine_type = properties["machineType"]
        prices = self.history.get((region, machine_type), [])
        ends = [at for at, _ in prices[1:]] + [datetime.now(UTC) + timedelta(days=1)]
        answer: dict[str, Any] = {"machineType": machine_type, "location": f"regions/{region}"}
        if "PRICE" in body["types"]:
            answer["priceHistory"] = [
                {"interval": _interval(at, end), "listPrice": _money(nanos)}
                for (at, nanos), end in zip(prices, ends, strict=False)
            ]
        rate = self.preemption_rates.get((region, machine_type))
        if "PREEMPTION" in body["types"] and rate is not None:
            interval = _interval(START, START + timedelta(days=1))
            answer["preemptionHistory"] = [{"interval": interval, "preemptionRate": rate}]
        return answer

    def _sku(
        self, number: int, description: str, usage: str, regions: tuple[str, ...], nanos: int
    ) -> Any:
        group = "GPU" if "GPU" in description else "RAM" if "Ram" in description else "CPU"
        return {
            "name": f"services/{SERVICE}/skus/{number:04d}",
            "skuId": f"{number:04d}",
            "description": description,
            "category": {
                "serviceDisplayName": "Compute Engine",
                "resourceFamily": "Compute",
                "resourceGroup": group,
                "usageType": usage,
            },
            "serviceRegions": list(regions),
            "pricingInfo": [
                {
                    "effectiveTime": self.effective_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "pricingExpression": {
                        "usageUnit": "h",
                        "tieredRates": [{"startUsageAmount": 0, "unitPrice": _money(nanos)}],
                    },
                }
            ],
        }


def _money(nanos: int) -> Any:
    return {"currencyCode": "USD", "units": str(nanos // _NANO), "nanos": nanos % _NANO}


def _interval(start: datetime, end: datetime) -> Any:
    return {"startTime": start.isoformat(), "endTime": end.isoformat()}
