"""What an audit row adds to a change: processor time of our process and of PostgreSQL.

The same change is made with and without its row, in turn. A command is a transaction that updates
one row; a submission is the statement of `POST /jobs` with one job. Not here: seals, which no
request waits for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from uuid import uuid4

from app.domain.access.principal import Origin, Principal
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.projects.resolve_spec import as_written
from app.domain.spec.job_spec import parse_spec
from app.orchestration.audit.record_action import record_action
from app.orchestration.frame.runtime import Runtime
from app.orchestration.queue.submit_job import build_submission
from app.storage.access.key_repository import KeyOwner
from app.storage.session.engine import make_engine
from tests.bench.bench_environment import BenchEnvironment
from tests.bench.process_cost import Meter, cpu_seconds
from tests.bench.results import Figure
from tests.support.api.agent_api import make_runtime
from tests.support.api.people_api import make_key, make_project

GOAL_US = 60.0
SPEC = {"trainer": {"model": "mlp", "data": "digits", "steps": 100}}
_FACTS: dict[str, object] = {"state": "queued", "stop_cause": None, "drain_until_at": None}


def measure(around: BenchEnvironment) -> list[Figure]:
    """Interleaved rounds; each figure is the median of the differences."""
    engine = make_engine(around.postgres.clone())
    try:
        project_id = make_project(engine, "vision")
        make_key(engine, project_id)
        runtime = make_runtime(engine, around.new_folder("store"))
        with runtime.begin() as uow:
            [key] = uow.keys.keys(KeyOwner(project_id), uow.now, 1)
        ada = Principal(key.id, key.name, project_id, "vision", Role.ADMIN)
        ada = ada.from_origin(Origin("203.0.113.9", uuid4().hex))
        return [
            _figure(around, "a command's row", lambda with_row: _command(runtime, ada, with_row)),
            _figure(around, "a submission's row", lambda with_row: _submit(runtime, ada, with_row)),
        ]
    finally:
        engine.dispose()


def _figure(around: BenchEnvironment, what: str, change: Callable[[bool], None]) -> Figure:
    rounds, count = (4, 300) if around.quick else (12, 1_000)
    clocks = {"app": lambda: cpu_seconds(os.getpid()), "postgres": around.postgres.cpu_seconds}
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for _ in range(count):
        change(True)
        change(False)
    for number in range(rounds):
        for with_row in (True, False):
            with Meter(clocks) as meter:
                for _ in range(count):
                    change(with_row)
            parts = meter.cost.per(count, "app"), meter.cost.per(count, "postgres")
            found[with_row].append(parts)
        around.say(f"round {number + 1}/{rounds}: {found[True][-1]} and {found[False][-1]} us")
    pairs = list(zip(found[True], found[False], strict=True))
    detail = {
        name: median(having[place] - without[place] for having, without in pairs)
        for place, name in enumerate(("app_us", "postgres_us"))
    }
    added = median(sum(having) - sum(without) for having, without in pairs)
    return Figure("audit", f"{what}, CPU", added, "us", GOAL_US, True, detail)


def _command(runtime: Runtime, principal: Principal, with_row: bool) -> None:
    subject = Subject(SubjectKind.JOB, str(uuid4()), "digits", principal.project_id)
    with runtime.begin() as uow:
        uow.keys.archive_project(principal.project_id, uow.now)
        if with_row:
            record_action(
                uow, runtime.entropy, principal, AuditAction.JOB_PAUSE, subject, _FACTS,
                {**_FACTS, "state": "paused"},
            )  # fmt: skip


def _submit(runtime: Runtime, principal: Principal, with_row: bool) -> None:
    spec, actor = as_written(parse_spec(SPEC)), Actor(ActorKind.PERSON, "ada")
    with runtime.begin() as uow:
        submission = build_submission(
            spec, principal.project_id, actor, uow.now, runtime.entropy, None, None, principal
        )
        named = replace(submission, name=f"job-{submission.job_id}")
        uow.jobs.submit(named if with_row else replace(named, audit_id=None))
