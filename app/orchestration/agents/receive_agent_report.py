"""Apply what an agent reports: each fact once, in order, under the job's lock.

Lives here: the report's way into the rows. A report without new facts changes no state and is
answered from memory (`agent_report_cache`), which writes contacts in batches. Not here:
the meaning of each fact (`apply_facts`).
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from app.domain.deployment.disk_full import DISK_FULL_KEY, without_disk
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Contact, Instance
from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.domain.lifecycle.job import JobState
from app.domain.units.errors import DomainError
from app.orchestration.agents.apply_facts import apply_fact, end_forgotten_member
from app.orchestration.agents.register_agent import NotKnownYet
from app.orchestration.directives.compute_directive import compute_directive
from app.orchestration.estimates.attempt_measures import forget_pace, hear_pace
from app.orchestration.estimates.estimate_remaining import keep_progress, work_left
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.frame.lost_rows import numbered_before_gap
from app.orchestration.frame.runtime import Runtime
from app.storage.unit_of_work import UnitOfWork
from trainer.protocol.agent_report import AgentReport, DiskFull
from trainer.protocol.directive import ReportReply

_FOLDER_CHARACTERS_MAX = 200


class CredentialRefused(DomainError):
    """The credential is unknown or revoked (HTTP 401)."""


class FenceRefused(DomainError):
    """The machine reports for an attempt it is no member of (HTTP 403)."""


def receive_in_transaction(
    runtime: Runtime, credential_hash: str, report: AgentReport
) -> tuple[UUID, ReportReply]:
    """The agent's job and the answer, by `receive_agent_report` in a transaction of its own."""
    with runtime.begin() as uow:
        _, job_id = instance_of_credential(uow, credential_hash, report.instance_id)
        return job_id, receive_agent_report(uow, runtime, credential_hash, report)


def receive_agent_report(
    uow: UnitOfWork, runtime: Runtime, credential_hash: str, report: AgentReport
) -> ReportReply:
    """Apply a report and answer it. A replayed report has no effect and gets the same answer.

    A report of another session than the registered one comes from an agent that has since been
    restarted: it is answered, and nothing of it is applied.

    Raises CredentialRefused, FenceRefused when the report names a fence of another machine, or
    NotKnownYet as `instance_of_credential` does.
    """
    instance_id, job_id = instance_of_credential(uow, credential_hash, report.instance_id)
    if str(instance_id) != report.instance_id:
        raise CredentialRefused("This credential is unknown or has been revoked.")
    actor = Actor(ActorKind.AGENT, str(instance_id))
    with open_job(uow, runtime.entropy, job_id, actor) as aggregate:
        instance = uow.instances.get(instance_id)
        if aggregate is None or instance is None or instance.credential_hash != credential_hash:
            raise CredentialRefused("This credential has been revoked.")
        aggregate.adopt(instance)
        _check_fence(aggregate, instance, report)
        contact = uow.instances.contact(instance.id)
        known = contact is not None and contact.session_id == report.session_id
        if contact is not None and known:
            _touch(aggregate, contact, report, instance)
            _apply_new_facts(aggregate, instance, contact, report, runtime)
            _record_forgotten_end(aggregate, instance, contact, report, runtime)
            _keep_progress(aggregate, instance, contact)
        directive = compute_directive(
            aggregate.job,
            aggregate.attempt,
            aggregate.members,
            aggregate.instances,
            instance,
            aggregate.now,
        )
        return ReportReply(
            ack_fact_no=contact.fact_no if contact is not None and known else 0,
            lease_seconds=runtime.limits.agent_lease_seconds,
            next_report_seconds=runtime.limits.report_interval_seconds,
            directive=directive,
        )


def _check_fence(aggregate: JobAggregate, instance: Instance, report: AgentReport) -> None:
    fences = {report.fence, *(fact.fence for fact in report.facts)} - {None}
    for fence in sorted(fence for fence in fences if fence is not None):
        attempt, members = aggregate.attempt, aggregate.members
        if attempt is None or attempt.fence != fence:
            attempt = aggregate.uow.attempts.by_fence(aggregate.job.id, fence)
            members = [] if attempt is None else aggregate.uow.attempts.members(attempt.id)
        if instance.id not in {member.instance_id for member in members}:
            raise FenceRefused(f"This machine is not a member of attempt {fence}.")


