"""The local provider's entry into the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from app.domain.market.offer import Market, Pool
from tests.providers.provider_under_test import CloudAtHand
from tests.support.deployment.scripted_local_cloud import (
    SLOTS,
    LocalCloudForTests,
    eventually,
    open_local_cloud,
    spot_pool,
)


class LocalUnderTest:
    """`CloudAtHand` on a cloud of processes."""

    room = SLOTS

    def __init__(self, cloud: LocalCloudForTests) -> None:
        self.provider = cloud.provider
        self._cloud = cloud

    def pools(self, market: Market) -> tuple[Pool, ...]:
        """Two zones of one region."""
        return tuple(
            replace(spot_pool(zone), market=market) for zone in ("us-west-2a", "us-west-2c")
        )

    def price_microusd_per_hour(self, pool: Pool) -> int:
        """From the price source."""
        (offer,) = (offer for offer in self._cloud.prices.offers() if offer.pool == pool)
        return offer.price_microusd_per_hour

    def lose_next_reply(self) -> None:
        """The daemon hangs up."""
        self._cloud.provider.lose_replies(1)

    def take(self, provider_instance_id: str) -> None:
        """Without any notice."""
        self._cloud.provider.interrupt(provider_instance_id, None)

    def eventually(self, condition: Callable[[], bool]) -> None:
        """In wall time."""
        eventually(condition, "what the provider must come to show")


@contextmanager
def open_local() -> Iterator[CloudAtHand]:
    """A new local cloud."""
    with open_local_cloud() as cloud:
        yield LocalUnderTest(cloud)
