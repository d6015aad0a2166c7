"""The simulated clouds' entries into the conformance suite: one that imitates EC2, one GCE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from app.domain.market.offer import Market, Pool
from app.simulation.engine.event_log import EventLog
from app.simulation.engine.event_loop import EventLoop
from app.simulation.engine.seeded_entropy import SeededEntropy
from app.simulation.engine.virtual_clock import VirtualClock, microseconds
from app.simulation.simulated.simulated_cloud import CloudTools, SimulatedCloud
from app.simulation.simulated.simulated_market import MarketSettings, SimulatedMarket
from tests.providers.provider_under_test import CloudAtHand

_HOURS = 4.0
_STEP_SECONDS = 1.0
_STEPS_MAX = 3_600


class SimulatedUnderTest:
    """`CloudAtHand` on a virtual clock, in markets without droughts."""

    room = 6

    def __init__(self, name: str, cloud: str) -> None:
        self._clock = VirtualClock()
        self._loop = EventLoop(self._clock)
        entropy = SeededEntropy(1, self._clock)
        settings = MarketSettings(spot_capacity=self.room, drought_every_hours=0)
        zones = (("region-1", "region-1a"), ("region-1", "region-1b"), ("region-2", "region-2a"))
        places = ((name, cloud, zones),)
        self._market = SimulatedMarket(entropy, self._clock, _HOURS, settings, places)
        tools = CloudTools(
            loop=self._loop,
            log=EventLog(self._clock, False),
            market=self._market,
            in_transaction=lambda: False,
            on_running=lambda machine: None,
            on_end=lambda machine: None,
            on_notice=lambda machine: None,
        )
        self.provider = SimulatedCloud(name, cloud, entropy.stream("cloud"), tools)

    def pools(self, market: Market) -> tuple[Pool, ...]:
        """Those of the first region."""
        region = self.provider.regions()[0]
        return tuple(
            pool
            for pool in sorted(self._market.paths)
            if (pool.provider, pool.region, pool.market) == (self.provider.name, region, market)
        )

    def price_microusd_per_hour(self, pool: Pool) -> int:
        """From the price port."""
        (offer,) = (offer for offer in self.provider.offers() if offer.pool == pool)
        return offer.price_microusd_per_hour

    def lose_next_reply(self) -> None:
        """The call is done, its answer lost."""
        self.provider.faults.lose_reply += 1

    def take(self, provider_instance_id: str) -> None:
        """Without any notice."""
        self.provider.give_notice(self.provider.machines[provider_instance_id], None)

    def eventually(self, condition: Callable[[], bool]) -> None:
        """In virtual time, an hour at most."""
        for _ in range(_STEPS_MAX):
            if condition():
                return
            self._loop.run(self._clock.true_us + microseconds(_STEP_SECONDS))
        raise AssertionError("the simulated cloud never came to show it")


def open_simulated(name: str, cloud: str) -> Callable[[], AbstractContextManager[CloudAtHand]]:
    """Opens a new simulated cloud."""
    return partial(_open, name, cloud)


@contextmanager
def _open(name: str, cloud: str) -> Iterator[CloudAtHand]:
    yield SimulatedUnderTest(name, cloud)
