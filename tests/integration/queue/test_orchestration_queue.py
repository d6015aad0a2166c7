"""The queue on real rows and connections: two claimers, order, waiting together, what it reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text

from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.job import JobState
from app.orchestration.checkpoints.prune_checkpoints import PruneCheckpoints
from app.orchestration.controllers import all_controllers
from app.orchestration.frame import controller_frame
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.frame.runtime import Runtime
from app.orchestration.queue.claim_jobs import ClaimJobs, ReadyJob
from app.storage.schema import tables
from app.storage.schema.money_tables import pools
from app.storage.session.engine import make_engine
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from tests.support.stories.orchestration_story import ON_DEMAND_A, ZONE_A, Story


def _claim(story: Story) -> int:
    return run_controller(story.runtime, ClaimJobs(story.runtime))


def _in_line(story: Story) -> list[UUID]:
    with story.runtime.begin() as uow:
        return [queued.job_id for queued in uow.jobs.ready(uow.now, 20)]


def _picked(story: Story, limit: int = 20) -> list[ReadyJob]:
    with story.runtime.begin() as uow:
        return ClaimJobs(story.runtime).select(uow, limit)


def _claim_one(story: Story, piece: ReadyJob) -> None:
    controller = ClaimJobs(story.runtime)
    sorted_out = controller.effect(piece)
    with story.runtime.begin() as uow:
        controller.apply(uow, piece, sorted_out)


def _claimed(story: Story) -> list[Any]:
    """In the order of the claims, as far as time went by between them."""
    found = tables.events
    return sorted(story.rows(found, found.c.kind == "claimed"), key=lambda row: row.at)


def _failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What controllers say of work that failed; threads of other tests may log, too."""
    return [one.getMessage() for one in caplog.records if one.name == controller_frame.log.name]


# --- two claimers at once -------------------------------------------------------------------------


@contextmanager
def _other_worker(story: Story, url: str) -> Iterator[Runtime]:
    """The runtime of a second worker, with connections of its own."""
    engine = make_engine(url)
    try:
        begin = PostgresUnitOfWorkFactory(engine, story.runtime.wakeups, story.now)
        yield replace(story.runtime, begin=begin)
    finally:
        engine.dispose()


