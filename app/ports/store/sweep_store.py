"""What the rules may ask of the store about sweeps: lists of regions, orders to them, findings.

Not here: the machines' own rows (`instance_repositories`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID


@dataclass(frozen=True)
class SweepOrders:
    """What is ordered of sweeps now.

    adopt_since_at, adopt_reason: machines that no row knows are kept, until a person confirms.
    asked_at: every region is to be listed anew. destroy_ordered_at: everything is to go.
    """

    adopt_since_at: datetime | None = None
    adopt_reason: str | None = None
    asked_at: datetime | None = None
    destroy_ordered_at: datetime | None = None

    @property
    def adopting(self) -> bool:
        """Whether unknown machines are kept; an order to destroy is stronger."""
        return self.adopt_since_at is not None and self.destroy_ordered_at is None


@dataclass(frozen=True)
class SeenRemain:
    """Something besides machines, as it was seen last.

    idle_since_at: nothing uses it since then, in all our looks; None while something does.
    """

    kind: str
    id: str
    note: str
    idle_since_at: datetime | None
    microusd_per_day: int | None


@dataclass(frozen=True)
class SweptRegion:
    """The last list of a region; `machines` counts those that had not ended.

    remains: what was there besides machines at `remains_at`; None before the first look.
    """

    provider: str
    region: str
    swept_at: datetime
    complete: bool
    machines: int
    remains: tuple[SeenRemain, ...] = ()
    remains_at: datetime | None = None


@dataclass(frozen=True)
class DeploymentEvent:
    """Something that happened to the deployment as a whole."""

    at: datetime
    kind: str
    message: str
    data: Mapping[str, Any]


class Sweeps(Protocol):
    """Sweeps, in the store."""

    def orders(self) -> SweepOrders:
        """What is ordered now."""
        ...

    def set_orders(self, **changes: datetime | str | None) -> None:
        """Change these fields of the orders and no other: people and sweeps order at once."""
        ...

    def record(
        self, provider: str, region: str, at: datetime, complete: bool, machines: int
    ) -> None:
        """Remember the last list of a region."""
        ...

    def record_remains(
        self, provider: str, region: str, at: datetime, remains: Sequence[SeenRemain]
    ) -> None:
        """Remember what is there besides machines, in a region that was listed before."""
        ...

    def regions(self) -> list[SweptRegion]:
        """The last list of every region that was ever listed, by provider and region."""
        ...

    def add_event(self, event_id: UUID, event: DeploymentEvent) -> None:
        """Append to the deployment's history."""
        ...

    def recent_events(self, limit: int) -> list[DeploymentEvent]:
        """The deployment's history, newest first."""
        ...

    def living(self) -> list[tuple[UUID, UUID | None]]:
        """(instance, job) of every row of a machine that may exist, by id; not locked."""
        ...

    def adopted(self) -> list[tuple[UUID, UUID | None]]:
        """Those of them that a sweep found and that no order has given back, by id."""
        ...

    def live_jobs(self) -> list[UUID]:
        """Every job that has not ended, by id; not locked."""
        ...

    def to_end(self) -> list[tuple[UUID | None, UUID | None]]:
        """(job, None) of jobs that nobody has cancelled or that have machines not released.

        And (None, instance) of such machines without a job; by id, not locked.
        """
        ...

    def skip_versions(self, floor: int) -> list[UUID]:
        """Let every live job count its changes on from `floor`; from 1,000,000 higher, or less
        near the end of its column, where it is there already. The jobs that had no room left."""
        ...
