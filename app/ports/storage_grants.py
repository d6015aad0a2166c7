"""What gives machines credentials for their job's folders in the object stores of one service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from app.domain.market.storage_places import StoragePlace


class GrantRefused(Exception):
    """No credential was issued; the message says why, for a person, and holds no secret."""


@dataclass(frozen=True)
class IssuedCredential:
    """A credential that lasts for so many seconds from the call's beginning."""

    values: Mapping[str, str] = field(repr=False)
    seconds: float


class StorageGrantIssuer(Protocol):
    """Of one cloud. Thread-safe; every call has a time limit."""

    @property
    def scope_by(self) -> str:
        """What limits all of its credentials: the role or account."""
        ...

    def issue(self, places: Sequence[StoragePlace], job_id: UUID) -> IssuedCredential:
        """A credential for these places alone. Raises GrantRefused."""
        ...
