"""Gives the machines of a job credentials for its folders, with the answers to their reports.

A machine gets them while it works for a live attempt, when it holds none or what it holds would not
outlive the lease that the answer renews. They are kept for the job's other machines in this
process's memory, and nowhere else. An issuer that fails never fails a report: machines go on with
what they hold, and a job's history says so when it lasts. Not here: the credentials' limits
(`storage_places`, each cloud's issuer).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from cachetools import LRUCache

from app.domain.market.storage_places import StoragePlace, scope_digest
from app.domain.spec.job_spec import parse_spec
from app.orchestration.agents.record_storage_access import record_storage_access
from app.orchestration.agents.register_agent import storage_places
from app.orchestration.directives.read_steady_report import TEXT_MAX
from app.orchestration.frame.runtime import Runtime
from app.ports.storage_grants import GrantRefused, IssuedCredential, StorageGrantIssuer
from trainer.protocol.directive import Directive, DirectiveKind
from trainer.protocol.storage_access import StorageGrant, StorageHeld, renewed_below_seconds

ANSWER_SECONDS_MAX = 2.0
"""How long a report's answer waits for an issuer; what comes later goes with the next one."""
JOBS_KEPT_MAX = 10_000
FIRST_PAUSE_SECONDS = 5.0
PAUSE_SECONDS_MAX = 60.0
TOLD_AFTER_SECONDS = 120.0
REFUSED_AGAIN_SECONDS = 30.0
"""A credential is not replaced for a store's refusal sooner than this after its issue."""
_THREADS = 4
_WORKING = (DirectiveKind.PREPARE, DirectiveKind.TRAIN, DirectiveKind.DRAIN)

log = logging.getLogger(__name__)
Key = tuple[UUID, str]


@dataclass(slots=True)
class _Kept:
    """Of one job and service. Instants are seconds of the loop's clock.

    failing_since: of the issuer, None while it answers. told: the history has it.
    """

    grant: str = ""
    credential: IssuedCredential | None = field(default=None, repr=False)
    issued: float = 0.0
    task: asyncio.Task[None] | None = None
    failing_since: float | None = None
    retry: float = 0.0
    failures: int = 0
    told: bool = False

    def left(self, now: float) -> float:
        """Seconds of what is kept."""
        return 0.0 if self.credential is None else self.issued + self.credential.seconds - now


