"""What must hold in every simulated world, whatever goes wrong in it.

Touched jobs are checked after each event; everything is checked every so many events; and when
the world has come to rest, what must be true of a world at rest. Not here: the reading of
histories (`history_watch`) and of the checkpoint store (`lineage_watch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, text

from app.domain.lifecycle.job import ATTEMPT_JOB_STATES, LIVE_JOB_STATES
from app.orchestration.gang.reserve_budget import reserve_window
from app.simulation.engine.invariant_error import InvariantError
from app.simulation.engine.virtual_clock import MICROSECONDS
from app.simulation.simulated.cloud_invoice import invoice
from app.simulation.simulated.world import World
from app.simulation.watches.budget_watch import ASKING, BudgetWatch
from app.simulation.watches.history_watch import HistoryWatch
from app.simulation.watches.lineage_watch import LineageWatch
from app.storage.money.cost_verification import VerificationScope, verify
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession

EVENTS_BETWEEN_FULL_CHECKS = 200
_UNNOTICED_SECONDS = 120.0
_TIMER_LATE = timedelta(seconds=60)
_GIVEN_BACK_LATE = timedelta(seconds=600)
_MICROSECOND = timedelta(microseconds=1)

_JOB = Ready(
    text(
        "SELECT jobs.id, jobs.state, jobs.event_seq, jobs.next_fence, jobs.committed_step, "
        "jobs.claimable_at, jobs.wait_reason, "
        "greatest(jobs.node_count, max(attempts.node_count)) AS node_count, "
        "count(attempts.id) AS live, (array_agg(attempts.id))[1] AS attempt_id, "
        "(SELECT max(wanted) FROM (SELECT count(*) AS wanted FROM instances "
        " WHERE instances.job_id = jobs.id AND NOT suspect "
        # What was found while rows were missing is kept for a person to decide.
        " AND origin <> 'adopted' "
        " AND state IN ('requested', 'launching', 'launched', 'registered') "
        " GROUP BY market, coalesce(launch_id = jobs.moving_launch_id, false)"
        ") AS of_market) AS wanted, "
        "max(attempts.fence) AS fence FROM jobs LEFT JOIN attempts ON attempts.job_id = jobs.id "
        "AND attempts.state IN ('provisioning', 'preparing', 'running', 'draining', 'settling') "
        "WHERE jobs.id = :id GROUP BY jobs.id"
    )
)
_GAPS = text(
    "SELECT instance_id FROM ("
    " SELECT assignments.instance_id, from_at, to_at, launched_at, ended_at, "
    "  lag(to_at) OVER spans AS before_to, lead(from_at) OVER spans AS after_from, "
    "  row_number() OVER spans AS place "
    " FROM assignments JOIN instances ON instances.id = assignments.instance_id "
    " WINDOW spans AS (PARTITION BY assignments.instance_id ORDER BY from_at, assignments.id)"
    ") AS spans WHERE (place = 1 AND from_at <> launched_at) "
    "OR (place > 1 AND before_to IS DISTINCT FROM from_at) "
    "OR (after_from IS NULL AND to_at IS DISTINCT FROM greatest(ended_at, launched_at, from_at)"
    "    AND NOT (to_at IS NULL AND ended_at IS NULL)) "
    "ORDER BY instance_id"
)
_UNASSIGNED = text(
    "SELECT id FROM instances WHERE launched_at IS NOT NULL AND NOT EXISTS "
    "(SELECT FROM assignments WHERE instance_id = instances.id) ORDER BY id"
)
_KNOWN = text(
    "SELECT provider_instance_id FROM instances WHERE provider = :provider "
    "AND state NOT IN ('terminated', 'launch_failed') AND provider_instance_id IS NOT NULL "
    "ORDER BY provider_instance_id"
)
_GIVEN_BACK = text(
    "SELECT provider_instance_id FROM instances WHERE provider = :provider "
    "AND state = 'terminating' AND release_ordered_at < :late "
    "AND provider_instance_id IS NOT NULL ORDER BY provider_instance_id"
)
_OPEN_TOKENS = text(
    "SELECT client_token FROM launches WHERE outcome IN ('pending', 'unknown') "
    "OR settled_at > :recently"
)
_UNANSWERED = text(
    "SELECT instances.id FROM instances JOIN launches ON launches.id = launch_id "
    "WHERE settled_at IS NOT NULL AND provider_instance_id IS NULL "
    "AND instances.state NOT IN ('terminated', 'launch_failed') ORDER BY instances.id"
)
_LATE_TIMERS = text("SELECT id, timer_at FROM jobs WHERE timer_at < :late ORDER BY id")
_AT_REST = text(
    "SELECT jobs.id, jobs.name, state, claimable_at, wait_reason, jobs.cost_final_at, ended_at, "
    "cap_microusd, spent_microusd, reserved_microusd, greatest(node_count, "
    "(SELECT max(attempts.node_count) FROM attempts WHERE attempts.job_id = jobs.id)"
    ") AS node_count FROM jobs "
    "JOIN budgets ON budgets.id = jobs.budget_id ORDER BY jobs.id"
)
_OPEN_ROWS = text(
    "SELECT instances.id FROM instances JOIN jobs ON jobs.id = instances.job_id "
    "WHERE jobs.ended_at IS NOT NULL AND instances.state NOT IN ('terminated', 'launch_failed') "
    "ORDER BY instances.id"
)


class WatchedJob(NamedTuple):
    """A job as it stands, in the order of `_JOB`. live: attempts; wanted: machines of a market,
    those that the job moves to apart from those that it has.

    node_count: places of the gang that trains, or of the one it is to become, if that has more.
    """

    id: UUID
    state: str
    event_seq: int
    next_fence: int
    committed_step: int
    claimable_at: datetime | None
    wait_reason: str | None
    node_count: int
    live: int
    attempt_id: UUID | None
    wanted: int | None
    fence: int | None


class Invariants:
    """The rules of one world."""

    def __init__(self, world: World) -> None:
        self.lineage = LineageWatch()
        self.history = HistoryWatch(world)
        self.budgets = BudgetWatch(world.settings.limits)
        self._world = world
        self._committed: dict[UUID, int] = {}
        self._given: dict[tuple[UUID, int], UUID] = {}
        self._reader = world.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._last_full = 0
        world.store.watch = self.lineage.created
        world.store.watch_deleted = self.lineage.deleted
        world.on_restored.append(self._rewind)

    def after_event(self) -> None:
        """Check the jobs that the last event wrote, and now and then everything."""
        world = self._world
        if world.transactions.touched_jobs:
            touched = sorted(world.transactions.touched_jobs)
            world.transactions.touched_jobs.clear()
            reader = RecordSession(world.engine, autocommit=True)
            try:
                for job_id in touched:
                    self._check_job(reader, job_id)
            finally:
                reader.close()
        if world.loop.happened - self._last_full >= EVENTS_BETWEEN_FULL_CHECKS:
            self._last_full = world.loop.happened
            self.check_all()

    def _rewind(self) -> None:
        self._committed.clear()
        self.lineage.rows_lost()
        self.history.rewind()

    def check_all(self) -> None:
        """Everything that must hold at any instant."""
        with self._reader.connect() as connection:
            self._check_assignments(connection)
            self._check_machines(connection)
            self._check_launches(connection)
            self._check_timers(connection)
        self.history.check_registrations()
        self._check_books({})

    def at_rest(self) -> bool:
        """Whether nothing is to be waited for: all jobs and bills are closed, or paused."""
        with self._world.engine.connect() as connection:
            rows = list(connection.execute(_AT_REST))
            alive = any(cloud.alive() for cloud in self._world.clouds.values())
            closed = all(
                row.state == "paused" or (row.ended_at and row.cost_final_at) for row in rows
            )
        return closed and not alive and len(rows) == self._world.planned

    def check_at_rest(self, away_seconds: float) -> None:
        """What must hold once faults have stopped and the world has had time to settle."""
        self.check_all()
        with self._world.engine.connect() as connection:
            for row in connection.execute(_AT_REST):
                self._check_ended(row)
                self._check_budget(row, away_seconds)
            open_rows = list(connection.execute(_OPEN_ROWS))
        if open_rows:
            raise InvariantError("an ended job keeps no machine", str(open_rows))
        for cloud in self._world.clouds.values():
            if cloud.alive():
                names = [machine.machine_id for machine in cloud.alive()]
                raise InvariantError("no machine leaks", ", ".join(names))
        self._check_books(self._invoices())

    # --- one job ---

    def _check_job(self, reader: RecordSession, job_id: UUID) -> None:
        found = reader.row(_JOB, {"id": job_id})
        if found is None:
            return
        row = WatchedJob(*found)
        self.history.check(reader, job_id, row.state, row.event_seq)
        if not ASKING.isdisjoint(self.history.newest):
            self.budgets.check(reader, job_id)
        if row.live > 1:
            raise InvariantError("at most one live attempt per job", str(row))
        if row.live and row.state not in ATTEMPT_JOB_STATES:
            raise InvariantError("only a working job has a live attempt", str(row))
        if (row.wanted or 0) > row.node_count:
            raise InvariantError("no more machines are wanted than a gang has places", str(row))
        if row.fence is not None and row.fence >= row.next_fence:
            raise InvariantError("fences only grow", str(row))
        if row.fence is not None and row.attempt_id is not None:
            # Kept when rows are lost: what an attempt wrote under its number is in the store.
            first = self._given.setdefault((job_id, row.fence), row.attempt_id)
            if first != row.attempt_id:
                raise InvariantError("a fence is given once", f"{row}: before it to {first}")
        if row.claimable_at is not None and not row.wait_reason:
            raise InvariantError("a job waits with a reason and a time", str(row))
        if row.committed_step < self._committed.get(job_id, 0):
            raise InvariantError("the committed step never falls", str(row))
        self._committed[job_id] = row.committed_step

    # --- everything ---

    def _check_assignments(self, connection: Connection) -> None:
        for statement in (_GAPS, _UNASSIGNED):
            found = list(connection.scalars(statement))
            if found:
                raise InvariantError(
                    "every billed second has exactly one assignment",
                    ", ".join(str(one) for one in found),
                )

    def _check_machines(self, connection: Connection) -> None:
        """A machine of the cloud has a row within one sweep of being visible."""
        world, limits = self._world, self._world.runtime.limits
        grace_us = int((2 * limits.sweep_seconds + _UNNOTICED_SECONDS) * MICROSECONDS)
        for name, cloud in sorted(self._world.clouds.items()):
            for launch, started, wanted in cloud.started_by_launch():
                if started > wanted:
                    raise InvariantError(
                        "a launch never starts more machines than its count",
                        f"{launch}: {started} of {wanted}",
                    )
            self._check_given_back(connection, name)
            seen_since = max(self._world.worker.up_since_us, self._world.clock.starts_us)
            known = set(connection.scalars(_KNOWN, {"provider": name}))
            recently = world.clock.now() - timedelta(microseconds=grace_us)
            asked = set(connection.scalars(_OPEN_TOKENS, {"recently": recently}))
            for machine in cloud.alive():
                due_us = max(machine.visible_us, seen_since) + grace_us
                known_of = machine.machine_id in known or machine.client_token in asked
                if (
                    not known_of
                    and machine.stopping_us is None
                    and self._world.clock.true_us > due_us
                ):
                    raise InvariantError(
                        "every cloud machine has a row within one sweep", machine.machine_id
                    )

    def _check_launches(self, connection: Connection) -> None:
        found = list(connection.scalars(_UNANSWERED))
        if found:
            raise InvariantError("an answered launch leaves no row without its answer", str(found))

    def _check_given_back(self, connection: Connection, name: str) -> None:
        """A machine that was given back is gone soon, unless nobody was there to see to it."""
        world = self._world
        if world.clock.true_us - world.worker.up_since_us < _GIVEN_BACK_LATE // _MICROSECOND:
            return
        late = {"provider": name, "late": world.clock.now() - _GIVEN_BACK_LATE}
        for machine_id in connection.scalars(_GIVEN_BACK, late):
            machine = world.clouds[name].machines[machine_id]
            if machine.stopping_us is None and not world.clock.error_us:
                raise InvariantError("what is given back is gone soon", machine_id)

    def _check_timers(self, connection: Connection) -> None:
        world = self._world
        if world.clock.true_us - world.worker.up_since_us < 300 * MICROSECONDS:
            return
        late = list(connection.execute(_LATE_TIMERS, {"late": world.clock.now() - _TIMER_LATE}))
        if late and not world.clock.error_us:
            raise InvariantError("a timer that has come is acted on", str(late))

    def _check_books(self, invoices: Mapping[str, Mapping[str, Mapping[str, int]]]) -> None:
        with self._world.engine.connect() as connection:
            found = verify(connection, invoices or None, VerificationScope())
        if found.differences:
            shown = "; ".join(str(one) for one in found.differences[:3])
            raise InvariantError("entries = bill()", shown)
        if invoices and found.unbilled:
            raise InvariantError("every machine is billed", str(found.unbilled))

    def _invoices(self) -> dict[str, dict[str, dict[str, int]]]:
        """The clouds' own bills, computed by them."""
        paths, now_us = self._world.market.paths, self._world.clock.true_us
        return {
            name: {
                machine_id: invoice(machine, paths[machine.pool], now_us)
                for machine_id, machine in sorted(cloud.machines.items())
            }
            for name, cloud in sorted(self._world.clouds.items())
        }

    # --- at rest ---

    def _check_ended(self, row: Any) -> None:
        waits = row.claimable_at is not None and row.wait_reason
        if row.state in LIVE_JOB_STATES and row.state != "paused" and not waits:
            raise InvariantError(
                "after faults stop, every job ends, is paused, or waits with a reason and a time",
                f"{row.name} is {row.state}",
            )

    def _check_budget(self, row: Any, away_seconds: float) -> None:
        if row.cap_microusd is None:
            return
        limits = self._world.runtime.limits
        dearest = max(max(path.prices) for path in self._world.market.paths.values())
        seconds = float(reserve_window(limits, Fraction(1)).billed_seconds) + away_seconds
        allowed = row.cap_microusd + row.node_count * dearest * seconds / 3600
        if row.spent_microusd > allowed:
            raise InvariantError(
                "budget overshoot is bounded",
                f"{row.name} spent {row.spent_microusd} of {row.cap_microusd}",
            )
