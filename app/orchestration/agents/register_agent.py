"""A machine's agent says who it is, and gets its own credential.

Lives here: the exchange of a launch's one-time token for an instance's credential. Not here: what
agents report afterwards (`receive_agent_report`).
"""

from __future__ import annotations

import hmac
from datetime import timedelta

from app.domain.deployment.credentials import digest, instance_credential
from app.domain.lifecycle.entities import Contact, Instance, Job, Launch
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.instance import TERMINAL_INSTANCE_STATES, InstanceEvent, InstanceState
from app.domain.market.storage_places import StoragePlace, job_places
from app.domain.spec.job_spec import JobSpec
from app.domain.units.errors import CommandRefused, DomainError
from app.orchestration.directives.compute_directive import compute_directive
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.frame.lost_rows import lists_are_awaited
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.advance_attempt import advance_attempt
from app.orchestration.gang.assign_instances import assign
from app.orchestration.transitions.resize_gangs import yield_to_larger
from app.storage.unit_of_work import UnitOfWork
from trainer.protocol.agent_report import MachinePhase, Registration
from trainer.protocol.directive import RegistrationReply
from trainer.protocol.run_config import RunConfig


class TokenRefused(DomainError):
    """The launch token is unknown, or its time is over (HTTP 401)."""


class NotKnownYet(DomainError):
    """The launch's answer has not been recorded yet: ask again shortly (HTTP 425)."""


class AgentRefused(CommandRefused):
    """Someone who is none of the launch's machines shows its token: an alarm (HTTP 409)."""


def register_agent(
    uow: UnitOfWork, runtime: Runtime, registration: Registration
) -> RegistrationReply:
    """Register the agent of one machine; the same nonce always gets the same answer.

    Raises TokenRefused, NotKnownYet, AgentRefused for a nonce too many, which is recorded for
    people to see (`record_refusal`), or CommandRefused for the late word of an agent that another
    one has followed on the same machine, and for one that cannot ask for the job's secrets.
    """
    launch = uow.launches.by_token_hash(digest(registration.launch_token))
    if launch is None and lists_are_awaited(uow, uow.now):
        # A restored database may have lost it: the lists that come bring such launches back.
        raise NotKnownYet("The launch of this token is not recorded yet; try again.")
    if launch is None:
        raise TokenRefused("The launch token is unknown.")
    actor = Actor(ActorKind.AGENT, registration.provider_instance_id)
    with open_job(uow, runtime.entropy, launch.job_id, actor) as aggregate:
        if aggregate is None:
            raise TokenRefused("The job of this launch token no longer exists.")
        # Its answer may have been settled while the lock was waited for.
        launch = uow.launches.by_token_hash(launch.token_hash) or launch
        instance = uow.instances.by_provider_id(launch.provider, registration.provider_instance_id)
        if instance is None or instance.launch_id != launch.id:
            raise _unknown_machine(uow, launch)
        aggregate.adopt(instance)
        if aggregate.spec.names_secrets and not registration.takes_secrets:
            raise CommandRefused(
                "This machine's agent is of a release that cannot ask for secrets, which its job "
                "names. A machine that is launched now has one that can."
            )
        secret = uow.operations.deployment_secret()
        credential = instance_credential(secret, str(instance.id), registration.nonce)
        if instance.nonce_hash is None:
            if aggregate.now > launch.token_expires_at:
                raise TokenRefused("The launch token has expired.")
            _first_time(aggregate, instance, registration, credential, runtime)
        elif not hmac.compare_digest(instance.nonce_hash, digest(registration.nonce)):
            raise AgentRefused("Another agent has registered for this machine already.")
        elif instance.credential_hash is None:
            raise TokenRefused("This machine is being released; its credential is revoked.")
        else:
            _renew_session(aggregate, instance, registration)
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
            log_gaps=True,
            storage=_services(aggregate.job, aggregate.spec, runtime),
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
        raise TokenRefused("This machine is being released.")
    instance.nonce_hash = digest(registration.nonce)
    instance.credential_hash = digest(credential)
    instance.private_address = registration.private_address
    instance.port_from, instance.port_to = registration.port_from, registration.port_to
    instance.registered_at = aggregate.now
    instance.register_until_at = None
    aggregate.move_instance(instance, InstanceEvent.AGENT_REGISTERED, "The machine is ready.")
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
            session_uptime_ms=registration.uptime_ms,
            session_at=aggregate.now,
        )
    )
    aggregate.uow.flush()
    member = aggregate.member_of(instance.id)
    attempt = aggregate.attempt
    assign(aggregate, instance, attempt.id if member is not None and attempt else None)
    advance_attempt(aggregate, runtime.limits)
    yield_to_larger(aggregate, runtime.limits)


