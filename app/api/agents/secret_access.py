"""What opens the secrets of clouds that a machine may read: issued once it has asked, for minutes.

The values never pass here. Machines of one gang ask at about the same time for the same, so what
was issued for one is given to the others of its job for two minutes, from this process's memory.
Not here: who may ask (`app.orchestration.secrets.deliver_secrets`), or each cloud's issuer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final
from uuid import UUID

from cachetools import LRUCache

from app.domain.deployment.cloud_secrets import CloudSecretName
from app.orchestration.secrets.deliver_secrets import AskedSecrets
from app.ports.secret_grants import SecretGrantIssuer
from app.ports.storage_grants import GrantRefused, IssuedCredential
from trainer.protocol.run_config import CloudSecrets, SecretDelivery

ANSWER_SECONDS_MAX: Final = 8.0
"""Less than an agent waits for an answer."""
GIVEN_AGAIN_SECONDS: Final = 120.0
"""A machine then still has three minutes of Google's, the shorter one, to read all its secrets."""
_KEPT_MAX: Final = 1_000
_THREADS: Final = 4

log = logging.getLogger(__name__)


class AccessNotIssued(Exception):
    """No credential came, or none in time; the text says why, for a person, and no secret."""


@dataclass(frozen=True)
class _Wanted:
    """One credential: of a job, for a service, and exactly these secrets."""

    job_id: UUID
    service: str
    named: tuple[CloudSecretName, ...]
    account: str | None


@dataclass(frozen=True)
class _Issue:
    """One call, under way or done. since: its beginning, of the loop's clock."""

    task: asyncio.Task[IssuedCredential] = field(repr=False)
    since: float


class SecretAccess:
    """All methods belong to the event loop's thread."""

    def __init__(self, issuers: Mapping[str, SecretGrantIssuer]) -> None:
        self._issuers = issuers
        self._issues = LRUCache[_Wanted, _Issue](_KEPT_MAX)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="secret-access")
        self._loop = asyncio.get_running_loop()

    async def delivery(self, asked: AskedSecrets) -> SecretDelivery:
        """The answer for a machine. Raises AccessNotIssued."""
        found = await asyncio.gather(*(self._of_service(asked, one) for one in _services(asked)))
        cloud = tuple(one for of_service in found for one in of_service)
        return SecretDelivery(dict(asked.values), cloud)

    def close(self) -> None:
        """Give up what is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _of_service(self, asked: AskedSecrets, service: str) -> list[CloudSecrets]:
        issuer = self._issuers.get(service)
        if issuer is None:
            raise AccessNotIssued(
                f"This deployment gives machines no credentials for {service}: docs/secrets.md says"
                " what to set."
            )
        uses = {name: one for name, one in asked.cloud.items() if one.service == service}
        named = tuple(sorted(set(uses.values()), key=str))
        credential = await self._issued(_Wanted(asked.job_id, service, named, asked.account))
        return [
            CloudSecrets(service, place, issuer.endpoint(place), names, dict(credential.values))
            for place, names in _by_place(issuer, uses)
        ]

    async def _issued(self, wanted: _Wanted) -> IssuedCredential:
        now, kept = self._loop.time(), self._issues.get(wanted)
        if kept is None or now > kept.since + GIVEN_AGAIN_SECONDS:
            kept = _Issue(self._loop.create_task(self._call(wanted)), now)
            kept.task.add_done_callback(_retrieve)
            self._issues[wanted] = kept
        try:
            # It goes on for the machines that ask next.
            return await asyncio.wait_for(asyncio.shield(kept.task), ANSWER_SECONDS_MAX)
        except TimeoutError:
            raise AccessNotIssued(
                f"The cloud of {wanted.service} is slow to issue a credential; it may come yet."
            ) from None
        except GrantRefused as error:
            told = "what opens the secrets of %s for job %s was not issued: %s"
            log.warning(told, wanted.service, wanted.job_id, error)
            raise AccessNotIssued(
                f"No credential for {wanted.service} was issued: {error}."
            ) from error

    async def _call(self, wanted: _Wanted) -> IssuedCredential:
        issuer = self._issuers[wanted.service]
        try:
            return await self._loop.run_in_executor(
                self._threads, issuer.issue, wanted.named, wanted.account, wanted.job_id
            )
        except BaseException:
            self._issues.pop(wanted, None)  # whoever asks next has another try
            raise


def _retrieve(task: asyncio.Task[IssuedCredential]) -> None:
    """A failure that nobody waited for any more is no news: who asks next gets its own."""
    if not task.cancelled():
        task.exception()


def _services(asked: AskedSecrets) -> Sequence[str]:
    return sorted({one.service for one in asked.cloud.values()})


def _by_place(
    issuer: SecretGrantIssuer, uses: Mapping[str, CloudSecretName]
) -> Iterator[tuple[str, dict[str, str]]]:
    def place(item: tuple[str, CloudSecretName]) -> str:
        return issuer.place_of(item[1])

    ordered = sorted(uses.items(), key=lambda item: (place(item), item[0]))
    for where, items in groupby(ordered, place):
        yield where, {name: named.name for name, named in items}
