"""Prices of the local cloud: offers now and history, in wall time, from its recordings."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from app.adapters.providers.local.cloud_client import CloudClient
from app.adapters.providers.local.files.cloud_settings import LocalSettings
from app.adapters.providers.local.provider import instant, microseconds
from app.domain.market.attachments import Attachments
from app.domain.market.offer import Hardware, Offer, Pool
from app.ports.price_source import PriceChange


class LocalPriceSource:
    """The recorded markets as the folder's cloud plays them."""

    def __init__(self, folder: Path, settings: LocalSettings) -> None:
        self._client = CloudClient(folder, settings)

    def offers(self) -> tuple[Offer, ...]:
        """Every pool now, sorted; `available` is None for on-demand, which is never short."""
        answer = self._client.call("offers")
        quoted_at = instant(answer["at_us"])
        attachments = Attachments(
            **answer["attachments"],
            source="terms of the local cloud",
            captured_at=instant(answer["epoch_us"]),
        )
        return tuple(
            Offer(
                pool=Pool.parse(offer["pool"]),
                hardware=Hardware.from_json(offer["hardware"]),
                price_microusd_per_hour=offer["price_microusd_per_hour"],
                on_demand_microusd_per_hour=offer["on_demand_microusd_per_hour"],
                cloud=offer["cloud"],
                quoted_at=quoted_at,
                price_source=offer["source"],
                available=offer["available"],
                billing_speed=answer["billing_speed"],
                attachments=attachments,
            )
            for offer in answer["offers"]
        )

    def changes_since(self, since: datetime) -> tuple[PriceChange, ...]:
        """Changes after `since` and the price in effect then, by pool and time.

        The market begins with the cloud's first start: nothing is older, and the first price has
        that instant.
        """
        answer = self._client.call("price_changes", since_us=microseconds(since))
        return tuple(
            PriceChange(Pool.parse(key), instant(at_us), price, source)
            for key, at_us, price, source in answer["changes"]
        )
