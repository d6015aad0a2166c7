"""The unit of work: one transaction in PostgreSQL, its records, its clock and its rings.

It is the only door to a transaction, with one repository per noun. Records that it hands out are
live: changing a field and leaving the block commits it. Lock order: budgets, then the job, then
everything that the job owns, which its lock covers, then the gate of launches. Not here: reports
for people (`reports`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

import psycopg
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DBAPIError

from app.ports.wakeups import Wakeups
from app.storage.access.identity_repository import IdentityRepository
from app.storage.access.invitation_repository import InvitationRepository
from app.storage.access.key_repository import KeyRepository
from app.storage.access.people_repository import PeopleRepository
from app.storage.access.rules_repository import RulesRepository
from app.storage.access.secret_repository import SecretRepository
from app.storage.audit.audit_repository import AuditRepository
from app.storage.instances.contact_statements import ContactStatements
from app.storage.instances.experience_statements import ExperienceStatements
from app.storage.instances.instance_repository import InstanceRepository
from app.storage.instances.launch_gate import LaunchGate
from app.storage.instances.launch_repository import LaunchRepository
from app.storage.instances.operations_repository import OperationsRepository
from app.storage.instances.sweep_repository import SweepRepository
from app.storage.jobs.attempt_repository import AttemptRepository
from app.storage.jobs.job_repository import JobRepository
from app.storage.jobs.kept_estimate_rows import KeptEstimateRows
from app.storage.jobs.log_repository import LogRepository
from app.storage.jobs.placement_decision_rows import PlacementDecisionRows
from app.storage.market.offer_repository import OfferRepository
from app.storage.market.pool_past_repository import PoolPastRepository
from app.storage.market.traffic_repository import TrafficRepository
from app.storage.money.ledger_audit_store import LedgerAuditStore
from app.storage.money.money_repository import MoneyRepository
from app.storage.money.monthly_budgets import MonthlyBudgets
from app.storage.notifications.channel_repository import ChannelRepository
from app.storage.notifications.delivery_repository import DeliveryRepository
from app.storage.notifications.outbox import NotificationOutbox
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession
from app.storage.session.storage_errors import DatabaseFull, RowsLocked

# The second one: the engine lets nothing be written while the disk is about to be full.
_FULL = (psycopg.errors.DiskFull, psycopg.errors.ReadOnlySqlTransaction)
_CLOCK = Ready(select(func.clock_timestamp()), frozenset())


class UnitOfWork:
    """One transaction. `now` is read once, at first use: take locks before."""

    def __init__(self, session: RecordSession, read_clock: Callable[[], datetime] | None) -> None:
        self.session = session
        self.jobs = JobRepository(session, self._look_at_clock)
        self.attempts = AttemptRepository(session)
        self.launches = LaunchRepository(session)
        self.launch_gate = LaunchGate(session)
        self.instances = InstanceRepository(session)
        self.contacts = ContactStatements(session, read_clock)
        self.logs = LogRepository(session)
        self.offers = OfferRepository(session)
        self.money = MoneyRepository(session)
        self.monthly_budgets = MonthlyBudgets(session)
        self.books = LedgerAuditStore(session)
        self.operations = OperationsRepository(session)
        self.sweeps = SweepRepository(session)
        self.keys = KeyRepository(session)
        self.rules = RulesRepository(session)
        self.secrets = SecretRepository(session)
        self.audit = AuditRepository(session)
        self.people = PeopleRepository(session)
        self.identities = IdentityRepository(session)
        self.invitations = InvitationRepository(session)
        self.traffic = TrafficRepository(session)
        self.pool_pasts = PoolPastRepository(session)
        self.pool_experience = ExperienceStatements(session)
        self.kept_estimates = KeptEstimateRows(session)
        self.decisions = PlacementDecisionRows(session)
        self.channels = ChannelRepository(session)
        self.deliveries = DeliveryRepository(session)
        self.outbox = NotificationOutbox(session)
        self.notified: dict[str, None] = {}
        self.is_discarded = False
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

    def discard(self) -> None:
        """Let nothing of this transaction stay: it rolls back at its end, and rings nobody."""
        self.is_discarded = True

    def notify_after_commit(self, *controllers: str) -> None:
        """Ring controllers once the transaction is durable."""
        self.notified.update(dict.fromkeys(controllers))


UnitOfWorkFactory = Callable[[], AbstractContextManager[UnitOfWork]]
"""Opens a transaction that commits at the end of the block, or rolls back on an exception."""


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

    def __call__(self) -> AbstractContextManager[UnitOfWork]:
        """A transaction that commits at the end of the block, or rolls back.

        Raises DatabaseFull where the disk has no room for it, and RowsLocked where another
        transaction held its rows for longer than the lock timeout.
        """
        return self._open()

    @contextmanager
    def _open(self) -> Iterator[UnitOfWork]:
        session = RecordSession(self._engine)
        try:
            work = UnitOfWork(session, self._read_clock)
            yield work
            if not work.is_discarded:
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
        if work.notified and not work.is_discarded:
            self._wakeups.notify(work.notified)
