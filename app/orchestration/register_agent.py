"""A machine's agent says who it is, and gets its own credential.

Lives here: the exchange of a launch's one-time token for an instance's credential. Not here: what
agents report afterwards (`receive_agent_report`).
"""

from __future__ import annotations

import hmac

from app.domain.credentials import digest, instance_credential
from app.domain.entities import Contact, Instance, Job
from app.domain.errors import CommandRefused, DomainError
from app.domain.events import Actor, ActorKind
from app.domain.instance import InstanceEvent, InstanceState
from app.domain.job_spec import JobSpec
from app.orchestration.advance_attempt import advance_attempt
from app.orchestration.aggregate import JobAggregate, open_job
from app.orchestration.assign_instances import assign
from app.orchestration.compute_directive import compute_directive
from app.orchestration.runtime import Runtime
from app.ports.unit_of_work import UnitOfWork
from trainer.protocol.agent_report import MachinePhase, Registration
from trainer.protocol.directive import RegistrationReply
from trainer.protocol.run_config import RunConfig


class TokenRefused(DomainError):
    """The launch token is unknown, or its time is over (HTTP 401)."""


class NotKnownYet(DomainError):
    """The launch's answer has not been recorded yet: ask again shortly (HTTP 425)."""


def register_agent(
    uow: UnitOfWork, runtime: Runtime, registration: Registration
) -> RegistrationReply:
    """Register the agent of one machine; the same nonce always gets the same answer.

    Raises TokenRefused, NotKnownYet, or CommandRefused when another nonce has registered already,
    which is recorded for people to see.
    """
    launch = uow.launches.by_token_hash(digest(registration.launch_token))
    if launch is None:
        raise TokenRefused("The launch token is not known here.")
    actor = Actor(ActorKind.AGENT, registration.provider_instance_id)
    with open_job(uow, runtime.entropy, launch.job_id, actor) as aggregate:
        if aggregate is None:
            raise TokenRefused("The job of this launch token no longer exists.")
        instance = uow.instances.by_provider_id(launch.provider, registration.provider_instance_id)
        if instance is None or instance.launch_id != launch.id:
            raise NotKnownYet("This machine's launch has not been recorded yet; try again.")
        aggregate.adopt(instance)
        secret = uow.operations.deployment_secret()
        credential = instance_credential(secret, str(instance.id), registration.nonce)
        if instance.nonce_hash is None:
            if aggregate.now > launch.token_expires_at:
                raise TokenRefused("The launch token's time is over.")
            _first_time(aggregate, instance, registration, credential, runtime)
        elif not hmac.compare_digest(instance.nonce_hash, digest(registration.nonce)):
            raise CommandRefused("Another agent has registered for this machine already.")
        elif instance.credential_hash is None:
            raise TokenRefused("This machine is being given back; its credential is revoked.")
        else:
            _renew_session(uow, instance, registration)
        instance.boot_id = registration.boot_id
        directive = compute_directive(
            aggregate.job,
            aggregate.attempt,
            aggregate.members,
            aggregate.instances,
            instance,
            aggregate.now,
        )
        return RegistrationReply(
            instance_id=str(instance.id),
            credential=credential,
            lease_seconds=runtime.limits.agent_lease_seconds,
            next_report_seconds=runtime.limits.report_interval_seconds,
            run_config=run_config_of(aggregate.job, aggregate.spec, runtime),
            directive=directive,
        )


def _first_time(
    aggregate: JobAggregate,
    instance: Instance,
    registration: Registration,
    credential: str,
    runtime: Runtime,
) -> None:
    if instance.state in (InstanceState.TERMINATING, InstanceState.TERMINATED):
        raise TokenRefused("This machine is being given back.")
    instance.nonce_hash = digest(registration.nonce)
    instance.credential_hash = digest(credential)
    instance.private_address = registration.private_address
    instance.port_from, instance.port_to = registration.port_from, registration.port_to
    instance.registered_at = aggregate.now
    instance.register_until_at = None
    aggregate.move_instance(instance, InstanceEvent.AGENT_REGISTERED, "Its agent has registered.")
    if instance.launched_at is None:
        # The cloud's own word on the launch time has not come yet: look now.
        instance.describe_at = aggregate.now
    aggregate.uow.instances.add_contact(
        Contact(
            instance_id=instance.id,
            session_id=registration.session_id,
            seq=0,
            answered_at=aggregate.now,
            phase=MachinePhase.BOOT.value,
        )
    )
    aggregate.uow.flush()
    member = aggregate.member_of(instance.id)
    attempt = aggregate.attempt
    assign(aggregate, instance, attempt.id if member is not None and attempt else None)
    advance_attempt(aggregate, runtime.limits)


def _renew_session(uow: UnitOfWork, instance: Instance, registration: Registration) -> None:
    """A restarted agent counts its reports and facts anew; its former self is heard no more."""
    contact = uow.instances.contact(instance.id)
    if contact is not None and contact.session_id != registration.session_id:
        contact.session_id, contact.seq, contact.fact_no = registration.session_id, 0, 0


def run_config_of(job: Job, spec: JobSpec, runtime: Runtime) -> RunConfig:
    """What the job runs, as its agents need it."""
    return RunConfig(
        job_id=str(job.id),
        job_name=job.name,
        num_nodes=job.node_count,
        gpus_per_node=spec.gpus_per_node,
        checkpoint_uri=checkpoint_uri(job, spec, runtime),
        checkpoint_keep=spec.checkpoint.keep,
        stall_timeout_seconds=float(spec.stall_timeout_seconds),
        trainer=spec.trainer_config(),
        run=spec.run,
        setup=spec.setup,
        workdir=spec.workdir,
        env=dict(spec.env),
    )


def checkpoint_uri(job: Job, spec: JobSpec, runtime: Runtime) -> str:
    """Where the lineage of a job lies: a folder of its own below the spec's or our own root."""
    root = spec.checkpoint.uri or runtime.checkpoint_root_uri
    return f"{str(root).rstrip('/')}/{job.id}"
