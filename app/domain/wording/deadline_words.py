"""Slack and the last safe moment of a job, in one sentence for people.

Not here: the rule behind the moment (`deadline_policy`), or watching it (`app.orchestration`).
"""

from __future__ import annotations

from datetime import datetime

from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market
from app.domain.placement.placement_decision import PlacementDecision
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.trainer_work import described_work
from app.domain.units.durations import format_duration
from app.domain.units.instants import format_instant


def slack_sentence(
    job: Job, spec: JobSpec, now: datetime, decision: PlacementDecision | None = None
) -> str:
    """How safe the deadline is at `now`, until when, and what follows then.

    spec: the job's. decision: the newest one, which knows the
    last safe moment before the job's slack is first looked at. Instants are in UTC.
    """
    if job.deadline_at is None:
        return "No deadline: the job uses the cheapest machines."
    if job.ended_at is not None:
        return _ended(job, job.deadline_at, job.ended_at)
    if now >= job.deadline_at:
        ago = _span(job.deadline_at, now)
        return f"The deadline passed {ago} ago, at {format_instant(job.deadline_at)}."
    if job.unsafe_since_at is not None:
        return (
            f"The deadline at {format_instant(job.deadline_at)} has been at risk since "
            f"{format_instant(job.unsafe_since_at)}: the job is unlikely to meet it."
        )
    last_safe_at = job.last_safe_at
    if last_safe_at is None:
        if job.market_mode is Market.ON_DEMAND:
            return f"Running on-demand to meet the deadline at {format_instant(job.deadline_at)}."
        last_safe_at = None if decision is None else decision.last_safe_at
    if last_safe_at is None:
        known = _when_known(job, spec)
        at = format_instant(job.deadline_at)
        return f"The deadline is at {at}. When to switch to on-demand is {known}."
    last = format_instant(last_safe_at)
    if last_safe_at > now:
        then = "on-demand machines are requested then"
        if job.state is JobState.PAUSED:
            then = "the job is paused and requests no machines until it is resumed"
        elif nothing_carries(decision):
            then = "but no pool has machines for it, spot or on-demand"
        elif spec.effective_market() == "spot":
            then = "after it the deadline is at risk, because the spec does not allow on-demand"
        span = _span(now, last_safe_at)
        return f"Slack {span}: the last safe moment is {last}{_start(job)}; {then}."
    span = _span(last_safe_at, now)
    return f"No slack: the last safe moment was {span} ago, at {last}."


def _when_known(job: Job, spec: JobSpec) -> str:
    """When the last safe moment will be known, which rests on the spec's estimate or on a pace."""
    if spec.estimate is not None:
        return "worked out when machines are next looked for"
    at_once = "an `estimate` in the spec tells it at once"
    if described_work(spec) is not None:
        return (
            "known once its pace is measured: the trainer's formula, by which the job was "
            f"estimated, is for GPUs in general; {at_once}"
        )
    if job.total_steps is not None:
        return f"known once its pace is measured; {at_once}"
    return f"unknown until the job reports total_steps; {at_once}"


def _start(job: Job) -> str:
    """What of a restart is the trainer's own start-up, where it is known."""
    slow = round(job.start_up_p95_seconds or 0.0)
    return f", which includes {format_duration(slow)} of start-up" if slow else ""


def nothing_carries(decision: PlacementDecision | None) -> bool:
    """Whether none of the pools that were weighed has what the job asks for, in any market.

    Those that have it come first of the pools, and they alone have an expected cost.
    """
    pools = () if decision is None else decision.pools
    return bool(pools) and all(row.expected_microusd is None for row in pools)


def _ended(job: Job, deadline_at: datetime, ended_at: datetime) -> str:
    if ended_at > deadline_at:
        return f"The deadline was missed by {_span(deadline_at, ended_at)}."
    if job.state is JobState.SUCCEEDED:
        return f"The deadline was met with {_span(ended_at, deadline_at)} to spare."
    return f"The job ended {_span(ended_at, deadline_at)} before its deadline."


def _span(begin: datetime, end: datetime) -> str:
    return format_duration(max(0.0, (end - begin).total_seconds()))
