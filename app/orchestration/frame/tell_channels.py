"""Write deliveries in the transaction of what they tell of: of a job, a budget, or the deployment.

Lives here: who is told what. Not here: which lines of a history are told
(`app.domain.notifications.triggers`), or sending (`app.orchestration.notifications`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from app.domain.launch_limits.monthly_budget import MonthlyBudget
from app.domain.lifecycle.entities import Budget, Job
from app.domain.notifications.message import (
    NotificationText,
    ToldJob,
    text_of_deployment,
    text_of_job,
    text_of_job_budget,
    text_of_month,
)
from app.domain.notifications.triggers import OF_JOB, Trigger
from app.domain.units.instants import day_of
from app.ports.entropy import Entropy
from app.storage.notifications.outbox import NewDelivery, ToldChannel
from app.storage.unit_of_work import UnitOfWork

SENDER: Final = "send_notifications"


def tell_of_job(
    uow: UnitOfWork, entropy: Entropy, job: Job, trigger: Trigger, reason: str, at: datetime
) -> None:
    """Tell whoever is to know of what has just become the last line of a job's history.

    reason: the sentence of that line.
    """
    told = _told_of_job(uow, job, trigger)
    if told:
        facts = job_facts(uow, job)
        for one in told:
            text = text_of_job(trigger, facts, one.project, reason, at)
            deliver(uow, entropy, one, text, f"job/{job.id}/{job.event_seq}", at)


def tell_of_job_budget(
    uow: UnitOfWork, entropy: Entropy, job: Job, budget: Budget, percent: int
) -> None:
    """Tell whoever is to know that a job has spent so much of its budget: once, as long as the
    budget is not changed.
    """
    for one in _told_of_job(uow, job, Trigger.BUDGET):
        facts, cap = ToldJob(job.id, job.name, budget.spent_microusd), budget.cap_microusd or 0
        text = text_of_job_budget(facts, percent, cap, one.project, uow.now)
        deliver(uow, entropy, one, text, f"budget/{budget.id}/{cap}/{percent}", uow.now)


def tell_of_month(
    uow: UnitOfWork, entropy: Entropy, project_id: UUID, budget: MonthlyBudget, percent: int
) -> None:
    """Tell whoever is to know that a project has spent so much of its month."""
    occasion = f"month/{project_id}/{day_of(budget.month_at)}/{percent}"
    for one in uow.outbox.told(Trigger.BUDGET, project_id):
        text = text_of_month(budget, percent, one.project, uow.now)
        deliver(uow, entropy, one, text, occasion, uow.now)


def tell_of_deployment(
    uow: UnitOfWork, entropy: Entropy, trigger: Trigger, reason: str, occasion: str
) -> None:
    """Tell whoever is to know of what concerns every project, once for each occasion."""
    for one in uow.outbox.told(trigger, None):
        text = text_of_deployment(trigger, reason, uow.now)
        deliver(uow, entropy, one, text, occasion, uow.now)


def _told_of_job(uow: UnitOfWork, job: Job, trigger: Trigger) -> list[ToldChannel]:
    names = job.spec.get("notify", ()) if trigger in OF_JOB else ()
    return uow.outbox.told(trigger, job.project_id, job.id, names)


def job_facts(uow: UnitOfWork, job: Job) -> ToldJob:
    """What a message says of a job."""
    return ToldJob(job.id, job.name, uow.outbox.spent_microusd(job.budget_id))


def deliver(
    uow: UnitOfWork,
    entropy: Entropy,
    told: ToldChannel,
    text: NotificationText,
    occasion: str,
    at: datetime,
    *,
    admitted: bool = False,
) -> NewDelivery:
    """Write one delivery, and ring the sender. admitted: it counts as within its hour."""
    delivery = NewDelivery(
        id=entropy.new_id(),
        project_id=told.project_id,
        channel_id=told.channel_id,
        source_id=told.source_id,
        kind=text.kind,
        occasion=occasion,
        job_id=None if text.job_id is None else UUID(text.job_id),
        message=text.to_json(),
        created_at=at,
        admitted_at=at if admitted else None,
    )
    uow.outbox.add(delivery)
    uow.notify_after_commit(SENDER)
    return delivery
