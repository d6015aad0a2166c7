"""A job's line of history and the audit's row of one command go in one statement, or not at all."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, event, func, select
from sqlalchemy.exc import IntegrityError

from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject, entry_of
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.job_command import JobCommand
from app.domain.spec.job_spec import parse_spec
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.command_job import command_job
from app.orchestration.gang.stop_job import command_stop
from app.orchestration.queue.submit_job import submit_job
from app.storage.schema.audit_tables import audit_entries
from app.storage.schema.tables import events, jobs
from app.storage.session.joined_inserts import PARAMETERS_MAX, joined
from tests.support.api.agent_api import make_runtime
from tests.support.api.people_api import SPEC, make_project

ADA = Actor(ActorKind.PERSON, "ada")


@pytest.fixture
def runtime(engine: Engine, tmp_path: Path) -> Runtime:
    return make_runtime(engine, tmp_path)


@pytest.fixture
def job(engine: Engine, runtime: Runtime) -> tuple[UUID, Principal]:
    """A queued job, and who may command it."""
    project_id = make_project(engine, "vision")
    with runtime.begin() as uow:
        made = submit_job(uow, runtime, project_id, parse_spec(SPEC), ADA)
    return made.job_id, Principal(uuid4(), "ada", project_id, "vision", Role.MAINTAINER)


def rows(engine: Engine) -> tuple[int, int, str]:
    """How many lines of history and rows of the audit there are; the job's state."""
    with engine.connect() as connection:
        return (
            connection.execute(select(func.count()).select_from(events)).scalar_one(),
            connection.execute(select(func.count()).select_from(audit_entries)).scalar_one(),
            connection.execute(select(jobs.c.state)).scalar_one(),
        )


def test_a_commands_rows_are_one_statement(
    engine: Engine, runtime: Runtime, job: tuple[UUID, Principal]
) -> None:
    job_id, ada = job
    sent: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_more: object) -> None:
        sent.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    command_job(runtime, ada, job_id, JobCommand.PAUSE, "Paused by ada.")
    event.remove(engine, "before_cursor_execute", note)
    update, both = sent[-2:]
    assert update.startswith("UPDATE jobs")
    assert both.count("INSERT INTO") == 2
    assert rows(engine) == (2, 1, "paused")


def test_a_row_of_the_audit_that_fails_undoes_what_it_tells_of(
    engine: Engine, runtime: Runtime, job: tuple[UUID, Principal]
) -> None:
    job_id, ada = job
    subject = Subject(SubjectKind.JOB, str(job_id), "digits", ada.project_id)
    with runtime.begin() as uow:
        entry = entry_of(uuid4(), uow.now, ada, AuditAction.JOB_PAUSE, subject)
        uow.audit.add(entry)

    def pause_with_the_same_row() -> None:
        with runtime.begin() as uow, open_job(uow, runtime.entropy, job_id, ADA) as aggregate:
            assert aggregate is not None
            command_stop(aggregate, JobCommand.PAUSE, "Paused by ada.", runtime.limits)
            uow.audit.add(entry)

    with pytest.raises(IntegrityError, match="pk_audit_entries"):
        pause_with_the_same_row()
    assert rows(engine) == (1, 1, "queued")


def test_what_does_not_fit_or_shares_names_stays_apart_and_in_order() -> None:
    def part(name: str, count: int) -> tuple[str, dict[str, object]]:
        return f"INSERT {name}", {f"{name}_{number}": number for number in range(count)}

    a, b, c = part("a", 40), part("b", PARAMETERS_MAX - 40), part("c", 1)
    assert list(joined([])) == []
    assert list(joined([a])) == [a]
    assert list(joined([a, b, c])) == [
        ("WITH part_0 AS (INSERT a) INSERT b", {**a[1], **b[1]}),
        c,
    ]
    assert list(joined([a, a, c])) == [
        a,
        ("WITH part_0 AS (INSERT a) INSERT c", {**a[1], **c[1]}),
    ]
