"""Give a machine the values of the secrets that its job names: to members of the live attempt,
until it trains, and each time with a row in the audit. Of a cloud's secrets, the names alone are
known here.

Not here: who put the values there (`manage_secrets`), or what the machine does with them
(`trainer.agent.secrets`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from app.domain.access.principal import Origin, Principal
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.deployment.cloud_secrets import CloudSecretName
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, AttemptMember, Instance
from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.domain.projects.read_rules import parse_rules
from app.domain.units.errors import CommandRefused
from app.orchestration.agents.receive_agent_report import (
    CredentialRefused,
    FenceRefused,
    instance_of_credential,
)
from app.orchestration.audit.record_action import record_action
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.frame.runtime import Runtime
from app.orchestration.secrets.allow_cloud_secrets import cloud_name_of, not_allowed
from app.orchestration.secrets.manage_secrets import encryption_of, secret_context
from app.ports.value_encryption import KeyUnavailable, SealedValueChanged
from app.storage.access.secret_repository import StoredSecret
from app.storage.unit_of_work import UnitOfWork

DELIVERIES_MAX: Final = 20
"""To one member of an attempt. An agent asks once, and again if it starts anew or an answer was
lost; each delivery is a row of the audit for each secret."""
_MACHINE: Final = "a machine"


@dataclass(frozen=True)
class AskedSecrets:
    """What a machine is to be given. values: of the project's own secrets, by name. cloud: what it
    reads itself, by the names in the job. account: the project's, for those of Google.
    """

    job_id: UUID
    values: Mapping[str, str] = field(repr=False)
    cloud: Mapping[str, CloudSecretName]
    account: str | None


def deliver_secrets(
    uow: UnitOfWork, runtime: Runtime, credential_hash: str, fence: int, origin: Origin | None
) -> AskedSecrets:
    """What the machine's job names, by name; the same again until it is told to train,
    `DELIVERIES_MAX` times in all. A job that names none leaves no trace.

    origin: of the request, for the audit. Raises CredentialRefused; FenceRefused for an attempt
    that the machine is no member of, or that does not prepare; CommandRefused, which says which
    secrets are missing, cannot be read or are not allowed any more, or that it has asked too often.
    """
    instance_id, job_id = instance_of_credential(uow, credential_hash)
    actor = Actor(ActorKind.AGENT, str(instance_id))
    with open_job(uow, runtime.entropy, job_id, actor) as aggregate:
        instance = uow.instances.get(instance_id)
        if aggregate is None or instance is None or instance.credential_hash != credential_hash:
            raise CredentialRefused("This credential has been revoked.")
        aggregate.adopt(instance)
        attempt, member = _preparing(aggregate, instance, fence)
        names, project_id = aggregate.spec.secret_names, aggregate.job.project_id
        if not names and not aggregate.spec.cloud_secrets:
            return AskedSecrets(job_id, {}, {}, None)
        _count(attempt, member)
        found = uow.secrets.stored_of(project_id, names) if names else []
        values = _values(runtime, names, found) if names else {}
        cloud, account = _of_clouds(aggregate)
        machine = Principal(None, _MACHINE, project_id, "", Role.VIEWER, origin=origin)
        delivery = _Delivery(aggregate, runtime, instance, attempt, machine)
        delivery.write_down(found, cloud)
        return AskedSecrets(job_id, values, cloud, account)


def _preparing(
    aggregate: JobAggregate, instance: Instance, fence: int
) -> tuple[Attempt, AttemptMember]:
    attempt, member = aggregate.attempt, aggregate.member_of(instance.id)
    if attempt is None or attempt.fence != fence or member is None:
        raise FenceRefused(f"This machine is not a member of attempt {fence}, or it has ended.")
    trains = attempt.master_port is not None or attempt.state is not AttemptState.PREPARING
    if trains or member.outcome is not None:
        raise FenceRefused(f"Attempt {fence} does not prepare, so it is given no secrets.")
    return attempt, member


def _count(attempt: Attempt, member: AttemptMember) -> None:
    given = member.secret_deliveries or 0
    if given >= DELIVERIES_MAX:
        raise CommandRefused(
            f"This machine was given its secrets {DELIVERIES_MAX} times in attempt "
            f"{attempt.fence}, the most that a machine is: its agent starts again and again, or "
            "something else on it asks. The next attempt is given them."
        )
    member.secret_deliveries = given + 1


def _values(runtime: Runtime, names: Sequence[str], found: list[StoredSecret]) -> dict[str, str]:
    missing = sorted(set(names) - {stored.row.name for stored in found})
    if missing:
        raise CommandRefused(
            f"The project has no secret {', '.join(missing)} any more: set it again, or submit the "
            "job without it."
        )
    encryption, values, unreadable = encryption_of(runtime), {}, []
    for stored in found:
        row = stored.row
        context = secret_context(row.project_id, row.name, row.version)
        try:
            values[row.name] = encryption.open(stored.sealed, context).decode()
        except (KeyUnavailable, SealedValueChanged):
            unreadable.append(row.name)
    if unreadable:
        raise CommandRefused(
            f"The server cannot read the secret {', '.join(unreadable)}: whoever runs it finds the "
            "reason with `lowtide secret verify`."
        )
    return values


def _of_clouds(aggregate: JobAggregate) -> tuple[dict[str, CloudSecretName], str | None]:
    """By the names in the job, and the project's account. Raises CommandRefused."""
    uses = aggregate.spec.cloud_secrets
    if not uses:
        return {}, None
    row = aggregate.uow.rules.of(aggregate.job.project_id)
    rules = parse_rules(row.document)
    named = {use.name: cloud_name_of(use) for use in uses}
    refused = [told for one in named.values() if (told := not_allowed(rules, row.project, one))]
    if refused:
        raise CommandRefused(f"The job's machines may not read a secret: {refused[0]}.")
    return named, rules.secret_account


@dataclass(frozen=True)
class _Delivery:
    """What is written down of an answer: names, never anything made of a value."""

    aggregate: JobAggregate
    runtime: Runtime
    instance: Instance
    attempt: Attempt
    machine: Principal

    def write_down(
        self, found: Sequence[StoredSecret], cloud: Mapping[str, CloudSecretName]
    ) -> None:
        """A row of the audit for each secret, and one line in the job's history."""
        for stored in found:
            facts = {"name": stored.row.name, "version": stored.row.version}
            self._audit(str(stored.row.id), stored.row.name, facts)
        for name, named in cloud.items():
            self._audit(str(named), str(named), {"name": name, "source": str(named)})
        told = [f"{stored.row.name} (version {stored.row.version})" for stored in found]
        told += [f"{name} (to be read as {named})" for name, named in cloud.items()]
        if told:
            self.aggregate.record(
                JobEventKind.SECRETS_DELIVERED,
                f"The machine was given its secrets: {', '.join(told)}.",
                about=self.instance,
            )

    def _audit(self, subject_id: str, name: str, facts: Mapping[str, object]) -> None:
        job = self.aggregate.job
        record_action(
            self.aggregate.uow,
            self.runtime.entropy,
            self.machine,
            AuditAction.SECRET_DELIVER,
            Subject(SubjectKind.SECRET, subject_id, name, job.project_id),
            after={
                **facts,
                "job_id": str(job.id),
                "fence": self.attempt.fence,
                "instance_id": str(self.instance.id),
            },
        )