def test_two_claimers_never_take_one_job_twice(story: Story, database_url: str) -> None:
    jobs = [story.submit() for _ in range(24)]
    picked = _picked(story, len(jobs))
    with _other_worker(story, database_url) as other:
        workers = [ClaimJobs(story.runtime), ClaimJobs(other)]
        begin_together = threading.Barrier(2)
        failures: list[BaseException] = []

        def work(claimer: ClaimJobs, runtime: Runtime) -> None:
            begin_together.wait(60)
            for piece in picked:  # both in the same order: they meet at every job
                try:
                    with runtime.begin() as uow:
                        claimer.apply(uow, piece, claimer.effect(piece))
                except BaseException as error:
                    failures.append(error)

        threads = [
            threading.Thread(target=work, args=(claimer, runtime))
            for claimer, runtime in zip(workers, (story.runtime, other), strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []
    while _claim(story):  # what each left to the other because it was locked just then
        pass
    assert sorted(row.job_id for row in _claimed(story)) == sorted(jobs)
    assert len(story.rows(tables.attempts)) == len(story.rows(tables.launches)) == len(jobs)


def test_a_claimer_passes_over_a_job_that_another_holds(
    story: Story, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    held, free = story.submit(), story.submit()
    with _other_worker(story, database_url) as other, other.begin() as uow:
        assert uow.jobs.lock(held) is not None
        _claim(story)
        # Whoever waits for a lock that nobody gives back fails with a line in the log.
        assert _failures(caplog) == []
        assert [row.job_id for row in _claimed(story)] == [free]
    story.sleep(1)
    _claim(story)
    assert [row.job_id for row in _claimed(story)] == [free, held]


def test_a_claimer_waits_for_a_budget_only_so_long(
    story: Story, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    held, free = story.submit(), story.submit()
    with _other_worker(story, database_url) as other, other.begin() as uow:
        uow.money.lock_budgets(story.project_id, story.job(held).budget_id)
        _claim(story)  # it is released below: without a limit this would never end
        (failure,) = _failures(caplog)
        assert "lock timeout" in caplog.text, failure
        assert [row.job_id for row in _claimed(story)] == [free]
    story.sleep(2)  # what failed is tried again a second later
    _claim(story)
    assert len(_claimed(story)) == 2


# --- order ----------------------------------------------------------------------------------------


def test_when_capacity_comes_back_the_first_in_line_is_looked_at_first(story: Story) -> None:
    story.cloud.room = {}
    story.quote({ZONE_A: 1_000_000}, available=0)
    _no_other_pools(story)
    first = story.submit()
    story.sleep(1)
    important = story.submit(priority=60)
    _claim(story)
    assert {story.job(one).state for one in (first, important)} == {JobState.QUEUED}
    story.sleep(60)
    late = story.submit()
    assert _in_line(story) == [important, first, late]


def _no_other_pools(story: Story) -> None:
    """Only ZONE_A is left in the market."""
    with story.engine.begin() as connection:
        connection.execute(pools.delete().where(pools.c.pool != ZONE_A))


def test_one_verdict_moves_all_who_wait_for_the_same(story: Story) -> None:
    story.quote({ZONE_A: 1_000_000}, available=0)
    _no_other_pools(story)
    jobs = [story.submit() for _ in range(5)]
    other_need = story.submit(nodes=2)
    _claim(story)
    for _ in range(3):
        story.sleep(31)
        job = tables.jobs
        _claim_one(story, _picked(story)[0])
        looks = {story.job(one).claimable_at for one in jobs}
        assert len(looks) == 1
        assert min(looks) > story.time
        assert story.rows(job, job.c.id == other_need)[0].claimable_at <= story.time
        _claim(story)


def test_a_verdict_leaves_alone_who_needs_less(story: Story) -> None:
    """A job with a survivor needs one machine beside it, and one in another market other pools."""
    story.quote({ZONE_A: 1_000_000}, available=1)
    _no_other_pools(story)
    waiting = [story.submit(nodes=2) for _ in range(3)]
    held, moved = waiting[1:]
    story.set(tables.jobs, held, hold_until_at=story.time)
    story.set(tables.jobs, moved, market_mode=ON_DEMAND_A.market)
    _claim_one(story, next(one for one in _picked(story) if one.job_id == waiting[0]))
    assert story.job(waiting[0]).claimable_at is not None
    assert story.job(held).claimable_at is None
    assert story.job(moved).claimable_at is None


# --- what is read ---------------------------------------------------------------------------------

FINISHED = 3_000


def _history(story: Story) -> None:
    """Thousands of finished jobs, each with what it leaves behind, and a few that live."""
    living = [story.submit() for _ in range(3)]
    story.run()
    (machine,) = story.living(living[0])
    with story.engine.begin() as connection:
        _copy(connection, tables.budgets, "job_id = :of", of=living[0], reserved_microusd=0)
        ended = {"state": "succeeded", "ended_at": story.time, "cost_final_at": story.time}
        waits = dict.fromkeys(("timer_at", "slack_look_at", "claimable_at", "idempotency_key"))
        _copy(connection, tables.jobs, "id = :of", of=living[0], **ended, **waits)
        gone = {"state": "terminated", "cost_final_at": story.time, "ended_at": story.time}
        _copy(
            connection, tables.instances, "id = :of", of=machine.id, **gone,
            terminate_at=None, describe_at=None, credential_hash=None,
        )  # fmt: skip
        launch = {"next_call_at": None, "outcome": "accepted"}
        _copy(connection, tables.launches, "id = :of", of=machine.launch_id, **launch)
        _copy(connection, tables.attempts, "job_id = :of", of=living[0], state="succeeded")
        for kept in (1, 2, 3):
            _checkpoints(connection, living[0], kept)
    with story.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("ANALYZE"))


def _copy(connection: Connection, table: Any, where: str, of: UUID, **fields: Any) -> None:
    """Thousands of rows like one, each with an id of its own made of its number."""
    numbered = "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid"
    own = {"id", "name", "client_token", "token_hash", "provider_instance_id"}
    own |= {"job_id"} if table is not tables.jobs else {"budget_id"}
    columns, values = [], []
    for column in table.c:
        columns.append(column.name)
        if column.name in ("id", "budget_id", "job_id") and column.name in own:
            values.append(numbered)
        elif column.name in own:
            values.append("'copy-' || n")
        elif column.name in fields:
            values.append("NULL" if fields[column.name] is None else f":{column.name}")
        else:
            values.append(f"{table.name}.{column.name}")
    given = {key: value for key, value in fields.items() if value is not None}
    statement = (
        f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {', '.join(values)} "
        f"FROM {table.name}, generate_series(1, {FINISHED}) AS n WHERE {table.name}.{where}"
    )
    connection.execute(text(statement), {"of": of, **given})


def _checkpoints(connection: Connection, like: UUID, step: int) -> None:
    """Every finished job keeps its newest checkpoints for ever."""
    connection.execute(
        insert(tables.checkpoints).from_select(
            ["job_id", "fence", "step", "digest", "size_bytes", "final", "committed_at",
             "instance_id", "metrics"],
            select(
                tables.jobs.c.id, text("1"), text(str(step)), text("'d'"), text("1"),
                text("false"), tables.jobs.c.submitted_at, tables.jobs.c.id, text("'{}'::jsonb"),
            ).where(tables.jobs.c.id != like, tables.jobs.c.ended_at.is_not(None)),
        )
    )  # fmt: skip


@contextmanager
def _statements(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Every SELECT that is executed meanwhile."""
    found: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_more: Any) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "WITH")):
            found.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _plan(engine: Engine, statement: str, parameters: Any) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        explained = connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
        )
        told = explained.scalar_one()
    document = json.loads(told) if isinstance(told, str) else told
    return list(_nodes(document[0]["Plan"]))


def _rows_read(node: dict[str, Any]) -> float:
    removed = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    each: float = node["Actual Rows"] + sum(node.get(key, 0) for key in removed)
    return each * float(node["Actual Loops"])


def test_the_queue_reads_by_its_partial_indexes_however_many_jobs_have_ended(
    story: Story,
) -> None:
    _history(story)
    with _statements(story.engine) as seen, story.runtime.begin() as uow:
        uow.jobs.ready(uow.now, 20)
        uow.jobs.next_ready_at()
    used = [
        {node["Index Name"] for node in _plan(story.engine, *one) if "Index Name" in node}
        for one in seen
        if "jobs" in one[0]
    ]
    past = "uq_attempts_job_id_fence"  # of each job that is read: when it was last claimed
    assert used[0] == {"ix_jobs_ready", past}
    assert set.union(*used) == {"ix_jobs_ready", "ix_jobs_waiting", past}
    assert all(used), "a statement reads the whole table"


def test_no_controller_reads_all_that_has_ever_been_to_find_what_is_due(story: Story) -> None:
    _history(story)
    nobody_asks_it: Any = None
    runtime = replace(story.runtime, price_sources={"local": nobody_asks_it})
    controllers = all_controllers(runtime)
    for controller in controllers:
        with _statements(story.engine) as seen, story.runtime.begin() as uow:
            controller.next_due(uow)
            controller.select(uow, controller.limit)
        for statement, parameters in seen:
            most = max(_rows_read(node) for node in _plan(story.engine, statement, parameters))
            assert most < FINISHED / 10, f"{controller.name} reads {most:.0f} rows: {statement}"


def test_a_job_with_a_long_past_is_claimed_and_stopped_without_reading_it(story: Story) -> None:
    """Thousands of checkpoints of the job itself are not loaded."""
    job_id, (only,) = story.training()
    story.checkpoint(only, 1, 5)
    names = ", ".join(column.name for column in tables.checkpoints.c)
    values = names.replace("step", "n", 1).replace("pruned_at", "committed_at")
    with story.engine.begin() as connection:
        connection.execute(
            text(f"INSERT INTO checkpoints ({names}) SELECT {values} "
                 "FROM checkpoints, generate_series(10, 3000) AS n")
        )  # fmt: skip
    with _statements(story.engine) as seen:
        story.cloud.end(story.instance(only).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
        story.pass_time(60)
        run_controller(story.runtime, PruneCheckpoints(story.runtime))
        story.stop(job_id)
        story.pass_time(60)
    assert story.attempt(job_id, 2) is not None
    assert story.job(job_id).state == "cancelled"
    asked = [one for one in seen if "FROM checkpoints" in one[0]]
    assert asked
    assert sum(_plan(story.engine, *one)[0]["Actual Rows"] for one in asked) < 10
