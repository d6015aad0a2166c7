"""The directives of all machines of some jobs, read at one instant and without any lock.

Lives here: the reading that answers from memory rest on. Not here: what a directive is
(`compute_directive`), or the memory (`agent_report_cache`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from app.orchestration.directives.compute_directive import compute_directive
from app.orchestration.frame.runtime import Runtime
from app.storage.unit_of_work import UnitOfWork
from trainer.protocol.directive import Directive

_JOBS_PER_TRANSACTION = 50


@dataclass(frozen=True)
class HeldDirective:
    """What an instance should do, and the digest of the credential its agent must hold."""

    credential_hash: str
    directive: Directive


JobDirectives = dict[UUID, HeldDirective]
"""By instance. An instance without a credential, or without a live row, is not in it."""


def read_directives(runtime: Runtime, job_ids: Iterable[UUID]) -> dict[UUID, JobDirectives]:
    """By job; a job that is gone has an empty entry.

    Each batch of jobs is read from one snapshot: a job's version read now with its attempt read a
    moment later could pass off an old order as a new one.
    """
    wanted = sorted(set(job_ids))
    found: dict[UUID, JobDirectives] = {}
    for first in range(0, len(wanted), _JOBS_PER_TRANSACTION):
        with runtime.begin() as uow:
            uow.contacts.read_one_instant()
            for job_id in wanted[first : first + _JOBS_PER_TRANSACTION]:
                found[job_id] = _of_job(uow, job_id)
    return found


def _of_job(uow: UnitOfWork, job_id: UUID) -> JobDirectives:
    job = uow.jobs.get(job_id)
    if job is None:
        return {}
    attempt = uow.attempts.live(job_id)
    members = [] if attempt is None else uow.attempts.members(attempt.id)
    instances = {instance.id: instance for instance in uow.instances.of_job(job_id)}
    own = list(instances.values())
    for member in members:
        if member.instance_id not in instances:
            peer = uow.instances.get(member.instance_id)
            if peer is not None:
                instances[peer.id] = peer
    return {
        instance.id: HeldDirective(
            instance.credential_hash,
            compute_directive(job, attempt, members, instances, instance, uow.now),
        )
        for instance in own
        if instance.credential_hash is not None
    }
