"""What a provider brings along to take part in the conformance suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import CloudProvider


class ProviderUnderTest(Protocol):
    """A provider on a cloud of its own that has never been used."""

    @property
    def provider(self) -> CloudProvider:
        """The provider."""
        ...

    @property
    def room(self) -> int:
        """Machines that every spot pool of `pools` takes; at least 2."""
        ...

    def pools(self, market: Market) -> tuple[Pool, ...]:
        """At least two pools of different zones of one region, all with `room`."""
        ...

    def price_microusd_per_hour(self, pool: Pool) -> int:
        """The pool's price now."""
        ...

    def eventually(self, condition: Callable[[], bool]) -> None:
        """Let time pass, bounded, until the condition holds; fails the test when it does not."""
        ...


class CloudAtHand(ProviderUnderTest, Protocol):
    """A cloud that does what the test wants: every fake, and no real one."""

    def lose_next_reply(self) -> None:
        """The cloud does what the next call asks and the answer is lost."""
        ...

    def take(self, provider_instance_id: str) -> None:
        """The cloud takes a spot machine now."""
        ...
