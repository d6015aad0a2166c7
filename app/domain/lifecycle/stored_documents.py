"""The JSON columns of jobs, launches, members and machines, key by key.

Here: shapes with their units; rows of earlier releases have them too. Not here: the rows
(`entities`), or who reads and writes a shape, which each of them names.
"""

from __future__ import annotations

from typing import TypedDict


class SpecSourcesDocument(TypedDict):
    """Which rules of its project a job's spec was resolved with. Written by `submit_job`.

    rules_version: their number. fields: by dotted field that its author left out, a
    `projects.resolve_spec.SpecSource`.
    """

    rules_version: int
    fields: dict[str, str]


class BidDocument(TypedDict):
    """One pool that a launch may be made in. Written by `order_instances`.

    pool: its key. Prices in micro-USD per machine and hour, without attachments;
    max_price_microusd_per_hour: what the cloud may charge at most, None for on-demand.
    """

    pool: str
    price_microusd_per_hour: int
    max_price_microusd_per_hour: int | None


class EndErrorDocument(TypedDict, total=False):
    """What a member says of the error that ended it; type: its class, or an agent's own word."""

    type: str | None
    message: str
    rank: int | None
    out_of_memory: bool
    peer_communication: bool


class EndDocument(TypedDict, total=False):
    """How a member's trainer ended. Written by `apply_facts`, read by `advance_attempt`.

    step: the last one that it finished. failed_at: ISO 8601. reason: an `EndReason`, where the end
    says one itself.
    """

    step: int | None
    error: EndErrorDocument
    failed_at: str
    reason: str


class RatingDocument(TypedDict):
    """What a machine's last bill was computed from; see `billing.rating_basis.RatingBasis`.

    Instants in ISO 8601. Digests: 32 hex digits.
    """

    until_at: str
    run_from_at: str | None
    run_to_at: str | None
    waived: bool
    minimum_applied: bool
    price_digest: str
    assignments_digest: str
    transfers_digest: str
