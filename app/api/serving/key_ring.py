"""Sign-in by API key: `Authorization: Bearer lt_…`, stored as SHA-256 only.

Lives here: whose key it is, and how that is known. A key has 256 random bits, so its plain digest
is looked up by equality and its timing reveals nothing. Not here: the parameter of routes (`auth`),
agents' credentials (`agents`), and the pages' session cookies (`app.web`), which come to
`KeyRing.owner` with the same digest.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.exceptions import HTTPException

from app.domain.deployment.credentials import digest
from app.domain.lifecycle.events import Actor, ActorKind
from app.ports.clock import Clock
from app.storage.reports.job_facts import KeyOwner

_REMEMBERED_FOR = timedelta(seconds=1)
_REMEMBERED_MAX = 1_000
_KEY = re.compile(r"lt_[A-Za-z0-9_-]{43}", re.ASCII)
_NO_OWNER = (
    "This API key is unknown or has been revoked: use another one, or ask whoever runs this "
    "deployment for a new one. A database that was restored from a backup has no keys of after it."
)
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="lowtide"'}


@dataclass(frozen=True)
class Caller:
    """A signed-in person or program: its key, and the project that the key opens.

    is_admin: it may see figures of the whole deployment.
    """

    key_id: UUID
    key_name: str
    project_id: UUID
    project_name: str
    is_admin: bool = False

    @property
    def actor(self) -> Actor:
        """How the caller is named in histories."""
        return Actor(ActorKind.PERSON, self.key_name)


class KeyRing:
    """Knows the owners of keys, and remembers each for a second, so that a revoked key ends."""

    def __init__(
        self, look_up: Callable[[str], Coroutine[Any, Any, KeyOwner | None]], clock: Clock
    ) -> None:
        self._look_up = look_up
        self._clock = clock
        self._remembered: dict[str, tuple[datetime, Caller]] = {}
        self._looking: dict[str, asyncio.Task[KeyOwner | None]] = {}

    async def caller(self, authorization: str | None) -> Caller:
        """The caller of a request by its Authorization header; raises 401."""
        if authorization is None:
            raise _unauthorized("Sign in with an API key: Authorization: Bearer lt_…")
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or _KEY.fullmatch(key.strip()) is None:
            raise _unauthorized("This is no API key; send Authorization: Bearer lt_…")
        found = await self.owner(digest(key.strip()))
        if found is None:
            raise _unauthorized(_NO_OWNER)
        return found

    async def owner(self, key_hash: str) -> Caller | None:
        """The caller whose key has this SHA-256; None when unknown or revoked."""
        now = self._clock.now()
        kept = self._remembered.get(key_hash)
        # A clock that was set back must not make a revoked key good until it has caught up.
        if kept is not None and now < kept[0] <= now + _REMEMBERED_FOR:
            return kept[1]
        self._remembered.pop(key_hash, None)
        found = await self._look_up_once(key_hash)
        if found is None:
            return None
        caller = Caller(
            found.key_id, found.key_name, found.project_id, found.project_name, found.is_admin
        )
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[key_hash] = (now + _REMEMBERED_FOR, caller)
        return caller

    async def _look_up_once(self, key_hash: str) -> KeyOwner | None:
        """Requests that come together with one key ask the database one time."""
        looking = self._looking.get(key_hash)
        if looking is None:
            looking = asyncio.create_task(self._look_up(key_hash))
            self._looking[key_hash] = looking
            looking.add_done_callback(lambda _: self._looking.pop(key_hash, None))
        # Who leaves must not take the answer away from the others.
        return await asyncio.shield(looking)


def _unauthorized(detail: str) -> HTTPException:
    return HTTPException(401, detail, headers=_CHALLENGE)
