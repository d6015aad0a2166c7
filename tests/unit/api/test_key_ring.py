"""How long a key that was revoked is still remembered."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.api.serving.key_ring import KeyRing
from app.storage.reports.job_facts import KeyOwner

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


def test_requests_that_come_together_look_a_key_up_once() -> None:
    clock, asked = HandClock(), list[str]()

    async def look_up(key_hash: str) -> KeyOwner | None:
        asked.append(key_hash)
        await asyncio.sleep(0)
        return OWNER

    async def ask() -> None:
        ring = KeyRing(look_up, clock)
        gone, *others = [asyncio.create_task(ring.owner("hash")) for _ in range(50)]
        await asyncio.sleep(0)
        gone.cancel()
        assert all(await asyncio.gather(*others))
        clock.at += timedelta(seconds=2)
        assert await ring.owner("hash") is not None

    asyncio.run(ask())
    assert asked == ["hash", "hash"]


def test_a_look_up_that_fails_fails_all_and_is_made_again() -> None:
    async def look_up(key_hash: str) -> KeyOwner | None:
        await asyncio.sleep(0)
        raise OSError("away")

    async def ask() -> None:
        ring = KeyRing(look_up, HandClock())
        for _ in range(2):
            told = await asyncio.gather(
                *(ring.owner("h") for _ in range(3)), return_exceptions=True
            )
            assert [type(one) for one in told] == [OSError] * 3

    asyncio.run(ask())
