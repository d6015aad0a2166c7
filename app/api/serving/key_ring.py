"""Sign-in by API key: `Authorization: Bearer lt_…`, stored as SHA-256 only.

Lives here: whose key it is, how that is known, and which project the request is in. A key has 256
random bits, so its plain digest is looked up by equality and its timing reveals nothing. Not here:
the parameter of routes (`auth`), agents' credentials (`agents`), and the pages' session cookies
(`app.web`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol
from uuid import UUID

from starlette.exceptions import HTTPException

from app.domain.access.key_rules import USE_RECORDED_EVERY, is_key
from app.domain.access.may import AccessDecision, Resource, may
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.deployment.credentials import digest
from app.domain.spec.job_spec import JobSpec
from app.domain.units.errors import Hidden, NotFound
from app.orchestration.access.manage_projects import not_opened
from app.ports.clock import Clock
from app.storage.access.known_keys import KnownKey, NamedProject

PROJECT_HEADER: Final = "Lowtide-Project"
"""Names another project than the key's own."""
_ASKED_EVERY = timedelta(seconds=1)
"""For changes: a revoked key is good for no longer."""
_REMEMBERED_MAX = 10_000
_CHANGES = ""
_NO_OWNER = (
    "This API key is unknown, has expired or has been revoked: use another one, or ask whoever "
    "runs this deployment for a new one. A database that was restored from a backup has no keys "
    "of after it."
)
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="lowtide"'}


class KnownKeys(Protocol):
    """Where keys and projects are looked up: the database."""

    async def access_change(self) -> int | None:
        """Which transaction was the last to change what keys may do; None: unknown."""
        ...

    async def known_key(self, key_hash: str, now: datetime) -> KnownKey | None:
        """The key with this SHA-256; None when it is unknown, revoked or over."""
        ...

    async def project(self, name: str, person_id: UUID | None) -> NamedProject | None:
        """The project of that name, with the role that the person has there; None for none."""
        ...


@dataclass(frozen=True, slots=True)
class _Remembered:
    at: datetime
    until: datetime
    principal: Principal


class KeyRing:
    """Knows the owners of keys. Remembers them until something changes what keys may do, for which
    it asks once a second however many keys are in use, or until their last use is to be written.
    """

    def __init__(self, known: KnownKeys, clock: Clock) -> None:
        self._known = known
        self._clock = clock
        self._remembered: dict[str, _Remembered] = {}
        self._change: int | None = None
        self._asked_at: datetime | None = None
        self._asking: dict[str, asyncio.Future[Any]] = {}

    async def caller(self, authorization: str | None, project: str | None = None) -> Principal:
        """Who sends a request, by its Authorization header, in the project that it names.

        Raises 401 without a good key, and NotFound for a project that the key does not open.
        """
        if authorization is None:
            raise _unauthorized("Sign in with an API key: Authorization: Bearer lt_…")
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not is_key(key.strip()):
            raise _unauthorized("This is no API key; send Authorization: Bearer lt_…")
        principal = await self._owner(digest(key.strip()))
        if principal is None:
            raise _unauthorized(_NO_OWNER)
        return await self.in_project(principal, project)

    async def in_project_of(self, principal: Principal, spec: JobSpec) -> Principal:
        """The caller in the project that a spec names; raises NotFound as `caller`."""
        return await self.in_project(principal, spec.project)

    async def in_project(self, principal: Principal, project: str | None) -> Principal:
        """The caller in another project, or in its own for None; raises NotFound as `caller`."""
        if project is None:
            return principal
        if project == principal.project_name:
            return principal.in_named_project()
        return await self._inside(principal, project)

    def forget(self) -> None:
        """Look every key up again: something that is known with them has changed."""
        self._remembered.clear()
        self._change = self._asked_at = None

    async def _inside(self, principal: Principal, project: str) -> Principal:
        known = await self._known.project(project, principal.person_id)
        # The same sentence after the same look, there or not: who may not know cannot learn.
        if known is None or not _opens(principal, known):
            refused = NotFound if known is None else Hidden
            raise refused(not_opened(principal, project))
        return principal.inside(
            known.id, project, known.takes_jobs, known.rules_version, known.member_role
        )

    async def _owner(self, key_hash: str) -> Principal | None:
        now = self._clock.now()
        # A clock that was set back must not make a revoked key good until it has caught up.
        if self._asked_at is None or not self._asked_at <= now < self._asked_at + _ASKED_EVERY:
            await self._ask_once(_CHANGES, self._ask_for_changes(now))
        kept = self._remembered.get(key_hash)
        if kept is not None and kept.at <= now < kept.until:
            return kept.principal
        found: Principal | None = await self._ask_once(key_hash, self._look_up(key_hash, now))
        return found

    async def _ask_for_changes(self, now: datetime) -> None:
        change = await self._known.access_change()
        if change != self._change:
            self._remembered.clear()
        self._change, self._asked_at = change, now

    async def _look_up(self, key_hash: str, now: datetime) -> Principal | None:
        change = self._change
        known = await self._known.known_key(key_hash, now)
        if known is None:
            self._remembered.pop(key_hash, None)
            return None
        # After a change meanwhile, this may be what was before it.
        if change is not None and change == self._change:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            until = now + USE_RECORDED_EVERY
            if known.ends_at is not None:
                until = min(until, known.ends_at)
            self._remembered[key_hash] = _Remembered(now, until, known.principal)
        return known.principal

    async def _ask_once(self, name: str, question: Coroutine[Any, Any, Any]) -> Any:
        """Requests that come together ask the database one time."""
        asking = self._asking.get(name)
        if asking is None:
            asking = asyncio.ensure_future(question)
            self._asking[name] = asking
            asking.add_done_callback(lambda _: self._asking.pop(name, None))
        else:
            question.close()
        # Who leaves must not take the answer away from the others.
        return await asyncio.shield(asking)


def _opens(principal: Principal, known: NamedProject) -> bool:
    project = Resource(known.id, member_role=known.member_role)
    return may(principal, Action.OPEN_PROJECT, project) is AccessDecision.ALLOWED


def _unauthorized(detail: str) -> HTTPException:
    return HTTPException(401, detail, headers=_CHALLENGE)
