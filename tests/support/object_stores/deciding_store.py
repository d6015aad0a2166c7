"""A store on loopback that decides who may do what where, and the places of two jobs in it.

Not here: the fakes that decide (`scoped_s3`, `scoped_gcs`), or the tables of rights
(tests/integration/object_stores).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import obstore

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.job_data_role import JobDataRole
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.client.job_data_token import JobDataToken
from app.domain.market.storage_places import StoragePlace, job_places
from app.ports.storage_grants import StorageGrantIssuer
from tests.support.aws.aws_parts import shared_session
from tests.support.object_stores.scoped_gcs import (
    CONTROL_TOKEN,
    DATA_ACCOUNT,
    MACHINE_TOKEN,
    ScopedGcs,
)
from tests.support.object_stores.scoped_s3 import CONTROL_KEY, DATA_ROLE, MACHINE_KEY, ScopedS3
from trainer.agent.checkpoints.storage_credentials import StorageAccess
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.protocol.storage_access import StorageGrant

JOB_A, JOB_B = UUID(int=0xA), UUID(int=0xB)
BUCKET = "lowtide-test"
ROOT = "lowtide"
PROJECT, OTHER = UUID(int=1), UUID(int=2)
PLACES = {
    "A's checkpoints": f"{ROOT}/checkpoints/{JOB_A}",
    "B's checkpoints": f"{ROOT}/checkpoints/{JOB_B}",
    "like A's checkpoints": f"{ROOT}/checkpoints/{JOB_A}0",
    "A's logs": f"{ROOT}/logs/{JOB_A}",
    "B's logs": f"{ROOT}/logs/{JOB_B}",
    "own workdirs": f"{ROOT}/workdirs/{PROJECT}",
    "other workdirs": f"{ROOT}/workdirs/{OTHER}",
    "agents' wheels": f"{ROOT}/agents",
    "own data": f"{ROOT}/data/{PROJECT}",
    "other data": f"{ROOT}/data/{OTHER}",
    "A's input": "corpus/a",
    "like A's input": "corpus/ab",
    "B's input": "corpus/b",
    "A's outputs": f"results/{JOB_A}",
    "B's outputs": f"results/{JOB_B}",
    "outputs of all": "results",
    "the store": ROOT,
    "the bucket": "",
}


def places_of(scheme: str, job: UUID, name: str) -> tuple[StoragePlace, ...]:
    at = f"{scheme}://{BUCKET}"
    return job_places(
        str(job),
        f"{at}/{ROOT}/checkpoints/{job}",
        {"/data": f"{at}/corpus/{name}"},
        {"out": f"{at}/results"},
    )


class DecidingStore:
    """A store that decides, and who may ask it."""

    def __init__(self, scheme: str, fake: ScopedS3 | ScopedGcs) -> None:
        self.scheme, self.fake = scheme, fake

    @property
    def issuer(self) -> StorageGrantIssuer:
        if isinstance(self.fake, ScopedS3):
            settings = AwsSettings(regions=("us-east-1",), endpoint_url=self.fake.url)
            return JobDataRole(DATA_ROLE, settings, AwsClients(settings, shared_session()))
        endpoint = self.fake.url
        return JobDataToken(DATA_ACCOUNT, GcpSettings("p", ("us-central1",), endpoint=endpoint))

    def given(self, who: str) -> dict[str, str]:
        """The credential's values."""
        s3 = self.scheme == "s3"
        if who in ("machine role", "control plane"):
            own = who == "control plane"
            if s3:
                key = CONTROL_KEY if own else MACHINE_KEY
                return {"access_key_id": key, "secret_access_key": "x"}
            return {"token": CONTROL_TOKEN if own else MACHINE_TOKEN}
        if who == "expired":
            self.fake.lifetime = 0.0
        job, name = (JOB_B, "b") if who == "B" else (JOB_A, "a")
        issued = self.issuer.issue(places_of(self.scheme, job, name), job)
        self.fake.lifetime = None
        return dict(issued.values)

    def client(self, values: dict[str, str], folder: str = "") -> Any:
        later = {**values, "expires_at": None}
        # Of the kind that the store of this scheme asks.
        provider: dict[str, Any] = {"credential_provider": lambda: later}
        uri = f"{self.scheme}://{BUCKET}/{folder}".rstrip("/")
        return obstore.store.from_url(uri, client_options={"allow_http": True}, **provider)


def opened(cloud: DecidingStore, folder: str, access: StorageAccess) -> StorageRoot:
    return StorageRoot(f"{cloud.scheme}://{BUCKET}/{folder}", access=access)


def access_of(cloud: DecidingStore, who: str = "A", seconds: float = 3_600.0) -> StorageAccess:
    access = StorageAccess([cloud.scheme])
    access.take([StorageGrant(cloud.scheme, f"s.{who}", seconds, cloud.given(who))], access._now())
    return access