class StorageGrants:
    """All methods belong to the event loop's thread."""

    def __init__(self, runtime: Runtime, issuers: Mapping[str, StorageGrantIssuer]) -> None:
        self._runtime = runtime
        self._issuers = issuers
        self._below = renewed_below_seconds(runtime.limits.agent_lease_seconds)
        self._kept = LRUCache[Key, _Kept](JOBS_KEPT_MAX)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="storage-grants")
        self._loop = asyncio.get_running_loop()

    async def for_report(
        self, job_id: UUID, directive: Directive, held: Sequence[StorageHeld] | None
    ) -> tuple[StorageGrant, ...]:
        """What goes with the answer to a report: nothing, in nearly all of them."""
        if not held or not self._issuers or directive.kind not in _WORKING:
            return ()
        asked = [one for one in held if one.service in self._issuers and self._needs(job_id, one)]
        if not asked:
            return ()
        now = self._loop.time()
        tasks = [task for one in asked if (task := self._issue(job_id, one, now)) is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=ANSWER_SECONDS_MAX)
        found = (self._answer(job_id, one) for one in asked)
        return tuple(one for one in found if one is not None)

    def close(self) -> None:
        """Give up what is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _needs(self, job_id: UUID, held: StorageHeld) -> bool:
        kept = self._kept.get((job_id, held.service))
        known = kept is not None and kept.credential is not None
        changed = known and kept is not None and _scope(kept.grant) != _scope(held.grant)
        return changed or held.refused or held.seconds_left < self._below

    def _issue(self, job_id: UUID, held: StorageHeld, now: float) -> asyncio.Task[None] | None:
        """What is under way for the job, or begins now; None where what is kept will do."""
        key = (job_id, held.service)
        kept = self._kept.setdefault(key, _Kept())
        if kept.task is not None:
            return kept.task
        unwanted = held.refused and held.grant == kept.grant
        fresh = kept.left(now) >= self._below
        if (fresh and not (unwanted and now > kept.issued + REFUSED_AGAIN_SECONDS)) or (
            now < kept.retry
        ):
            return None
        kept.task = self._loop.create_task(self._renew(job_id, held.service, kept))
        return kept.task

    async def _renew(self, job_id: UUID, service: str, kept: _Kept) -> None:
        began = self._loop.time()
        try:
            scope, issued = await self._loop.run_in_executor(
                self._threads, self._call, job_id, service
            )
        except Exception as error:
            # Whatever it is, reports are answered.
            known = isinstance(error, GrantRefused)
            said = str(error) if known else f"it could not be asked ({type(error).__name__})"
            told = "credentials for the %s store of job %s were not issued: %s"
            log.warning(told, service, job_id, said, exc_info=None if known else error)
            self._failed(job_id, kept, said)
        else:
            name = f"{scope}.{self._runtime.entropy.new_id()}"
            kept.grant, kept.credential, kept.issued = name, issued, began
            if kept.told:
                self._tell(job_id, None)
            kept.failing_since, kept.failures, kept.told, kept.retry = None, 0, False, 0.0
        finally:
            kept.task = None

    def _failed(self, job_id: UUID, kept: _Kept, said: str) -> None:
        now = self._loop.time()
        kept.failures += 1
        pause = FIRST_PAUSE_SECONDS * 2.0 ** min(kept.failures - 1, 8)
        kept.retry = now + min(pause, PAUSE_SECONDS_MAX)
        if kept.failing_since is None:
            kept.failing_since = now
        if not kept.told and now - kept.failing_since >= TOLD_AFTER_SECONDS:
            kept.told = True
            self._tell(job_id, said)

    def _tell(self, job_id: UUID, said: str | None) -> None:
        def write() -> None:
            with suppress(Exception), self._runtime.begin() as uow:
                record_storage_access(uow, self._runtime, job_id, said)

        with suppress(RuntimeError):  # it is being closed
            self._threads.submit(write)

    def _call(self, job_id: UUID, service: str) -> tuple[str, IssuedCredential]:
        """In a thread; no transaction is open while the issuer is asked."""
        with self._runtime.begin() as uow:
            job = uow.jobs.get(job_id)
            if job is None:
                raise GrantRefused("there is no such job")
            places = storage_places(job, parse_spec(job.spec), self._runtime)
        issuer, wanted = self._issuers[service], _of(service, places)
        return scope_digest(wanted, issuer.scope_by), issuer.issue(wanted, job_id)

    def _answer(self, job_id: UUID, held: StorageHeld) -> StorageGrant | None:
        """What is kept, where it is better than what the machine holds."""
        kept = self._kept.get((job_id, held.service))
        if kept is None or kept.credential is None:
            return None
        left = kept.left(self._loop.time())
        if kept.grant == held.grant or left <= 0:
            return None
        worse = left <= held.seconds_left and not held.refused
        if worse and _scope(kept.grant) == _scope(held.grant):
            return None
        return StorageGrant(held.service, kept.grant, left, dict(kept.credential.values))


def read_held(document: Any) -> tuple[StorageHeld, ...] | None:
    """What a report says that is answered from memory; None where it says nothing, or nothing that
    can be read: the full way says what is wrong with it.
    """
    told = document.get("storage")
    if type(told) is not list or len(told) > 2:
        return None
    found = []
    for one in told:
        if type(one) is not dict:
            return None
        held = one.get("service"), one.get("grant"), one.get("seconds_left"), one.get("refused")
        service, grant, left, refused = held
        if type(service) is not str or type(grant) is not str or type(refused) is not bool:
            return None
        if not isinstance(left, int | float) or max(len(service), len(grant)) > TEXT_MAX:
            return None
        found.append(StorageHeld(service, grant, float(left), refused))
    return tuple(found)


def _of(service: str, places: Sequence[StoragePlace]) -> tuple[StoragePlace, ...]:
    return tuple(one for one in places if one.service == service)


def _scope(grant: str) -> str:
    return grant.partition(".")[0]
