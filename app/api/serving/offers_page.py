"""The list of offers as JSON, made at most once a second for all who ask.

It is the same for every project, and long: some 700 bytes for each pool of every cloud.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from app.api.serving.json_answers import dumps
from app.orchestration.frame.runtime import Runtime
from app.storage.reports.deployment_read_models import QuotedPoolRow
from app.storage.reports.job_read_models import JobReports

_KEPT_FOR = timedelta(seconds=1)
_KEPT_MAX = 8


class OffersPage:
    """Used by many threads. Prices are read from the clouds less often than this is made anew."""

    def __init__(self, runtime: Runtime, reports: JobReports) -> None:
        self._runtime = runtime
        self._reports = reports
        # Held while a page is made: whoever comes meanwhile takes that one.
        self._making = threading.Lock()
        self._kept: dict[str | None, tuple[datetime, bytes]] = {}

    def page(self, gpu: str | None) -> bytes:
        """The JSON of all offers, or of those with a GPU of that name."""
        wanted = None if gpu is None else gpu.upper()
        found = self._fresh(wanted)
        if found is not None:
            return found
        with self._making:
            found = self._fresh(wanted)
            if found is None:
                found = dumps({"items": self._items(wanted), "next": None})
                # GPUs are named by those who ask: their number has a bound.
                if len(self._kept) >= _KEPT_MAX:
                    self._kept.clear()
                self._kept[wanted] = (self._runtime.clock.now(), found)
            return found

    def _fresh(self, wanted: str | None) -> bytes | None:
        made_at, found = self._kept.get(wanted, (None, None))
        if made_at is None or not made_at <= self._runtime.clock.now() < made_at + _KEPT_FOR:
            return None
        return found

    def _items(self, gpu: str | None) -> list[dict[str, Any]]:
        found, now = self._reports.offers(gpu), self._runtime.clock.now()
        return [placed(self._judged(row, now)) for row in found]

    def _judged(self, row: QuotedPoolRow, now: datetime) -> dict[str, object]:
        """The row with its age, and its price beside that of on-demand."""
        age = max(0.0, (now - row["quoted_at"]).total_seconds())
        on_demand = row["on_demand_microusd_per_hour"]
        return {
            **row,
            "quote_age_seconds": round(age),
            "is_stale": age > self._runtime.limits.quote_age_max_seconds,
            "on_demand_ratio": row["price_microusd_per_hour"] / on_demand if on_demand else None,
        }


def placed(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the parts of its pool beside the pool's key."""
    pool = row["pool"]
    return {
        **row,
        "region": None if pool is None else pool.region,
        "zone": None if pool is None else pool.zone,
        "instance_type": None if pool is None else pool.instance_type,
        "market": row.get("market") or (None if pool is None else pool.market),
    }
