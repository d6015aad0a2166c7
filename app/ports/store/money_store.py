"""The part of the unit of work that holds money: pools with their prices, budgets, the ledger.

Lives here: what the rules of money may ask of the store. Not here: the transaction itself
(`unit_of_work`), reports for people (`read_models`), or the rules (`billing.billing`, `ledger`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.domain.lifecycle.entities import Budget
from app.domain.market.offer import Offer, Pool
from app.ports.price_source import PriceChange


@dataclass(frozen=True, order=True)
class Payer:
    """A job that pays for a machine, with the budgets that its money counts against."""

    project_id: UUID
    budget_id: UUID
    job_id: UUID


@dataclass(frozen=True)
class Billing:
    """When a machine's bill is due: all in seconds.

    accrual_seconds: a running machine is booked this often. settle_seconds: how long after its
    end the cloud may still correct what it said.
    """

    accrual_seconds: float
    settle_seconds: float


class Offers(Protocol):
    """Pools, their present prices and cool-downs, and the price history."""

    def all(self) -> list[tuple[Offer, datetime | None]]:
        """Every offer with the end of its cool-down, by pool."""
        ...

    def get(self, pool: Pool) -> Offer | None:
        """The offer of a pool."""
        ...

    def of(self, pools: Sequence[Pool]) -> list[tuple[Offer, datetime | None]]:
        """The offers of these pools with the ends of their cool-downs, by pool."""
        ...

    def record(
        self, offers: Iterable[Offer], changes: Iterable[PriceChange], now: datetime
    ) -> None:
        """Store quotes and price changes; what is known already stays."""
        ...

    def learn(self, provider: str, factors: Mapping[Pool, float]) -> None:
        """Remember how often machines are taken in a provider's pools, against the usual.

        Pools that are left out count as unknown again. Only what has changed is written.
        """
        ...

    def last_quoted_at(self, provider: str, region: str | None = None) -> datetime | None:
        """When the provider's prices, or those of one of its regions, were last stored."""
        ...

    def cool_down(self, pool: Pool, until: datetime, reason: str) -> None:
        """Leave a pool alone until then."""
        ...

    def cool_down_all(self, rests: Mapping[Pool, tuple[datetime, str]]) -> None:
        """Leave pools alone (until, reason); those that rest longer already go on doing so."""
        ...

    def price_points(
        self, pool: Pool, since: datetime | None = None
    ) -> list[tuple[datetime, int, str, datetime]]:
        """(at, micro-USD per hour, source, captured_at) by time, from what held at `since` on."""
        ...


class Money(Protocol):
    """Budgets, ledger and rollup."""

    def lock_budgets(self, project_id: UUID, budget_id: UUID) -> list[Budget]:
        """The project's own budget, if any, and the job's, locked in that order."""
        ...

    def budgets_in_passing(
        self, project_id: UUID, budget_id: UUID
    ) -> tuple[list[Budget], list[Budget]]:
        """The same without waiting, for who holds a job already; and those of them that are locked.

        What another transaction has is to be read only.
        """
        ...

    def lock_reservations(self, project_id: UUID) -> list[Budget]:
        """Every budget of the project that has money reserved, its own first, locked in order."""
        ...

    def reserved_by_others(self, project_id: UUID, job_id: UUID) -> int:
        """What all other jobs of the project have reserved."""
        ...

    def payers(self, instance_id: UUID) -> list[Payer]:
        """The instance's job and every job it was assigned to, in the order of locking."""
        ...

    def booked(self, instance_id: UUID) -> dict[tuple[str, UUID | None, datetime], int]:
        """Sum of entries per (component, assignment, usage hour) of an instance."""
        ...

    def append_entries(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append ledger entries and add them to the rollup in the same transaction."""
        ...

    def on_demand_comparison(self, job_id: UUID) -> int | None:
        """What the job's useful work would have cost on demand, as its cost statement says."""
        ...
