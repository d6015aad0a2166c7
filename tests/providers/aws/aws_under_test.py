"""The AWS provider's entry into the conformance suite, on a fake account."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from app.domain.market.offer import Market, Pool
from tests.providers.provider_under_test import CloudAtHand
from tests.support.aws.aws_fake import AwsFake, open_aws_fake
from tests.support.aws.aws_parts import ENVIRONMENT, aws_pool, provider_for
from tests.support.aws.aws_world import now
from tests.support.deployment.scripted_local_cloud import eventually


class AwsUnderTest:
    """`CloudAtHand` on real boto3 clients."""

    def __init__(self, fake: AwsFake) -> None:
        self._fake = fake
        self.room = fake.world.spot_room
        self.provider = provider_for(fake)

    def pools(self, market: Market) -> tuple[Pool, ...]:
        """Two zones of one region."""
        return tuple(aws_pool(zone, market=market) for zone in ("us-east-1a", "us-east-1b"))

    def price_microusd_per_hour(self, pool: Pool) -> int:
        """The market's price; bids are compared with it."""
        return self._fake.world.price_at(pool.instance_type, pool.zone, now())

    def lose_next_reply(self) -> None:
        """Of the call that starts machines."""
        self._fake.world.lost["CreateFleet"] += 1

    def take(self, provider_instance_id: str) -> None:
        """Without any notice."""
        self._fake.take(provider_instance_id)

    def eventually(self, condition: Callable[[], bool]) -> None:
        """In wall time."""
        eventually(condition, "what the provider must come to show")


@contextmanager
def open_aws() -> Iterator[CloudAtHand]:
    """A new account that shows machines late, and lets them start and end slowly."""
    rules = {"pending_seconds": 0.2, "ending_seconds": 0.2, "hidden_looks": 1, "page_size": 5}
    with patch.dict(os.environ, ENVIRONMENT), open_aws_fake(**rules) as fake:
        yield AwsUnderTest(fake)
