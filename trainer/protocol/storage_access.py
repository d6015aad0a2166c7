"""Credentials for object stores, as they go from the control plane to an agent and nowhere else.

Lives here: what an agent says that it holds, what it is given, and how long before its end a
credential is renewed. Not here: their issue (`app.api.agents.grant_cache`) or use
(`trainer.agent.checkpoints.storage_credentials`).

Only durations cross the wire: a machine's clock may be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DRAIN_RESERVE_SECONDS = 180.0
"""Before the end of its lease an agent that hears nothing begins to save."""
RENEWAL_MARGIN_SECONDS = 900.0
"""How long the issuer of credentials may be away without a machine ever holding too little."""
LIFETIME_SECONDS = 3_600.0
"""The longest life that both clouds give: of chained roles and of impersonated accounts."""

S3, GOOGLE = "s3", "gs"


def renewed_below_seconds(lease_seconds: float) -> float:
    """What must be left of a credential at each answered report, so that a machine which from then
    on hears nothing can save until the end of its lease.
    """
    return lease_seconds + DRAIN_RESERVE_SECONDS + RENEWAL_MARGIN_SECONDS


@dataclass(frozen=True)
class StorageHeld:
    """What an agent holds for one service, `s3` or `gs`.

    grant: the `grant` of what it holds, "" for nothing. refused: the store did not accept it.
    """

    service: str
    grant: str = ""
    seconds_left: float = 0.0
    refused: bool = False


@dataclass(frozen=True)
class StorageGrant:
    """A credential. grant: names it and its scope, and opens nothing. seconds: left, from receipt.

    values: of S3 `access_key_id`, `secret_access_key` and `token`; of Google `token`.
    """

    service: str
    grant: str
    seconds: float
    values: dict[str, str] = field(repr=False)
