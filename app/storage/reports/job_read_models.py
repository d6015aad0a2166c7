"""Reports on one job for people: its page, its attempts, history, checkpoints, metrics and logs.

Short READ COMMITTED reads, each on a connection of its own. Not here: the list of jobs
(`job_list_statement`), machines, offers and gauges (`deployment_read_models`), reports of money.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, Engine, Select, and_, func, or_, select, tuple_

from app.domain.lifecycle.attempt import LIVE_ATTEMPT_STATES, AttemptState
from app.domain.lifecycle.entities import Attempt, Budget, Contact, Instance, Job
from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES
from app.domain.units.errors import NotFound
from app.domain.wording.near_names import no_such_job
from app.domain.wording.why_words import LastEnd
from app.storage.money.job_cost_report import waived_microusd
from app.storage.reports.deployment_read_models import DeploymentReports
from app.storage.reports.job_facts import (
    AttemptCounts,
    JobFacts,
    JobFilter,
    LastCheckpoint,
    MachineStatus,
    MatchingJob,
)
from app.storage.reports.job_list_statement import matching_statement
from app.storage.schema import money_tables, tables
from app.storage.session.attempt_ordinals import ORDINAL, ordinals_of
from app.storage.session.machine_names import (
    machine_names,
    machine_of,
    machines_by_actor,
)
from app.storage.session.read_records import (
    columns_of,
    read_records,
    select_records,
    take_joined_record,
    take_record,
)
from app.storage.session.replacement_statement import REPLACING_IN_JOB

_jobs = tables.jobs
_attempts = tables.attempts
# To compare so many with a name takes some milliseconds.
_NAMES_COMPARED = 200
# A command that saved nothing ends with a final manifest without files: no checkpoint to people.
_HAS_FILES = or_(~tables.checkpoints.c.final, tables.checkpoints.c.size_bytes > 0)


class CommittedCheckpointRow(TypedDict):
    """A checkpoint of a job; `ordinal` is that of its attempt, None where its row was lost."""

    fence: int
    step: int
    digest: str
    size_bytes: int
    final: bool
    parent_fence: int | None
    parent_step: int | None
    parent_digest: str | None
    committed_at: datetime
    instance_id: UUID
    metrics: dict[str, float]
    pruned_at: datetime | None
    ordinal: int | None


class JobReports(DeploymentReports):
    """Reports on one project's jobs, and on what can be rented."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._engine = engine

    def job_id(self, project_id: UUID, id_or_name: str) -> UUID:
        """The job of that id or name; raises NotFound."""
        named = and_(_jobs.c.project_id == project_id, _jobs.c.name == id_or_name)
        try:
            wanted_id = UUID(id_or_name)
        except ValueError:
            statement = select(_jobs.c.id).where(named)
        else:
            by_id = and_(_jobs.c.project_id == project_id, _jobs.c.id == wanted_id)
            # A name may look like an id; then the id means its job.
            statement = (
                select(_jobs.c.id).where(or_(by_id, named)).order_by(_jobs.c.id != wanted_id)
            )
        with self._engine.connect() as connection:
            found: UUID | None = connection.scalar(statement.limit(1))
        if found is None:
            raise NotFound(no_such_job(id_or_name, self.newest_names(project_id)))
        return found

    def newest_names(self, project_id: UUID) -> list[str]:
        """Names of the project's newest jobs: one of them may be meant by a name that none has."""
        statement = (
            select(_jobs.c.name)
            .where(_jobs.c.project_id == project_id)
            .order_by(_jobs.c.submitted_at.desc(), _jobs.c.id.desc())
            .limit(_NAMES_COMPARED)
        )
        with self._engine.connect() as connection:
            return list(connection.scalars(statement))

    def named(self, project_id: UUID, written: Sequence[str]) -> dict[str, tuple[UUID, str]]:
        """(id, name) of the jobs of these ids or names, by what was written, less unknown ones."""
        wanted_ids = {text: _as_id(text) for text in written}
        ids = [one for one in wanted_ids.values() if one is not None]
        statement = select(_jobs.c.id, _jobs.c.name).where(
            _jobs.c.project_id == project_id,
            or_(_jobs.c.id.in_(ids), _jobs.c.name.in_(list(written))),
        )
        with self._engine.connect() as connection:
            rows = connection.execute(statement).all()
        by_id, by_name = {row.id: row for row in rows}, {row.name: row for row in rows}
        # A name may look like an id; then the id means its job.
        found = {
            text: by_id.get(wanted_id) or by_name.get(text)
            for text, wanted_id in wanted_ids.items()
        }
        return {text: (row.id, row.name) for text, row in found.items() if row is not None}

    def matching(self, wanted: JobFilter) -> list[MatchingJob]:
        """Jobs that a filter finds, newest first."""
        statement, parameters = matching_statement(wanted)
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(statement, parameters)
            return [MatchingJob(*row) for row in rows]

    def job(self, job_id: UUID) -> JobFacts:
        """One job with everything it owns; raises NotFound."""
        with self._engine.connect() as connection:
            head = connection.execute(
                select(*columns_of(Job), *columns_of(Budget), tables.projects.c.name)
                .join(tables.budgets, tables.budgets.c.id == _jobs.c.budget_id)
                .join(tables.projects, tables.projects.c.id == _jobs.c.project_id)
                .where(_jobs.c.id == job_id)
            ).one_or_none()
            if head is None:
                raise NotFound("This job does not exist.")
            values = iter(head)
            job, budget = take_record(Job, values), take_record(Budget, values)
            live = select_records(Attempt).where(
                _attempts.c.job_id == job_id, _attempts.c.state.in_(LIVE_ATTEMPT_STATES)
            )
            attempt = next(iter(read_records(connection, Attempt, live)), None)
            return JobFacts(
                job=job,
                project_name=next(values),
                budget=budget,
                counts=self._counts(connection, job_id, attempt),
                attempt=attempt,
                machines=self._machines(connection, job_id),
                replacing=connection.scalar(REPLACING_IN_JOB, {"job_id": job_id}),
                last_checkpoint=self._last_checkpoint(connection, job_id),
                waived_microusd=waived_microusd(connection, job_id),
            )

    def _last_checkpoint(self, connection: Connection, job_id: UUID) -> LastCheckpoint | None:
        table = tables.checkpoints.c
        found = connection.execute(
            select(table.step, table.committed_at)
            .where(table.job_id == job_id, _HAS_FILES)
            .order_by(table.committed_at.desc(), table.fence.desc(), table.step.desc())
            .limit(1)
        ).one_or_none()
        return None if found is None else LastCheckpoint(*found)

    def attempts(self, job_id: UUID) -> list[dict[str, Any]]:
        """Attempts by fence, each with its `ordinal` and its `members` by rank."""
        members, instances = tables.attempt_members, tables.instances
        # The audit has each delivery of secrets, with its time.
        told = [column for column in members.c if column.name != "secret_deliveries"]
        with self._engine.connect() as connection:
            found = _rows(
                connection.execute(
                    select(_attempts, ORDINAL)
                    .where(_attempts.c.job_id == job_id)
                    .order_by(_attempts.c.fence)
                )
            )
            joined = _rows(
                connection.execute(
                    select(*told, instances.c.pool, instances.c.market)
                    .join(instances, instances.c.id == members.c.instance_id)
                    .where(members.c.attempt_id.in_([row["id"] for row in found]))
                    .order_by(members.c.attempt_id, members.c.node_rank)
                )
            )
            names = machine_names(connection, [job_id])
        for row in found:
            row["members"] = [
                {**m, "machine": names.get(m["instance_id"])}
                for m in joined
                if m["attempt_id"] == row["id"]
            ]
        return found

    def events(self, job_id: UUID, after: int, limit: int) -> list[dict[str, Any]]:
        """History after a number, in order."""
        table = tables.events
        statement = (
            select(*(column for column in table.c if column.name != "job_id"))
            .where(table.c.job_id == job_id, table.c.seq > after)
            .order_by(table.c.seq)
            .limit(limit)
        )
        with self._engine.connect() as connection:
            rows = _rows(connection.execute(statement))
            names = machines_by_actor(connection, job_id) if rows else {}
        return [{**row, "machine": machine_of(row, names)} for row in rows]

    def checkpoints(self, job_id: UUID, limit: int) -> list[CommittedCheckpointRow]:
        """Committed checkpoints, newest first, without the end of a command that saved nothing."""
        table, numbered = tables.checkpoints, ordinals_of(job_id)
        columns = [column for column in table.c if column.name != "job_id"]
        rows = self._read(
            select(*columns, numbered.c.ordinal)
            .outerjoin(numbered, numbered.c.fence == table.c.fence)
            .where(table.c.job_id == job_id, _HAS_FILES)
            .order_by(table.c.fence.desc(), table.c.step.desc())
            .limit(limit)
        )
        return cast(list[CommittedCheckpointRow], rows)

    def metrics(self, job_id: UUID, after: tuple[int, int], limit: int) -> list[dict[str, Any]]:
        """Points after (fence, step), in that order, with the ordinals of their attempts."""
        table, numbered = tables.metric_points, ordinals_of(job_id)
        place = tuple_(table.c.fence, table.c.step)
        columns = (table.c.fence, numbered.c.ordinal, table.c.step, table.c.at, table.c.metrics)
        return self._read(
            select(*columns)
            .outerjoin(numbered, numbered.c.fence == table.c.fence)
            .where(table.c.job_id == job_id, place > tuple_(*after))
            .order_by(table.c.fence, table.c.step)
            .limit(limit)
        )

    def log_streams(self, job_id: UUID) -> list[dict[str, Any]]:
        """Streams of logs with their sizes, by name."""
        table = tables.log_streams
        statement = (
            select(table.c.stream, table.c.instance_id, table.c.size_bytes, table.c.updated_at)
            .where(table.c.job_id == job_id)
            .order_by(table.c.stream)
        )
        with self._engine.connect() as connection:
            rows = _rows(connection.execute(statement))
            names = machine_names(connection, [job_id]) if rows else {}
        return [{**row, "machine": names.get(row["instance_id"])} for row in rows]

    def log_chunks(
        self, job_id: UUID, stream: str, start: int, end: int, limit: int
    ) -> Sequence[tuple[int, int, str]]:
        """(byte offset, bytes, object key) of the pieces that meet [start, end), in order."""
        table = tables.log_chunks
        # The piece that holds `start` is the last one that begins at or before it.
        first = (
            select(func.max(table.c.byte_offset))
            .where(table.c.job_id == job_id, table.c.stream == stream, table.c.byte_offset <= start)
            .scalar_subquery()
        )
        found = self._read(
            select(table.c.byte_offset, table.c.size_bytes, table.c.object_key)
            .where(
                table.c.job_id == job_id,
                table.c.stream == stream,
                table.c.byte_offset >= func.coalesce(first, start),
                table.c.byte_offset < end,
            )
            .order_by(table.c.byte_offset)
            .limit(limit)
        )
        return [(row["byte_offset"], row["size_bytes"], row["object_key"]) for row in found]

    def _counts(self, connection: Connection, job_id: UUID, live: Attempt | None) -> AttemptCounts:
        interrupted = func.count().filter(_attempts.c.state == AttemptState.INTERRUPTED)
        newest = 0 if live is None else live.fence
        ordinal = func.count().filter(_attempts.c.fence <= newest)
        counted = connection.execute(
            select(func.count(), interrupted, ordinal).where(_attempts.c.job_id == job_id)
        ).one()
        last = connection.execute(
            select(_attempts.c.end_reason, _attempts.c.end_message, _attempts.c.committed_step)
            .where(_attempts.c.job_id == job_id, _attempts.c.end_reason.is_not(None))
            .order_by(_attempts.c.fence.desc())
            .limit(1)
        ).one_or_none()
        last_end = None if last is None else LastEnd(*last)
        return AttemptCounts(counted[0], counted[1], last_end, counted[2] or None)

    def _machines(self, connection: Connection, job_id: UUID) -> tuple[MachineStatus, ...]:
        instances, pools = tables.instances, money_tables.pools
        rows = connection.execute(
            select(*columns_of(Instance), *columns_of(Contact), pools.c.price_microusd_per_hour)
            .outerjoin(tables.contacts, tables.contacts.c.instance_id == instances.c.id)
            .outerjoin(pools, pools.c.pool == instances.c.pool)
            .where(instances.c.job_id == job_id, instances.c.state.in_(LIVE_INSTANCE_STATES))
            .order_by(instances.c.requested_at, instances.c.id)
        )
        names = machine_names(connection, [job_id])
        machines = []
        for values in map(iter, rows):
            instance = take_record(Instance, values)
            contact, price = take_joined_record(Contact, values), next(values)
            machines.append(MachineStatus(instance, contact, price, names.get(instance.id)))
        return tuple(machines)

    def _read(self, statement: Select[Any]) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            return _rows(connection.execute(statement))


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _rows(result: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in result.mappings()]
