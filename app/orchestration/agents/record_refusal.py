"""Write down that an agent too many tried to register, for people to see.

Not here: the refusal itself (`register_agent`), whose transaction leaves nothing behind.
"""

from __future__ import annotations

from datetime import timedelta

from app.domain.deployment.credentials import digest
from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.runtime import Runtime
from app.storage.unit_of_work import UnitOfWork
from trainer.protocol.agent_report import Registration

ALARM_EVERY = timedelta(minutes=1)


def record_refusal(uow: UnitOfWork, runtime: Runtime, registration: Registration) -> None:
    """Add it to the history of the job whose launch token was shown, at most once a minute."""
    launch = uow.launches.by_token_hash(digest(registration.launch_token))
    if launch is None:
        return
    actor = Actor(ActorKind.AGENT, registration.provider_instance_id)
    with open_job(uow, runtime.entropy, launch.job_id, actor) as aggregate:
        instance = uow.instances.by_provider_id(launch.provider, registration.provider_instance_id)
        if aggregate is None:
            return
        if launch.alarmed_at is not None and aggregate.now < launch.alarmed_at + ALARM_EVERY:
            return
        launch.alarmed_at = aggregate.now
        is_known = instance is not None and instance.launch_id == launch.id
        what = "for this machine" if is_known else "as a machine that was never launched"
        aggregate.record(
            JobEventKind.CREDENTIAL_REFUSED,
            f"Another agent tried to register {what} with its launch token: the token may have "
            "leaked.",
            about=instance if is_known else launch,
        )
