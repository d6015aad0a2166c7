"""Tell of jobs that have waited for machines for longer than a rule says.

Nothing happens when a wait becomes too long, so it is looked for. A job that a budget of a month
has paused waits, too. Not here: why a job waits (`app.domain.wording.why_words`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, MONTHLY_BUDGETS, JobState
from app.domain.notifications.message import text_of_job, text_of_wait
from app.domain.notifications.triggers import Trigger
from app.domain.wording.why_words import JobStanding, why
from app.orchestration.frame.controller_frame import RowController
from app.orchestration.frame.tell_channels import deliver, job_facts
from app.storage.notifications.outbox import LongWait
from app.storage.unit_of_work import UnitOfWork

_EVERY: Final = timedelta(seconds=30)


class WatchWaits(RowController[LongWait]):
    """The controller. A wait is told once for each rule."""

    name = "watch_waits"
    limit = 100

    def select(self, uow: UnitOfWork, limit: int) -> list[LongWait]:
        """Waits that are too long, and not told yet; jobs are read only where a rule asks."""
        return uow.outbox.long_waits(uow.now, limit) if uow.outbox.has_wait_rules() else []

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """None while no rule is about waits."""
        return uow.now + _EVERY if uow.outbox.has_wait_rules() else None

    def apply(self, uow: UnitOfWork, work: LongWait, result: None) -> None:
        """Tell the rule's channel, unless the job has got machines."""
        job = uow.jobs.get(work.job_id)
        if job is None or not _waits(job):
            return
        reason = text_of_wait(work.after_seconds, why(_standing(job, work), uow.now))
        facts = job_facts(uow, job)
        text = text_of_job(Trigger.WAITING, facts, work.told.project, reason, uow.now)
        deliver(uow, self._runtime.entropy, work.told, text, work.occasion, uow.now)


def _waits(job: Job) -> bool:
    if job.state is JobState.PAUSED:
        return job.paused_by_budget in MONTHLY_BUDGETS
    return job.state in CLAIMABLE_JOB_STATES


def _standing(job: Job, wait: LongWait) -> JobStanding:
    return JobStanding(
        state=job.state,
        submitted_at=job.submitted_at,
        node_count=job.node_count,
        nodes=job.spec.get("nodes", job.node_count),
        committed_step=job.committed_step,
        wait_reason=job.wait_reason,
        end_message=job.end_message,
        last_end=wait.last_end,
        has_checkpoint=wait.has_checkpoint,
    )
