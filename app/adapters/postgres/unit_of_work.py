"""The unit of work on PostgreSQL: one transaction, its records, its clock and its rings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

import psycopg
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DBAPIError

from app.adapters.postgres.instances.contact_statements import ContactStatements
from app.adapters.postgres.instances.experience_statements import ExperienceStatements
from app.adapters.postgres.instances.instance_repository import InstanceRepository
from app.adapters.postgres.instances.launch_repository import LaunchRepository
from app.adapters.postgres.instances.operations_repository import OperationsRepository
from app.adapters.postgres.instances.sweep_repository import SweepRepository
from app.adapters.postgres.jobs.attempt_repository import AttemptRepository
from app.adapters.postgres.jobs.job_repository import JobRepository
from app.adapters.postgres.jobs.kept_estimate_rows import KeptEstimateRows
from app.adapters.postgres.jobs.log_repository import LogRepository
from app.adapters.postgres.jobs.placement_decision_rows import PlacementDecisionRows
from app.adapters.postgres.market.offer_repository import OfferRepository
from app.adapters.postgres.market.pool_past_repository import PoolPastRepository
from app.adapters.postgres.market.traffic_repository import TrafficRepository
from app.adapters.postgres.money.books_store import BooksStore
from app.adapters.postgres.money.money_repository import MoneyRepository
from app.adapters.postgres.session.ready_statement import Ready
from app.adapters.postgres.session.record_session import RecordSession
from app.ports.store.books import Books
from app.ports.store.contact_store import Contacts
from app.ports.store.instance_repositories import Instances, Operations
from app.ports.store.job_repositories import Attempts, Jobs, Launches
from app.ports.store.kept_estimates import KeptEstimates
from app.ports.store.log_index import LogIndex
from app.ports.store.money_store import Money, Offers
from app.ports.store.placement_decisions import PlacementDecisions
from app.ports.store.pool_experience import PoolExperience
from app.ports.store.pool_past import PoolPasts
from app.ports.store.sweep_store import Sweeps
from app.ports.store.traffic import Traffic
from app.ports.store.unit_of_work import DatabaseFull, RowsLocked
from app.ports.wakeups import Wakeups

# The second one: the engine lets nothing be written while the disk is about to be full.
_FULL = (psycopg.errors.DiskFull, psycopg.errors.ReadOnlySqlTransaction)
_CLOCK = Ready(select(func.clock_timestamp()), frozenset())


class PostgresUnitOfWork:
    """Implements `app.ports.store.unit_of_work.UnitOfWork`."""

    def __init__(self, session: RecordSession, read_clock: Callable[[], datetime] | None) -> None:
        self.session = session
        self.jobs: Jobs = JobRepository(session, self._look_at_clock)
        self.attempts: Attempts = AttemptRepository(session)
        self.launches: Launches = LaunchRepository(session)
        self.instances: Instances = InstanceRepository(session)
        self.contacts: Contacts = ContactStatements(session, read_clock)
        self.logs: LogIndex = LogRepository(session)
        self.offers: Offers = OfferRepository(session)
        self.money: Money = MoneyRepository(session)
        self.books: Books = BooksStore(session)
        self.operations: Operations = OperationsRepository(session)
        self.sweeps: Sweeps = SweepRepository(session)
        self.traffic: Traffic = TrafficRepository(session)
        self.pool_pasts: PoolPasts = PoolPastRepository(session)
        self.pool_experience: PoolExperience = ExperienceStatements(session)
        self.kept_estimates: KeptEstimates = KeptEstimateRows(session)
        self.decisions: PlacementDecisions = PlacementDecisionRows(session)
        self.rings: dict[str, None] = {}
        self._read_clock = read_clock
        self._now: datetime | None = None

    @property
    def now(self) -> datetime:
        """The instant of this transaction: the database's clock, or the simulator's."""
        if self._now is None:
            if self._read_clock is not None:
                self._now = self._read_clock()
            else:
                self._now = self.session.scalar(_CLOCK)
        assert self._now is not None
        return self._now

    def _look_at_clock(self, shown: datetime) -> None:
        """A lock's statement has read the database's clock, once it had the lock."""
        if self._now is None and self._read_clock is None:
            self._now = shown

    def flush(self) -> None:
        """Send pending changes to the store, so that its constraints speak now."""
        self.session.flush()

    def ring_after_commit(self, *controllers: str) -> None:
        """Ring controllers once the transaction is durable."""
        self.rings.update(dict.fromkeys(controllers))


class PostgresUnitOfWorkFactory:
    """Opens units of work on an engine; rings go out only after the commit."""

    def __init__(
        self,
        engine: Engine,
        wakeups: Wakeups,
        read_clock: Callable[[], datetime] | None = None,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        """before_commit: called where a process may die with its last writes unsent."""
        self._before_commit = before_commit
        self._engine = engine
        self._wakeups = wakeups
        self._read_clock = read_clock

    def __call__(self) -> AbstractContextManager[PostgresUnitOfWork]:
        """A transaction that commits at the end of the block, or rolls back.

        Raises DatabaseFull where the disk has no room for it, and RowsLocked where another
        transaction held its rows for longer than the lock timeout.
        """
        return self._open()

    @contextmanager
    def _open(self) -> Iterator[PostgresUnitOfWork]:
        session = RecordSession(self._engine)
        try:
            work = PostgresUnitOfWork(session, self._read_clock)
            yield work
            session.commit(self._before_commit)
        except (DBAPIError, *_FULL, psycopg.errors.LockNotAvailable) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if isinstance(cause, _FULL):
                raise DatabaseFull(str(cause).split("\n", 1)[0]) from error
            if isinstance(cause, psycopg.errors.LockNotAvailable):
                raise RowsLocked("its rows were locked by another transaction") from error
            raise
        finally:
            session.close()
        if work.rings:
            self._wakeups.ring(work.rings)
