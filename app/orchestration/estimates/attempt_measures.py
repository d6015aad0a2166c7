"""What agents measured of a job's attempts: the pace of steps, and the start-up of its trainer.

Lives here: the way from a report into a machine's contact, and from there or from the fact of its
end onto the attempt and the job; the deployment's times with a job's start-up; and what other runs
of the same work measured. Not here: the measuring (`rules.step_pace`), the figures themselves
(`throughput.start_up`, `throughput.measured_work`), or what follows from them
(`estimate_remaining`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.availability.hazard_by_age import EXPERIENCE_KEPT
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Contact, Job
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.spec_document import SpecDocument
from app.domain.throughput.measured_work import MeasuredWork, measured_work
from app.domain.throughput.same_work import work_digest
from app.domain.throughput.start_up import (
    NOT_LEARNED,
    StartUp,
    at_least,
    learn_start_up,
    start_up_by_saves,
)
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.fact_context import number, whole_number
from app.orchestration.frame.limits import Limits
from app.storage.unit_of_work import UnitOfWork
from trainer.protocol.agent_report import Pace


def hear_pace(contact: Contact, pace: Pace | None) -> None:
    """Take over what a report says; one that says nothing changes nothing."""
    if pace is not None:
        contact.first_step, contact.last_step = pace.first_step, pace.last_step
        contact.stepping_seconds = pace.stepping_seconds
        contact.start_up_seconds = pace.start_up_seconds


def forget_pace(contact: Contact) -> None:
    """The machine works for another attempt: nothing was seen of it yet."""
    contact.step = contact.step_at = None
    contact.first_step = contact.last_step = None
    contact.stepping_seconds = contact.start_up_seconds = None


def pace_of(measured: Contact | Attempt | None) -> Pace | None:
    """What was measured; None where nothing was."""
    if measured is None or measured.first_step is None or measured.last_step is None:
        return None
    if measured.stepping_seconds is None or measured.start_up_seconds is None:
        return None
    return Pace(
        measured.first_step,
        measured.last_step,
        measured.stepping_seconds,
        measured.start_up_seconds,
    )


def told_pace(value: object) -> Pace | None:
    """A pace in the data of a fact; None for anything that is none."""
    if not isinstance(value, dict):
        return None
    first, last = whole_number(value.get("first_step")), whole_number(value.get("last_step"))
    stepping, start_up = (
        number(value.get("stepping_seconds")),
        number(value.get("start_up_seconds")),
    )
    if first is None or last is None or stepping is None or start_up is None:
        return None
    if not 0 <= first <= last or stepping < 0 or start_up < 0:
        return None
    return Pace(first, last, stepping, start_up)


def keep_pace(attempt: Attempt, found: Iterable[Pace | None]) -> None:
    """Keep on an attempt what its machines measured: of the one that came furthest."""
    paces = [pace for pace in (pace_of(attempt), *found) if pace is not None]
    if not paces:
        return
    best = max(paces, key=lambda pace: (pace.last_step, pace.stepping_seconds))
    attempt.first_step, attempt.last_step = best.first_step, best.last_step
    attempt.stepping_seconds = best.stepping_seconds
    attempt.start_up_seconds = best.start_up_seconds
    if attempt.trained_at is not None:
        attempt.first_step_at = attempt.trained_at + timedelta(seconds=best.start_up_seconds)


def newest_of(contacts: list[Contact], attempt: Attempt | None) -> Contact | None:
    """Of the live attempt's machines the one that came furthest; None before any step."""
    return max(
        (c for c in contacts if c.step is not None and _current(c, attempt)),
        key=lambda contact: contact.step or 0,
        default=None,
    )


def _current(contact: Contact, attempt: Attempt | None) -> bool:
    return attempt is not None and contact.fence == attempt.fence


def unstepped_seconds(
    attempt: Attempt | None, newest: Contact | None, now: datetime
) -> float | None:
    """How long a trainer runs without having made a step; None if it has, or does not run.

    A command that tells no steps has made some by its first save.
    """
    if attempt is None or attempt.trained_at is None or attempt.state is not AttemptState.RUNNING:
        return None
    stepped = newest is not None and (newest.step or 0) > (attempt.parent_step or 0)
    if stepped or pace_of(newest) is not None or attempt.committed_at is not None:
        return None
    return max(0.0, (now - attempt.trained_at).total_seconds())


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


def read_measured(uow: UnitOfWork, project_id: UUID, spec: JobSpec, now: datetime) -> MeasuredWork:
    """What the newest runs of this work say of kinds of machine and of sizes of gang."""
    since = now - EXPERIENCE_KEPT
    return measured_work(uow.pool_experience.measured_runs(project_id, spec.to_json(), since))
