"""How long a key that was revoked is still remembered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from starlette.exceptions import HTTPException

from app.api.serving.key_ring import KeyRing
from app.domain.access.principal import Person, Principal
from app.domain.access.roles import Role
from app.domain.units.errors import NotFound
from app.storage.access.known_keys import KnownKey, NamedProject

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
OWNER = Principal(UUID(int=1), "ada", UUID(int=2), "alpha", Role.SUBMITTER)
KEY = f"Bearer lt_{'a' * 43}"


class HandClock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.at = AT

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class Known:
    """Answers with its owner, after its turn; raises what it holds instead."""

    def __init__(self, owner: Principal | None = OWNER, failure: OSError | None = None) -> None:
        self.owner, self.failure = owner, failure
        self.asked = self.changes_asked = 0
        self.change: int | None = 1
        self.ends_at: datetime | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.member_role: Role | None = None

    async def access_change(self) -> int | None:
        self.changes_asked += 1
        await asyncio.sleep(0)
        return self.change

    async def known_key(self, key_hash: str, now: datetime) -> KnownKey | None:
        self.asked += 1
        found = None if self.owner is None else KnownKey(self.owner, self.ends_at)
        await self.goes_on.wait()
        if self.failure is not None:
            raise self.failure
        return found

    def revoke(self) -> None:
        """As a transaction does it."""
        self.owner, self.change = None, 2

    async def project(self, name: str, person_id: UUID | None) -> NamedProject | None:
        return NamedProject(UUID(int=3), True, 0, self.member_role) if name == "beta" else None


@pytest.mark.parametrize("passed", [timedelta(seconds=1), timedelta(hours=-1)])
def test_a_revoked_key_is_refused_within_a_second_whatever_the_clock_does(
    passed: timedelta,
) -> None:
    clock, known = HandClock(), Known()

    async def ask() -> None:
        ring = KeyRing(known, clock)
        assert await ring.caller(KEY) == OWNER
        known.revoke()
        assert await ring.caller(KEY) == OWNER
        clock.at += passed
        with pytest.raises(HTTPException, match="revoked"):
            await ring.caller(KEY)

    asyncio.run(ask())


def test_many_keys_are_looked_up_once_while_nothing_changes() -> None:
    clock, known = HandClock(), Known()
    keys = [f"Bearer lt_{letter * 43}" for letter in "abcdef"]

    async def ask() -> None:
        ring = KeyRing(known, clock)
        for _ in range(30):
            for key in keys:
                await ring.caller(key)
            clock.at += timedelta(seconds=1.5)
        assert (known.asked, known.changes_asked) == (6, 30)
        # Now and then for each, as its last use is written along with it.
        clock.at += timedelta(seconds=15)
        await ring.caller(keys[0])
        assert known.asked == 7
        ring.forget()
        await ring.caller(keys[0])
        assert known.asked == 8

    asyncio.run(ask())


def test_a_secret_is_remembered_no_longer_than_it_is_good() -> None:
    clock, known = HandClock(), Known()
    known.ends_at = AT + timedelta(milliseconds=400)

    async def ask() -> None:
        ring = KeyRing(known, clock)
        await ring.caller(KEY)
        known.owner = None
        clock.at += timedelta(milliseconds=400)
        with pytest.raises(HTTPException, match="expired"):
            await ring.caller(KEY)

    asyncio.run(ask())


@pytest.mark.parametrize("notice", ["by another request", "in this process"])
def test_what_is_read_beside_a_change_is_not_remembered(notice: str) -> None:
    """A look-up may have read what was before a change that is already noticed."""
    clock, known = HandClock(), Known()

    async def ask() -> None:
        ring = KeyRing(known, clock)
        other = f"Bearer lt_{'b' * 43}"
        await ring.caller(other)
        known.goes_on.clear()
        looking = asyncio.create_task(ring.caller(KEY))
        for _ in range(3):
            await asyncio.sleep(0)
        assert known.asked == 2
        known.revoke()
        if notice == "in this process":
            ring.forget()
        else:
            clock.at += timedelta(seconds=2)
            asyncio.create_task(ring.caller(other)).add_done_callback(asyncio.Task.exception)
            for _ in range(4):
                await asyncio.sleep(0)
        known.goes_on.set()
        assert await looking == OWNER
        with pytest.raises(HTTPException, match="revoked"):
            await ring.caller(KEY)

    asyncio.run(ask())


def test_nothing_is_remembered_where_changes_are_not_known() -> None:
    clock, known = HandClock(), Known()
    known.change = None

    async def ask() -> None:
        ring = KeyRing(known, clock)
        assert await ring.caller(KEY) == OWNER
        known.owner = None
        with pytest.raises(HTTPException, match="revoked"):
            await ring.caller(KEY)

    asyncio.run(ask())


def test_requests_that_come_together_look_a_key_up_once() -> None:
    clock, known = HandClock(), Known()

    async def ask() -> None:
        ring = KeyRing(known, clock)
        gone, *others = [asyncio.create_task(ring.caller(KEY)) for _ in range(50)]
        await asyncio.sleep(0)
        gone.cancel()
        assert all(await asyncio.gather(*others))
        clock.at += timedelta(minutes=2)
        assert await ring.caller(KEY) == OWNER

    asyncio.run(ask())
    assert (known.asked, known.changes_asked) == (2, 2)


def test_a_look_up_that_fails_fails_all_and_is_made_again() -> None:
    async def ask() -> None:
        ring = KeyRing(Known(failure=OSError("away")), HandClock())
        for _ in range(2):
            told = await asyncio.gather(
                *(ring.caller(KEY) for _ in range(3)), return_exceptions=True
            )
            assert [type(one) for one in told] == [OSError] * 3

    asyncio.run(ask())


@pytest.mark.parametrize("role", list(Role))
def test_another_project_opens_for_admins_and_auditors_alone(role: Role) -> None:
    opens = role in (Role.ADMIN, Role.AUDITOR)

    async def ask() -> None:
        ring = KeyRing(Known(replace(OWNER, role=role)), HandClock())
        assert (await ring.caller(KEY, "alpha")).project_id == OWNER.project_id
        refused = [name for name in ("beta", "gamma") if not await _opens(ring, name)]
        assert refused == (["gamma"] if opens else ["beta", "gamma"])
        if opens:
            inside = await ring.caller(KEY, "beta")
            assert (inside.project_id, inside.role) == (UUID(int=3), role)

    asyncio.run(ask())


def test_a_person_has_the_role_in_another_project_that_its_membership_says() -> None:
    async def ask() -> None:
        known = Known(replace(OWNER, person=Person(UUID(int=7), "Lea", None, Role.ADMIN)))
        ring = KeyRing(known, HandClock())
        for name in ("beta", "gamma"):
            with pytest.raises(NotFound, match=f"no project {name!r} that Lea is a member of"):
                await ring.caller(KEY, name)
        known.member_role = Role.MAINTAINER
        inside = await ring.caller(KEY, "beta")
        assert (inside.role, inside.project_name) == (Role.MAINTAINER, "beta")
        assert known.owner is not None
        known.owner = replace(known.owner, project_is_fallback=True)
        ring.forget()
        asked = [(await ring.caller(KEY, name)).project_is_fallback for name in (None, "alpha")]
        assert asked == [True, False], "a request that names it means it"

    asyncio.run(ask())


async def _opens(ring: KeyRing, project: str) -> bool:
    try:
        return (await ring.caller(KEY, project)).project_name == project
    except NotFound as error:
        # One sentence for a project that is there and one that is not.
        return error.message != (
            f"There is no project {project!r} that the key 'ada' opens; its own is 'alpha'."
        )
