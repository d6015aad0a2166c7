"""Write down that a second agent tried to register for a machine, for people to see.

Not here: the refusal itself (`register_agent`), whose transaction leaves nothing behind.
"""

from __future__ import annotations

from app.domain.credentials import digest
from app.domain.events import Actor, ActorKind, JobEventKind
from app.orchestration.aggregate import open_job
from app.orchestration.runtime import Runtime
from app.ports.unit_of_work import UnitOfWork
from trainer.protocol.agent_report import Registration


def record_refusal(uow: UnitOfWork, runtime: Runtime, registration: Registration) -> None:
    """Add it to the history of the job whose launch token was shown."""
    launch = uow.launches.by_token_hash(digest(registration.launch_token))
    if launch is None:
        return
    actor = Actor(ActorKind.AGENT, registration.provider_instance_id)
    with open_job(uow, runtime.entropy, launch.job_id, actor) as aggregate:
        instance = uow.instances.by_provider_id(launch.provider, registration.provider_instance_id)
        if aggregate is None or instance is None:
            return
        aggregate.record(
            JobEventKind.CREDENTIAL_REFUSED,
            "Another agent tried to register for this machine with its launch token: the token "
            "may be in the wrong hands.",
            noun="instance",
            noun_id=instance.id,
        )
