"""What an audit row adds to a change: processor time of our process and of PostgreSQL.

The same change is made with and without its row, in turn, in transactions that are alike but for
the row. A command is the transaction that pauses or resumes a job: it locks the job, writes it and
a line of its history. A submission is the statement of `POST /jobs` with one job. Not here: seals,
which no request waits for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from statistics import median, quantiles
from uuid import UUID, uuid4

from app.domain.access.principal import Origin, Principal
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.job import JobState
from app.domain.lifecycle.job_command import JobCommand
from app.domain.projects.resolve_spec import as_written
from app.domain.spec.job_spec import parse_spec
from app.orchestration.audit.record_action import record_action
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.stop_job import command_stop, resume
from app.orchestration.queue.submit_job import build_submission, submit_job
from app.storage.access.key_repository import KeyOwner
from app.storage.session.engine import make_engine
from tests.bench.api.audit_parts import measure_parts
from tests.bench.bench_environment import BenchEnvironment
from tests.bench.process_cost import Meter, cpu_seconds
from tests.bench.results import Figure
from tests.support.api.agent_api import make_runtime
from tests.support.api.people_api import make_key, make_project

GOAL_US = 60.0
SPEC = {"trainer": {"model": "mlp", "data": "digits", "steps": 100}}
ADA = Actor(ActorKind.PERSON, "ada")
BLOCK = 20
"""Changes of one kind in a row: other work on the machine then falls on both kinds alike. An even
number, so that as many commands pause as resume."""


def measure(around: BenchEnvironment) -> list[Figure]:
    """Each figure with a goal is the median of the differences between neighbouring blocks."""
    url = around.postgres.clone()
    engine = make_engine(url)
    try:
        project_id = make_project(engine, "vision")
        make_key(engine, project_id)
        runtime = make_runtime(engine, around.new_folder("store"))
        with runtime.begin() as uow:
            [key] = uow.keys.keys(KeyOwner(project_id), uow.now, 1)
            job = submit_job(uow, runtime, project_id, parse_spec(SPEC), ADA)
        ada = Principal(key.id, key.name, project_id, "vision", Role.ADMIN)
        ada = ada.from_origin(Origin("203.0.113.9", uuid4().hex))

        def command(with_row: bool) -> None:
            _command(runtime, ada, job.job_id, with_row)

        def submit(with_row: bool) -> None:
            _submit(runtime, ada, with_row)

        return [
            _figure(around, "a command's row", command),
            _figure(around, "a submission's row", submit),
            measure_parts(around, url, runtime, ada),
        ]
    finally:
        engine.dispose()


def _figure(around: BenchEnvironment, what: str, change: Callable[[bool], None]) -> Figure:
    rounds = 40 if around.quick else 300
    clocks = {"app": lambda: cpu_seconds(os.getpid()), "postgres": around.postgres.cpu_seconds}
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(rounds + 1):
        # Who comes second finds warmer caches: each kind does every other time.
        for with_row in (True, False) if number % 2 else (False, True):
            with Meter(clocks) as meter:
                for _ in range(BLOCK):
                    change(with_row)
            parts = meter.cost.per(BLOCK, "app"), meter.cost.per(BLOCK, "postgres")
            # The first round warms up both.
            if number:
                found[with_row].append(parts)
    pairs = list(zip(found[True], found[False], strict=True))
    added = [sum(having) - sum(without) for having, without in pairs]
    lower, middle, upper = quantiles(added, n=4)
    detail = {
        "from_us": round(lower, 1),
        "to_us": round(upper, 1),
        "app_us": round(median(having[0] - without[0] for having, without in pairs), 1),
        "postgres_us": round(median(having[1] - without[1] for having, without in pairs), 1),
        "without_row_us": round(median(map(sum, found[False])), 1),
    }
    around.say(
        f"{what}: {middle:.0f} us, half of {rounds} rounds {lower:.0f} to {upper:.0f}; "
        + ", ".join(f"{name} {value}" for name, value in detail.items())
    )
    return Figure("audit", f"{what}, CPU", middle, "us", GOAL_US, True, detail)


def _command(runtime: Runtime, principal: Principal, job_id: UUID, with_row: bool) -> None:
    """As `command_job`, with or without what it tells the audit."""
    begin, entropy = runtime.begin, runtime.entropy
    with begin() as uow, open_job(uow, entropy, job_id, principal.actor) as aggregate:
        if aggregate is None:
            raise RuntimeError("the job to command is gone")
        job = aggregate.job
        pauses = job.state is not JobState.PAUSED
        before: dict[str, object] = {"state": job.state, "stop_cause": job.stop_cause}
        if pauses:
            command_stop(aggregate, JobCommand.PAUSE, "Paused by ada.", runtime.limits)
        else:
            resume(aggregate, None)
        after: dict[str, object] = {"state": job.state, "stop_cause": job.stop_cause}
        if with_row:
            action = AuditAction.JOB_PAUSE if pauses else AuditAction.JOB_RESUME
            subject = Subject(SubjectKind.JOB, str(job.id), job.name, job.project_id)
            record_action(uow, entropy, principal, action, subject, before, after)


def _submit(runtime: Runtime, principal: Principal, with_row: bool) -> None:
    with runtime.begin() as uow:
        submission = build_submission(
            as_written(parse_spec(SPEC)), principal.project_id, ADA, uow.now, runtime.entropy,
            None, None, principal,
        )  # fmt: skip
        named = replace(submission, name=f"job-{submission.job_id}")
        uow.jobs.submit(named if with_row else replace(named, audit_id=None))
