"""How long a job's trainer takes to start, read from rows, and the limits that count with it.

Lives here: the figure of a job or of a spec, kept on the job when an attempt ends, and the
deployment's times with it. Not here: the figure itself (`throughput.start_up`), or the rate of what
follows the first step (`estimate_remaining`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Contact, Job
from app.domain.spec.spec_document import SpecDocument
from app.domain.throughput.same_work import work_digest
from app.domain.throughput.start_up import (
    NOT_LEARNED,
    StartUp,
    at_least,
    learn_start_up,
    start_up_by_saves,
)
from app.orchestration.estimates.estimate_remaining import newest_of, unstepped_seconds
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.limits import Limits
from app.storage.unit_of_work import UnitOfWork


def read_start_up(uow: UnitOfWork, project_id: UUID, spec: SpecDocument) -> StartUp | None:
    """What other jobs with the same work took; None where none was measured."""
    found = uow.attempts.start_ups(work_digest(project_id, spec))
    return learn_start_up((), [seconds for _, seconds in found])


def record_start_up(aggregate: JobAggregate, attempt: Attempt) -> None:
    """Keep on the job what an ending attempt has taught; its measures are on it already."""
    job, uow = aggregate.job, aggregate.uow
    if attempt.start_up_seconds is not None:
        attempt.work_digest = work_digest(job.project_id, job.spec)
        found = uow.attempts.start_ups(attempt.work_digest)
        own = [seconds for job_id, seconds in found if job_id == job.id]
        alike = [seconds for job_id, seconds in found if job_id != job.id]
        keep_start_up(job, learn_start_up(own, alike))
        return
    stepped = attempt.committed_at is not None or attempt.best_step > (attempt.parent_step or 0)
    if stepped and job.start_up_seconds is None:
        job.start_up_p95_seconds = None  # it works, and tells nothing of how it starts
    elif attempt.trained_at is not None and not stepped:
        # It was cut off in its start, or tells no steps: the next one may take as long.
        waited = (aggregate.now - attempt.trained_at).total_seconds()
        known = StartUp(job.start_up_seconds or 0.0, job.start_up_p95_seconds or 0.0)
        job.start_up_p95_seconds = at_least(known, waited).slow


def record_second_save(aggregate: JobAggregate, attempt: Attempt, at: datetime) -> None:
    """Keep on the attempt how long it took to start, where only its saves tell it.

    at: of a save that is not kept on the attempt yet. A save that a drain asks for tells nothing:
    it comes before its time. Of steps, agents measure how long the first one took.
    """
    first_at, began_at = attempt.committed_at, attempt.trained_at
    if first_at is None or began_at is None or attempt.start_up_seconds is not None:
        return
    if attempt.state is AttemptState.RUNNING and _newest(aggregate) is None:
        attempt.start_up_seconds = start_up_by_saves(
            (first_at - began_at).total_seconds(), (at - began_at).total_seconds()
        )


def keep_start_up(job: Job, learned: StartUp | None) -> None:
    """Keep on the job what is known by now."""
    if learned is not None:
        job.start_up_seconds, job.start_up_p95_seconds = learned.usual, learned.slow


def start_up_of(job: Job) -> StartUp:
    """As it is kept on the job.

    Of a job whose every start was cut off only that is known: each restart takes at least so long.
    """
    slow = job.start_up_p95_seconds or 0.0
    usual = slow if job.start_up_seconds is None else job.start_up_seconds
    return StartUp(usual, max(usual, slow))


def own_limits(aggregate: JobAggregate, limits: Limits) -> Limits:
    """The deployment's times for this job: a restart takes its start-up, too.

    Asking twice changes nothing. The live attempt counts already: with what was measured of it, and
    before its first step with the time that its process has run.
    """
    job, attempt = aggregate.job, aggregate.attempt
    known = start_up_of(job)
    if attempt is not None and attempt.trained_at is not None:
        newest = _newest(aggregate)
        measured = attempt.start_up_seconds if newest is None else newest.start_up_seconds
        waited = unstepped_seconds(attempt, newest, aggregate.now)
        if measured is not None:
            usual = measured if job.start_up_seconds is None else known.usual
            known = StartUp(usual, max(known.slow, measured))
        elif waited is not None:
            known = at_least(known, waited)
    return with_start_up(limits, known)


def with_start_up(limits: Limits, start_up: StartUp | None) -> Limits:
    """The same times, with this start-up in every restart; None: not known."""
    known = start_up or NOT_LEARNED
    return replace(limits, start_up_seconds=known.usual, start_up_p95_seconds=known.slow)


def _newest(aggregate: JobAggregate) -> Contact | None:
    found = [aggregate.uow.instances.contact(member.instance_id) for member in aggregate.members]
    return newest_of([one for one in found if one is not None], aggregate.attempt)
