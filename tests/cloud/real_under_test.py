"""A real account's entry into the conformance suite: tokens and a deployment of each test's own.

Not here: the account (`accounts`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

from app.domain.market.offer import Market, Pool
from app.ports.cloud_leftovers import CloudLeftovers
from app.ports.cloud_provider import (
    CloudMachine,
    CloudProvider,
    LaunchOrder,
    LaunchResult,
    MachineList,
    MachineState,
)
from tests.cloud.accounts import Account

_SHOWN_SECONDS = 240.0
_ENDED_SECONDS = 300.0
_ENDED = (MachineState.TERMINATED, MachineState.SHUTTING_DOWN)


class FreshTokens:
    """A provider under whose tokens nothing was ever asked for: clouds remember them for days."""

    def __init__(self, inner: CloudProvider) -> None:
        self._inner = inner
        self._mark = f"test-{uuid4().hex[:12]}-"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def launch(self, order: LaunchOrder) -> LaunchResult:
        """With the token made this test's own."""
        return self._inner.launch(replace(order, client_token=self._mark + order.client_token))

    def find_by_token(
        self, client_token: str, region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """As the test knows them."""
        return self._known(self._inner.find_by_token(self._mark + client_token, region))

    def describe(
        self, provider_instance_ids: tuple[str, ...], region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """As the test knows them."""
        return self._known(self._inner.describe(provider_instance_ids, region))

    def list_deployment(self, region: str) -> MachineList:
        """Without machines that are gone: a cloud shows those for as long as it likes."""
        found = self._inner.list_deployment(region)
        shown = [one for one in found.machines if one.state not in _ENDED]
        return MachineList(self._known(shown), found.complete)

    def _known(self, machines: Any) -> tuple[CloudMachine, ...]:
        return tuple(
            replace(one, client_token=one.client_token.removeprefix(self._mark)) for one in machines
        )


class RealUnderTest:
    """`ProviderUnderTest` without a hand on the cloud."""

    room = 2

    def __init__(self, account: Account, provider: CloudProvider) -> None:
        self._account = account
        self.provider: Any = FreshTokens(provider)

    def pools(self, market: Market) -> tuple[Pool, ...]:
        """The account's."""
        return self._account.pools(market)

    def price_microusd_per_hour(self, pool: Pool) -> int:
        """The account's."""
        return self._account.price_microusd_per_hour(pool)

    def eventually(self, condition: Callable[[], bool]) -> None:
        """In wall time."""
        _wait(condition, _SHOWN_SECONDS, "the cloud never came to show it")


@contextmanager
def open_account(account: Account) -> Iterator[RealUnderTest]:
    """A deployment of its own; whatever happens, all it has rented is released."""
    provider = account.provider(str(uuid4()))
    try:
        yield RealUnderTest(account, provider)
    finally:
        for region in provider.regions():
            _give_back(provider, region)


def _give_back(provider: CloudProvider, region: str) -> None:
    def alive() -> tuple[str, ...]:
        machines = provider.list_deployment(region).machines
        return tuple(one.provider_instance_id for one in machines if one.state not in _ENDED)

    def none_alive() -> bool:
        left = alive()
        if left:
            provider.terminate(left)
        return not left

    _wait(none_alive, _ENDED_SECONDS, f"machines are LEFT in {region}: end them by hand")
    if isinstance(provider, CloudLeftovers):
        left = provider.remove_leftovers(provider.list_leftovers(region))
        if left:
            print(f"LEFT in {region}, remove them by hand: {left}", file=sys.stderr)


def _wait(condition: Callable[[], bool], seconds: float, what: str) -> None:
    ends = time.monotonic() + seconds
    pause = 0.05
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(pause)
        pause = min(2.0, pause * 1.5)
