"""One job as its page, the command line and the API show it: everything in one shape.

Pure: facts and an instant in, plain values out, in the shapes of `job_shapes`. Not here: reading
the facts (`job_read_models`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from app.api.jobs.job_shapes import JobDetail, LastEndShape, LiveAttemptShape, MachineShape
from app.api.serving.shapes import fields_of
from app.domain.billing.budget import left_microusd
from app.domain.deployment.disk_full import without_disk
from app.domain.lifecycle.job import JobState
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.units.percent import progress_percent
from app.domain.wording.why_words import why
from app.orchestration.estimates.as_it_runs import as_it_runs, left_of_facts
from app.orchestration.estimates.estimate_remaining import WorkLeft
from app.orchestration.queue.hidden_env import shown_spec
from app.storage.reports.job_facts import JobFacts, MachineStatus


def job_document(facts: JobFacts, now: datetime) -> dict[str, Any]:
    """The whole shape; `JobDetail` describes it. Money in micro-dollars, durations in seconds."""
    job = facts.job
    spec = parse_spec(job.spec)
    left = left_of_facts(facts, spec, now)
    sources = job.spec_sources
    return fields_of(
        JobDetail,
        job,
        spec=shown_spec(job),
        project=facts.project_name,
        why=why(facts.standing, now),
        labels=spec.labels,
        nodes=spec.nodes.to_json(),
        next_look_at=job.claimable_at,
        progress=_progress(facts, left, now),
        machines=[_machine(machine, now) for machine in facts.machines],
        replacing=facts.replacing,
        money=_money(facts),
        deadline=_deadline(facts, spec, now),
        attempts=_attempts(facts, spec),
        spec_sources={} if sources is None else sources["fields"],
        rules_version=None if sources is None else sources["rules_version"],
    )


def _progress(facts: JobFacts, left: WorkLeft, now: datetime) -> dict[str, Any]:
    job, last = facts.job, facts.last_checkpoint
    contacts = [machine.contact for machine in facts.machines if machine.contact is not None]
    newest = max(
        (c for c in contacts if c.step is not None and c.step == left.step),
        key=lambda contact: contact.answered_at,
        default=None,
    )
    metrics = {} if newest is None else without_disk(newest.metrics)
    running = as_it_runs(facts, left, now)
    ahead = running is not None
    percent = None
    if job.state is JobState.SUCCEEDED:
        percent = 100.0
    elif left.total_steps:
        percent = progress_percent(left.step, left.total_steps)
    return {
        "step": left.step,
        "total_steps": left.total_steps,
        "percent": percent,
        "committed_step": job.committed_step,
        "last_checkpoint_step": None if last is None else last.step,
        "last_checkpoint_at": None if last is None else last.committed_at,
        "step_at": None if newest is None else newest.step_at,
        "steps_per_second": left.steps_per_second,
        "samples_per_second": metrics.get("samples_per_second"),
        "loss": metrics.get("loss"),
        "metrics": metrics,
        "start_up_seconds": job.start_up_seconds,
        "start_up_left_seconds": left.start_seconds if ahead else None,
        "remaining_seconds": left.to_the_end if running is None else running.remaining_seconds,
        "eta_at": None if running is None else running.ends_at,
        "eta_from": left.source if ahead else None,
    }


def _machine(machine: MachineStatus, now: datetime) -> dict[str, Any]:
    instance, contact, pool = machine.instance, machine.contact, machine.instance.pool
    notice = None
    if instance.noticed_at is not None:
        deadline_at = instance.notice_deadline_at
        left = None if deadline_at is None else max(0.0, (deadline_at - now).total_seconds())
        notice = {
            "noticed_at": instance.noticed_at,
            "deadline_at": deadline_at,
            "seconds_left": left,
        }
    return fields_of(
        MachineShape,
        instance,
        name=machine.name,
        region=None if pool is None else pool.region,
        zone=None if pool is None else pool.zone,
        instance_type=None if pool is None else pool.instance_type,
        phase=None if contact is None else contact.phase,
        step=None if contact is None else contact.step,
        microusd_per_hour=machine.price_microusd_per_hour,
        last_report_at=None if contact is None else contact.answered_at,
        notice=notice,
        disk_full=machine.has_full_disk,
    )


def _money(facts: JobFacts) -> dict[str, Any]:
    budget, job = facts.budget, facts.job
    return {
        "spent_microusd": budget.spent_microusd,
        "budget_microusd": budget.cap_microusd,
        "reserved_microusd": budget.reserved_microusd,
        "left_microusd": left_microusd(budget.cap_microusd, budget.spent_microusd),
        "microusd_per_hour": facts.microusd_per_hour,
        "waived_microusd": facts.waived_microusd,
        "cost_final_at": job.cost_final_at,
    }


def _deadline(facts: JobFacts, spec: JobSpec, now: datetime) -> dict[str, Any] | None:
    job = facts.job
    if job.deadline_at is None:
        return None
    slack = None
    if job.last_safe_at is not None and job.ended_at is None:
        slack = (job.last_safe_at - now).total_seconds()
    return {
        "at": job.deadline_at,
        "on_deadline": spec.on_deadline,
        "last_safe_at": job.last_safe_at,
        "slack_seconds": slack,
        "start_up_p95_seconds": job.start_up_p95_seconds,
        "unsafe_since_at": job.unsafe_since_at,
        "missed_at": job.deadline_missed_at,
    }


def _attempts(facts: JobFacts, spec: JobSpec) -> dict[str, Any]:
    attempt, counts = facts.attempt, facts.counts
    live = None
    if attempt is not None:
        live = fields_of(LiveAttemptShape, attempt, ordinal=counts.live)
    last_end = None
    if counts.last_end is not None:
        last_end = fields_of(LastEndShape, counts.last_end)
    return {
        "count": counts.attempts,
        "interruptions": counts.interruptions,
        "retries_used": facts.job.retries_used,
        "retries": spec.retries,
        "live": live,
        "last_end": last_end,
    }