def _touch(
    aggregate: JobAggregate, contact: Contact, report: AgentReport, instance: Instance
) -> None:
    """Move the contact row to this report, unless a later one has come before it."""
    if report.seq < contact.seq:
        return
    contact.seq = report.seq
    contact.answered_at = max(contact.answered_at, aggregate.now)
    if report.fence is not None and report.fence != contact.fence:
        forget_pace(contact)
    contact.phase, contact.fence = report.phase.value, report.fence
    was_full = DISK_FULL_KEY in contact.metrics
    contact.metrics = without_disk(contact.metrics)
    progress = report.progress
    if progress is not None:
        if progress.step != contact.step:
            contact.step_at = aggregate.now
        contact.step, contact.total_steps = progress.step, progress.total_steps
        contact.metrics = dict(progress.metrics)
        hear_pace(contact, progress.pace)
        if progress.total_steps is not None:
            aggregate.job.total_steps = progress.total_steps
    full = report.disk_full
    if full is not None:
        contact.metrics = {**contact.metrics, DISK_FULL_KEY: float(full.free_bytes)}
    if was_full != (full is not None):
        _record_disk(aggregate, instance, full)


def _record_disk(aggregate: JobAggregate, instance: Instance, full: DiskFull | None) -> None:
    """A line in the job's history where a disk fills up, and where it has room again."""
    if full is None:
        text = "The full disk has space again."
        aggregate.record(JobEventKind.DISK_HAS_ROOM, text, about=instance)
        return
    folder = full.folder[:_FOLDER_CHARACTERS_MAX]
    aggregate.record(
        JobEventKind.DISK_FULL,
        f"Disk full: {full.free_bytes:,} bytes are free in {folder}. Training continues; "
        "checkpoints that do not fit are skipped.",
        about=instance,
        folder=folder,
        free_bytes=full.free_bytes,
    )


def _keep_progress(aggregate: JobAggregate, instance: Instance, contact: Contact) -> None:
    """What the list tells of a job that runs; by the machine that tells steps, or the first."""
    member, attempt = aggregate.member_of(instance.id), aggregate.attempt
    if member is None or attempt is None or aggregate.job.state is not JobState.RUNNING:
        return
    if contact.fence == attempt.fence and (contact.step is not None or member.node_rank == 0):
        job, spec, now = aggregate.job, aggregate.spec, aggregate.now
        keep_progress(job, work_left(job, spec, attempt, [contact], now), now)


def _record_forgotten_end(
    aggregate: JobAggregate,
    instance: Instance,
    contact: Contact,
    report: AgentReport,
    runtime: Runtime,
) -> None:
    """After a gap: its rows say that it trains, and it works for no attempt and has no more to say.

    The facts that say why were acknowledged by rows that are lost.
    """
    member, attempt = aggregate.member_of(instance.id), aggregate.attempt
    if report.fence is not None or report.facts or report.seq < contact.seq:
        return
    if member is None or member.started_at is None or member.outcome is not None:
        return
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        return
    if numbered_before_gap(aggregate.uow, attempt):
        end_forgotten_member(aggregate, member, runtime.limits)


def _apply_new_facts(
    aggregate: JobAggregate,
    instance: Instance,
    contact: Contact,
    report: AgentReport,
    runtime: Runtime,
) -> None:
    """Facts above the last known number, in their order; each dated by the machine's uptime."""
    new = [fact for fact in report.facts if fact.fact_no > contact.fact_no]
    new.sort(key=lambda fact: fact.fact_no)
    if new:
        contact.fact_no = new[-1].fact_no
    for fact in new:
        age = max(0, report.uptime_ms - fact.uptime_ms)
        happened_at = aggregate.now - timedelta(milliseconds=age)
        apply_fact(aggregate, instance, fact, report.session_id, happened_at, runtime.limits)


def instance_of_credential(
    uow: UnitOfWork, credential_hash: str, named_id: str | None = None
) -> tuple[UUID, UUID]:
    """(instance, job) of a credential; CredentialRefused when it is unknown or revoked.

    named_id: the instance that its holder says it is. Where no such row is, nothing was revoked:
    rows have been lost, as by restoring a backup, and NotKnownYet lets the machine train on.
    """
    instance_id, job_id = uow.instances.holder_of(credential_hash) or (None, None)
    if instance_id is None or job_id is None:
        if named_id is not None and not _has_row(uow, named_id):
            raise NotKnownYet("This machine is unknown here; keep training and try again.")
        raise CredentialRefused("This credential is unknown or has been revoked.")
    return instance_id, job_id


def _has_row(uow: UnitOfWork, named_id: str) -> bool:
    """Whether there is such an instance; what is no id at all is nobody's, and no loss."""
    try:
        return uow.instances.get(UUID(named_id)) is not None
    except ValueError:
        return True
