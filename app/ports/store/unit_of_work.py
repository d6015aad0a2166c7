"""The unit of work port: the only door to a transaction, with one repository per noun.

Lives here: what the rules may ask of the store. Records handed out are live: changing a field and
leaving the block commits it. Lock order: budget, then job, then everything the job owns (which its
lock covers). Not here: reports for people (`read_models`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from app.ports.store.books import Books
from app.ports.store.contact_store import Contacts
from app.ports.store.instance_repositories import Hearing, Instances, Operations
from app.ports.store.job_repositories import Attempts, EventRecord, Jobs, Launches, PhaseRecord
from app.ports.store.kept_estimates import KeptEstimates
from app.ports.store.log_index import LogIndex
from app.ports.store.money_store import Billing, Money, Offers, Payer
from app.ports.store.placement_decisions import PlacementDecisions
from app.ports.store.pool_experience import PoolExperience
from app.ports.store.pool_past import PoolPasts
from app.ports.store.sweep_store import Sweeps
from app.ports.store.traffic import Traffic


class DatabaseFull(Exception):
    """The database's disk has no room: the transaction is undone, and reads go on."""


class RowsLocked(Exception):
    """Another transaction held the rows for too long: this one is undone, and may be tried again.

    To be expected where many change one job at once; no sign that anything is wrong.
    """


class UnitOfWork(Protocol):
    """One transaction. `now` is read once, at first use: take locks before."""

    jobs: Jobs
    attempts: Attempts
    launches: Launches
    instances: Instances
    contacts: Contacts
    logs: LogIndex
    offers: Offers
    money: Money
    books: Books
    operations: Operations
    sweeps: Sweeps
    traffic: Traffic
    pool_pasts: PoolPasts
    pool_experience: PoolExperience
    kept_estimates: KeptEstimates
    decisions: PlacementDecisions

    @property
    def now(self) -> datetime:
        """The instant of this transaction, aware UTC."""
        ...

    def flush(self) -> None:
        """Send pending changes to the store, so that its constraints speak now."""
        ...

    def ring_after_commit(self, *controllers: str) -> None:
        """Ring controllers once the transaction is durable."""
        ...


UnitOfWorkFactory = Callable[[], AbstractContextManager[UnitOfWork]]
"""Opens a transaction that commits at the end of the block, or rolls back on an exception."""
__all__ = [
    "Attempts",
    "Billing",
    "Books",
    "DatabaseFull",
    "EventRecord",
    "Hearing",
    "Instances",
    "Jobs",
    "Launches",
    "Money",
    "Offers",
    "Operations",
    "Payer",
    "PhaseRecord",
    "PoolPasts",
    "RowsLocked",
    "Sweeps",
    "Traffic",
    "UnitOfWork",
    "UnitOfWorkFactory",
]
