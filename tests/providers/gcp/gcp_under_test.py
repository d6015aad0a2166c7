"""Google Cloud on fakes: its entry into the conformance suite, and what its own tests share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from google.auth.credentials import AnonymousCredentials

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.provider import GcpProvider
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import LaunchOrder, PoolBid
from tests.providers.provider_under_test import CloudAtHand
from tests.support.gce.gce_fake import FakeGce, LineFault, open_fake_gce
from tests.support.gce.gce_fake_engine import World
from tests.support.gce.gce_fake_state import PROJECT

DEPLOYMENT = "0190f000-0000-7000-8000-000000000001"
JOB = "0190f000-0000-7000-8000-00000000000a"
TYPE = "a2-highgpu-1g"
PRICE_MICROUSD = {Market.SPOT: 1_836_000, Market.ON_DEMAND: 3_673_000}


def gcp_settings(fake: FakeGce, **changes: Any) -> GcpSettings:
    """Settings that lead to the fake and nowhere else; short waits."""
    return replace(
        GcpSettings(
            project=PROJECT,
            regions=("us-central1", "europe-west4"),
            service_account=f"machines@{PROJECT}.iam.gserviceaccount.com",
            endpoint=fake.endpoint,
            catalog_url=fake.endpoint,
            request_seconds=30.0,
            operation_wait_seconds=1.0,
        ),
        **changes,
    )


def render(user_data: dict[str, str]) -> str:
    """A boot script that shows what it was made of."""
    return "#!/bin/sh\n" + "".join(f"{key}={value}\n" for key, value in sorted(user_data.items()))


def open_provider(fake: FakeGce, **changes: Any) -> GcpProvider:
    """The provider on the fake."""
    settings = gcp_settings(fake, **changes)
    return GcpProvider(
        settings,
        ComputeApi(settings, AnonymousCredentials()),
        shipped_catalog("gcp"),
        deployment_id=lambda: DEPLOYMENT,
        render=render,
        price_of=lambda pool: PRICE_MICROUSD[pool.market],
    )


def a_pool(zone: str = "us-central1-a", market: Market = Market.SPOT, kind: str = TYPE) -> Pool:
    """A pool of the fake."""
    return Pool("gcp", zone.rpartition("-")[0], zone, kind, market)


def an_order(*pools: Any, count: int = 1, token: str = "lowtide-1", **changes: Any) -> LaunchOrder:
    wanted = pools or (a_pool(),)
    order = LaunchOrder(
        client_token=token,
        count=count,
        min_count=count,
        market=wanted[0].market,
        bids=tuple(PoolBid(pool, None) for pool in wanted),
        user_data={"LOWTIDE_LAUNCH_TOKEN": "one-time"},
        tags={"lowtide:deployment": DEPLOYMENT, "lowtide:job": JOB},
    )
    return replace(order, **changes)


class GcpUnderTest:
    """`CloudAtHand` on the Compute Engine fake."""

    room = 4

    def __init__(self, fake: FakeGce) -> None:
        self.fake = fake
        self.provider = open_provider(fake)

    def pools(self, market: Market) -> tuple[Pool, ...]:
        """Two zones of one region."""
        return tuple(a_pool(f"us-central1-{letter}", market) for letter in "ab")

    def price_microusd_per_hour(self, pool: Pool) -> int:
        """As the provider was told."""
        return PRICE_MICROUSD[pool.market]

    def lose_next_reply(self) -> None:
        """The insert is done, its answer lost."""
        self.fake.faults.append(LineFault(r"POST .*/instances", after=True))

    def take(self, provider_instance_id: str) -> None:
        """Without any notice."""
        self.fake.engine.preempt(provider_instance_id, notice=False)

    def eventually(self, condition: Callable[[], bool]) -> None:
        """In wall time, ten seconds at most."""
        ends = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < ends, "Compute Engine never came to show it"
            time.sleep(0.02)


@contextmanager
def open_gcp() -> Iterator[CloudAtHand]:
    """A new fake, with operations that take a moment."""
    world = World(
        {"us-central1": ("us-central1-a", "us-central1-b"), "europe-west4": ("europe-west4-a",)},
        (TYPE,),
        operation_seconds=0.05,
        stopping_seconds=0.05,
    )
    with open_fake_gce(world) as fake:
        yield GcpUnderTest(fake)
