"""How long a key that was revoked is still remembered."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.api.key_ring import KeyRing
from app.ports.job_reports import KeyOwner

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
OWNER = KeyOwner(UUID(int=1), "ada", UUID(int=2), "alpha", False)


class HandClock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.at = AT

    def now(self) -> datetime:
        return self.at


@pytest.mark.parametrize("passed", [timedelta(seconds=1), timedelta(hours=-1)])
def test_a_revoked_key_is_refused_within_a_second_whatever_the_clock_does(
    passed: timedelta,
) -> None:
    clock, owners = HandClock(), {"hash": OWNER}

    async def look_up(key_hash: str) -> KeyOwner | None:
        return owners.get(key_hash)

    async def ask() -> None:
        ring = KeyRing(look_up, clock)
        assert await ring.owner("hash") is not None
        owners.clear()
        assert await ring.owner("hash") is not None
        clock.at += passed
        assert await ring.owner("hash") is None

    asyncio.run(ask())
