"""What gives a machine the right to read some secrets of a cloud's own service, for minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from app.domain.deployment.cloud_secrets import CloudSecretName
from app.ports.storage_grants import IssuedCredential, StorageGrantIssuer

LIFETIME_SECONDS = 900
"""The least that AWS gives (STS API reference, AssumeRole, `DurationSeconds`)."""


class SecretGrantIssuer(Protocol):
    """Of one service. Thread-safe; every call has a time limit."""

    def place_of(self, named: CloudSecretName) -> str:
        """The region or project that the secret is in."""
        ...

    def endpoint(self, place: str) -> str:
        """Where machines ask for secrets of a place."""
        ...

    def issue(
        self, named: Sequence[CloudSecretName], account: str | None, job_id: UUID
    ) -> IssuedCredential:
        """A credential that opens these secrets.

        account: of the project, where the cloud has one for each. Raises GrantRefused.
        """
        ...


@dataclass(frozen=True)
class GrantIssuers:
    """All that a deployment issues machines' credentials with, by store and by service."""

    storage: dict[str, StorageGrantIssuer]
    secrets: dict[str, SecretGrantIssuer]
