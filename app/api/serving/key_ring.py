"""Sign-in by API key: `Authorization: Bearer lt_…`, stored as SHA-256 only.

Lives here: whose key it is, how that is known, and which project the request is in. A key has 256
random bits, so its plain digest is looked up by equality and its timing reveals nothing. Not here:
the parameter of routes (`auth`), agents' credentials (`agents`), and the pages' session cookies
(`app.web`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol
from uuid import UUID

from starlette.exceptions import HTTPException

from app.domain.access.key_rules import is_key
from app.domain.access.may import AccessDecision, Resource, may
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.deployment.credentials import digest
from app.domain.spec.job_spec import JobSpec
from app.domain.units.errors import Hidden, NotFound
from app.orchestration.access.manage_projects import not_opened
from app.ports.clock import Clock
from app.storage.access.known_keys import NamedProject

PROJECT_HEADER: Final = "Lowtide-Project"
"""Names another project than the key's own."""
_REMEMBERED_FOR = timedelta(seconds=1)
_REMEMBERED_MAX = 1_000
_AHEAD = _REMEMBERED_FOR / 2
"""So long before they are forgotten, keys in use are looked up along with one that must be."""
_NO_OWNER = (
    "This API key is unknown, has expired or has been revoked: use another one, or ask whoever "
    "runs this deployment for a new one. A database that was restored from a backup has no keys "
    "of after it."
)
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="lowtide"'}


class KnownKeys(Protocol):
    """Where keys and projects are looked up: the database."""

    async def key_owners(self, key_hashes: Sequence[str], now: datetime) -> dict[str, Principal]:
        """Whose keys have these SHA-256; without those that are unknown, revoked or over."""
        ...

    async def project(self, name: str, person_id: UUID | None) -> NamedProject | None:
        """The project of that name, with the role that the person has there; None for none."""
        ...


@dataclass(slots=True)
class _Remembered:
    until: datetime
    principal: Principal
    used: bool = False
    """Since it was looked up."""


class KeyRing:
    """Knows the owners of keys, and remembers each for a second, so that a revoked key ends.

    Many keys in use are looked up some times a second, all in one statement.
    """

    def __init__(self, known: KnownKeys, clock: Clock) -> None:
        self._known = known
        self._clock = clock
        # Those that are forgotten first come first.
        self._remembered: dict[str, _Remembered] = {}
        self._looking: dict[str, asyncio.Future[dict[str, Principal]]] = {}

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
        kept = self._remembered.get(key_hash)
        # A clock that was set back must not make a revoked key good until it has caught up.
        if kept is not None and now < kept.until <= now + _REMEMBERED_FOR:
            kept.used = True
            return kept.principal
        self._remembered.pop(key_hash, None)
        return (await self._look_up(key_hash, now)).get(key_hash)

    async def _look_up(self, key_hash: str, now: datetime) -> Mapping[str, Principal]:
        """Requests that come together with one key ask the database one time."""
        looking = self._looking.get(key_hash)
        if looking is None:
            looking = asyncio.ensure_future(
                self._look_up_together([key_hash, *self._soon_forgotten(now)], now)
            )
            self._looking[key_hash] = looking
            looking.add_done_callback(lambda _: self._looking.pop(key_hash, None))
        # Who leaves must not take the answer away from the others.
        return await asyncio.shield(looking)

    async def _look_up_together(self, hashes: list[str], now: datetime) -> dict[str, Principal]:
        owners = await self._known.key_owners(hashes, now)
        until = now + _REMEMBERED_FOR
        for key_hash in hashes:
            self._remembered.pop(key_hash, None)
            if key_hash in owners:
                self._remembered[key_hash] = _Remembered(until, owners[key_hash])
        while len(self._remembered) > _REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        return owners

    def _soon_forgotten(self, now: datetime) -> Iterator[str]:
        for key_hash, kept in self._remembered.items():
            if kept.until > now + _AHEAD:
                return
            if kept.used:
                # Asked for once: who uses it meanwhile has the former answer.
                kept.used = False
                yield key_hash


def _opens(principal: Principal, known: NamedProject) -> bool:
    project = Resource(known.id, member_role=known.member_role)
    return may(principal, Action.OPEN_PROJECT, project) is AccessDecision.ALLOWED


def _unauthorized(detail: str) -> HTTPException:
    return HTTPException(401, detail, headers=_CHALLENGE)
