"""The unit of work on PostgreSQL: one session, one transaction, its clock and its rings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from app.adapters.postgres import mapping as _mapping  # binds the records  # noqa: F401
from app.adapters.postgres.attempt_repository import AttemptRepository
from app.adapters.postgres.contact_statements import ContactStatements
from app.adapters.postgres.instance_repository import InstanceRepository
from app.adapters.postgres.job_repository import JobRepository
from app.adapters.postgres.launch_repository import LaunchRepository
from app.adapters.postgres.log_repository import LogRepository
from app.adapters.postgres.money_repository import MoneyRepository
from app.adapters.postgres.offer_repository import OfferRepository
from app.adapters.postgres.operations_repository import OperationsRepository
from app.ports.contact_store import Contacts
from app.ports.instance_repositories import Instances, Operations
from app.ports.job_repositories import Attempts, Jobs, Launches
from app.ports.log_index import LogIndex
from app.ports.money_store import Money, Offers
from app.ports.wakeups import Wakeups

_CLOCK = text("SELECT clock_timestamp()")


class PostgresUnitOfWork:
    """Implements `app.ports.unit_of_work.UnitOfWork`."""

    def __init__(self, session: Session, read_clock: Callable[[], datetime] | None) -> None:
        self.session = session
        jobs = JobRepository(session)
        self.jobs: Jobs = jobs
        self._write_events = jobs.write_events
        self.attempts: Attempts = AttemptRepository(session)
        self.launches: Launches = LaunchRepository(session)
        self.instances: Instances = InstanceRepository(session)
        self.contacts: Contacts = ContactStatements(session)
        self.logs: LogIndex = LogRepository(session)
        self.offers: Offers = OfferRepository(session)
        self.money: Money = MoneyRepository(session)
        self.operations: Operations = OperationsRepository(session)
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
                self._now = self.session.execute(_CLOCK).scalar_one()
        return self._now

    def flush(self) -> None:
        """Send pending changes to the store, so that its constraints speak now."""
        self.session.flush()
        self._write_events()

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
    ) -> None:
        self._engine = engine
        self._wakeups = wakeups
        self._read_clock = read_clock

    def __call__(self) -> AbstractContextManager[PostgresUnitOfWork]:
        """A transaction that commits at the end of the block, or rolls back."""
        return self._open()

    @contextmanager
    def _open(self) -> Iterator[PostgresUnitOfWork]:
        with Session(self._engine, expire_on_commit=False) as session, session.begin():
            work = PostgresUnitOfWork(session, self._read_clock)
            yield work
            work.flush()
        if work.rings:
            self._wakeups.ring(work.rings)
