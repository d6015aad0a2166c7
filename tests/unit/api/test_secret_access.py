"""What opens secrets of clouds is issued once for a gang, waited for briefly, and tried again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import pytest

from app.api.agents import secret_access
from app.api.agents.secret_access import AccessNotIssued, SecretAccess
from app.domain.deployment.cloud_secrets import CloudSecretName, read_cloud_name
from app.orchestration.secrets.deliver_secrets import AskedSecrets
from app.ports.storage_grants import GrantRefused, IssuedCredential
from trainer.protocol.run_config import AWS_SECRETS, GOOGLE_SECRETS, SecretDelivery

JOB, OTHER = UUID(int=1), UUID(int=2)


class CountingIssuer:
    """Counts what is issued. refusal: what it raises; open: it answers once this is set."""

    def __init__(self) -> None:
        self.issued: list[tuple[UUID, tuple[str, ...], str | None]] = []
        self.refusal: Exception | None = None
        self.open = threading.Event()
        self.open.set()

    def place_of(self, named: CloudSecretName) -> str:
        return named.place or "here"

    def endpoint(self, place: str) -> str:
        return f"https://{place}.example"

    def issue(
        self, named: Sequence[CloudSecretName], account: str | None, job_id: UUID
    ) -> IssuedCredential:
        self.issued.append((job_id, tuple(map(str, named)), account))
        assert self.open.wait(10.0)
        if self.refusal is not None:
            raise self.refusal
        return IssuedCredential({"token": f"token-{len(self.issued)}"}, 900.0)


def asked(job: UUID, **named: str) -> AskedSecrets:
    cloud = {name: read_cloud_name(text) for name, text in named.items()}
    return AskedSecrets(job, {"OWN": "value"}, cloud, "account")


@contextmanager
def opened(issuer: CountingIssuer) -> Iterator[SecretAccess]:
    access = SecretAccess({AWS_SECRETS: issuer, GOOGLE_SECRETS: issuer})
    try:
        yield access
    finally:
        access.close()


def test_machines_of_a_job_that_ask_at_once_share_one_credential() -> None:
    async def story() -> None:
        issuer = CountingIssuer()
        with opened(issuer) as access:
            one = asked(JOB, A="aws-sm:a", B="aws-sm:us-west-2:b", C="aws-sm:c")
            found = await asyncio.gather(*(access.delivery(one) for _ in range(8)))
            assert issuer.issued == [
                (JOB, ("aws-sm:a", "aws-sm:c", "aws-sm:us-west-2:b"), "account")
            ]
            assert all(each == found[0] for each in found)
            [here, west] = found[0].cloud
            assert (here.place, here.names) == ("here", {"A": "a", "C": "c"})
            assert (west.endpoint, west.names) == ("https://us-west-2.example", {"B": "b"})
            assert here.credential == west.credential == {"token": "token-1"}
            await access.delivery(asked(OTHER, A="aws-sm:a"))
            await access.delivery(asked(JOB, A="aws-sm:a"))
            assert len(issuer.issued) == 3, "another job, and other names, get their own"
            assert await access.delivery(asked(JOB)) == SecretDelivery({"OWN": "value"})

    asyncio.run(story())


def test_it_is_not_given_for_longer_than_a_machine_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_access, "GIVEN_AGAIN_SECONDS", -1.0)

    async def story() -> None:
        issuer = CountingIssuer()
        with opened(issuer) as access:
            for count in (1, 2):
                await access.delivery(asked(JOB, A="gcp-sm:a"))
                assert len(issuer.issued) == count

    asyncio.run(story())


def test_one_that_is_slow_is_not_waited_for_and_serves_who_asks_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(secret_access, "ANSWER_SECONDS_MAX", 0.05)

    async def story() -> None:
        issuer = CountingIssuer()
        issuer.open.clear()
        with opened(issuer) as access:
            one = asked(JOB, A="gcp-sm:a")
            with pytest.raises(AccessNotIssued, match="is slow to issue a credential"):
                await access.delivery(one)
            issuer.open.set()
            monkeypatch.setattr(secret_access, "ANSWER_SECONDS_MAX", 10.0)
            assert (await access.delivery(one)).cloud[0].credential == {"token": "token-1"}
            assert len(issuer.issued) == 1

    asyncio.run(story())


@pytest.mark.parametrize("failure", [GrantRefused("no such role"), RuntimeError("a bug")])
def test_a_failure_is_told_and_not_kept(failure: Exception) -> None:
    async def story() -> None:
        issuer = CountingIssuer()
        issuer.refusal = failure
        with opened(issuer) as access:
            one = asked(JOB, A="aws-sm:a")
            kind = AccessNotIssued if isinstance(failure, GrantRefused) else RuntimeError
            with pytest.raises(kind, match=str(failure)):
                await access.delivery(one)
            issuer.refusal = None
            assert (await access.delivery(one)).cloud
            assert len(issuer.issued) == 2

    asyncio.run(story())


def test_a_service_without_an_issuer_says_where_to_look() -> None:
    async def story() -> None:
        access = SecretAccess({})
        with pytest.raises(AccessNotIssued, match="gives machines no credentials for aws-sm"):
            await access.delivery(asked(JOB, A="aws-sm:a"))
        access.close()

    asyncio.run(story())