def _unknown_machine(uow: UnitOfWork, launch: Launch) -> DomainError:
    """Why a machine without a row cannot register: it is early, or one more than was launched."""
    machines = uow.instances.of_launch(launch.id)
    known = [
        one
        for one in machines
        if one.provider_instance_id is not None or one.state in TERMINAL_INSTANCE_STATES
    ]
    if len(known) < launch.count:
        return NotKnownYet("This machine's launch has not been recorded yet; try again.")
    if launch.count == 1:
        return AgentRefused("This launch already has its machine; this is another one.")
    return AgentRefused(
        f"This launch already has its {launch.count} machines; this is another one."
    )


def _renew_session(aggregate: JobAggregate, instance: Instance, registration: Registration) -> None:
    """A restarted agent counts its reports and facts anew; its former self is heard no more.

    Raises CommandRefused when it is the former self that speaks: a request held up on the way must
    not take the machine from the agent that runs there now.
    """
    contact = aggregate.uow.instances.contact(instance.id)
    if contact is None or contact.session_id == registration.session_id:
        return
    if _is_former(aggregate, instance, contact, registration):
        raise CommandRefused("A later agent of this machine has registered already.")
    contact.session_id, contact.seq, contact.fact_no = registration.session_id, 0, 0
    contact.session_uptime_ms, contact.session_at = registration.uptime_ms, aggregate.now


def _is_former(
    aggregate: JobAggregate, instance: Instance, contact: Contact, registration: Registration
) -> bool:
    """Whether the registration was written before the present session's.

    Within one boot the machine's own uptime orders them. Of two boots the earlier one began
    earlier by our clock too: a delay on the way is shorter than a machine's time between boots.
    """
    if contact.session_uptime_ms is None or contact.session_at is None:
        return False
    if registration.boot_id == instance.boot_id:
        return registration.uptime_ms < contact.session_uptime_ms
    booted_at = contact.session_at - timedelta(milliseconds=contact.session_uptime_ms)
    return aggregate.now - timedelta(milliseconds=registration.uptime_ms) < booted_at


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
        image=spec.image,
        shm_mb=spec.resources.shm_mb,
        inputs=spec.brought_folders(),
        outputs=dict(spec.outputs),
        secrets=spec.secrets or (),
        image_secret=spec.image_secret,
    )


def storage_places(job: Job, spec: JobSpec, runtime: Runtime) -> tuple[StoragePlace, ...]:
    """What the job's machines need of the clouds' object stores."""
    lineage = checkpoint_uri(job, spec, runtime)
    return job_places(str(job.id), lineage, spec.brought_folders(), spec.outputs)


def _services(job: Job, spec: JobSpec, runtime: Runtime) -> tuple[str, ...]:
    needed = {one.service for one in storage_places(job, spec, runtime)}
    return tuple(sorted(needed & runtime.storage_services))


def checkpoint_uri(job: Job, spec: JobSpec, runtime: Runtime) -> str:
    """Where the lineage of a job lies: a folder of its own below the spec's or our own root."""
    root = spec.checkpoint.uri or runtime.checkpoint_root_uri
    return f"{str(root).rstrip('/')}/{job.id}"
