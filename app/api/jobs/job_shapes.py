"""The shapes of answers about jobs, for OpenAPI and for whoever reads them.

Not here: what happened to a job (`history_shapes`), or the shape of a job spec
(`app.domain.spec.job_spec`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from app.api.serving.shapes import Shape
from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import BudgetKind, JobState, StopCause
from app.domain.market.offer import Market
from app.domain.projects.resolve_spec import SpecSource


class JobAccepted(Shape):
    """The answer to a submission; `created` is false for a repetition. `warnings`: sentences."""

    id: UUID
    name: str
    project: str
    state: JobState
    submitted_at: datetime
    deadline_at: datetime | None
    created: bool
    warnings: list[str]


class JobSummary(Shape):
    """One line of the list of jobs. `pools`: where its machines are. `disk_full`: of one of them.

    why: as in the job's own document.
    replacing: machines on the way in place of lost ones: "replacing 1 of 2 in aws us-east-1a", or
    "replacing 2 of 2: choosing a pool" before their pool is known.
    remaining_seconds: while it runs, from the measured rate, else from the spec's estimate.
    net_saved_…: as in its cost statement, once its cost is final.
    """

    id: UUID
    name: str
    state: JobState
    priority: int
    why: str | None
    disk_full: bool
    stop_cause: StopCause | None
    end_reason: EndReason | None
    next_look_at: datetime | None
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None
    last_safe_at: datetime | None
    step: int
    total_steps: int | None
    percent: float | None
    remaining_seconds: int | None
    eta_from: Literal["measured", "estimate"] | None
    node_count: int
    nodes: int | str
    machines: int
    pools: list[str]
    replacing: str | None
    market_mode: Market
    microusd_per_hour: int
    spent_microusd: int
    budget_microusd: int | None
    waived: bool
    net_saved_microusd: int | None
    net_saved_ratio: float | None
    labels: dict[str, str]


class JobPage(Shape):
    """Jobs, newest first; `next` is the cursor of the next page."""

    items: list[JobSummary]
    next: str | None


class ProgressShape(Shape):
    """How far the training is. `eta_from`: the measured rate, or the spec's estimate.

    `start_up_seconds`: from the start of the trainer to the end of its first step, as learned;
    `start_up_left_seconds`: what is left of it now. `remaining_seconds` and `eta_at` include that.
    """

    step: int
    total_steps: int | None
    percent: float | None
    committed_step: int
    last_checkpoint_step: int | None
    last_checkpoint_at: datetime | None
    step_at: datetime | None
    steps_per_second: float | None
    samples_per_second: float | None
    loss: float | None
    metrics: dict[str, float]
    start_up_seconds: float | None
    start_up_left_seconds: float | None
    remaining_seconds: int | None
    eta_at: datetime | None
    eta_from: Literal["measured", "estimate"] | None


class NoticeShape(Shape):
    """The provider's warning that it takes a machine."""

    noticed_at: datetime
    deadline_at: datetime | None
    seconds_left: float | None


class MachineShape(Shape):
    """A machine that works for the job, or is coming or going.

    name: m1, m2, … among the job's machines, as everywhere; None before the cloud has started it.
    """

    id: UUID
    name: str | None
    provider: str
    cloud: str | None
    provider_instance_id: str | None
    pool: str | None
    region: str | None
    zone: str | None
    instance_type: str | None
    market: Market
    state: InstanceState
    phase: str | None
    step: int | None
    microusd_per_hour: int | None
    on_demand_microusd_per_hour: int | None
    requested_at: datetime
    launched_at: datetime | None
    registered_at: datetime | None
    last_report_at: datetime | None
    unreachable_at: datetime | None
    notice: NoticeShape | None
    disk_full: bool
    release_reason: str | None


class MoneyShape(Shape):
    """Booked so far, the cap, and what the machines cost per hour now.

    waived_microusd: what clouds did not charge for machines that they ended early; no part of what
    is booked.
    """

    spent_microusd: int
    budget_microusd: int | None
    reserved_microusd: int
    left_microusd: int | None
    microusd_per_hour: int
    waived_microusd: int
    cost_final_at: datetime | None


class DeadlineShape(Shape):
    """`slack_seconds`: until the last moment at which spot is still safe.

    `start_up_p95_seconds`: what that moment counts with for the trainer's start, as learned.
    """

    at: datetime
    on_deadline: Literal["finish", "stop"]
    last_safe_at: datetime | None
    slack_seconds: float | None
    start_up_p95_seconds: float | None
    unsafe_since_at: datetime | None
    missed_at: datetime | None


class LiveAttemptShape(Shape):
    """The attempt that is under way.

    ordinal: which one of the job's attempts it is, from 1: the number that people read. fence: its
    key, which grows, and leaves numbers out after the control plane was away.
    """

    id: UUID
    fence: int
    ordinal: int
    state: AttemptState
    created_at: datetime
    trained_at: datetime | None
    parent_step: int | None
    drain_cause: DrainCause | None
    drain_until_at: datetime | None


class LastEndShape(Shape):
    """How the newest ended attempt ended."""

    reason: EndReason
    message: str | None


class AttemptsShape(Shape):
    """How often the job was tried."""

    count: int
    interruptions: int
    retries_used: int
    retries: int
    live: LiveAttemptShape | None
    last_end: LastEndShape | None


class JobDetail(Shape):
    """Everything about one job. `why`: why it is in its state; None while it simply trains.

    replacing: as in the list of jobs. paused_by_budget: which budget has stopped it, or paused it;
    one of a month resumes it once it has money again. spec_sources: by dotted field of `spec` that
    its author left out, where in the project's rules it comes from; rules_version: of those rules,
    null without.
    """

    id: UUID
    name: str
    project: str
    state: JobState
    why: str | None
    priority: int
    labels: dict[str, str]
    node_count: int
    nodes: int | str
    market_mode: Market
    stop_cause: StopCause | None
    stop_ordered_at: datetime | None
    end_reason: EndReason | None
    paused_by_budget: BudgetKind | None
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime
    next_look_at: datetime | None
    version: int
    progress: ProgressShape
    machines: list[MachineShape]
    replacing: str | None
    money: MoneyShape
    deadline: DeadlineShape | None
    attempts: AttemptsShape
    spec: dict[str, Any]
    spec_sources: dict[str, SpecSource]
    rules_version: int | None


class JobCopy(Shape):
    """A job's spec under another name. `name`: None where no name near the old one is free."""

    name: str | None
    copied_from: str
    spec: dict[str, Any]


_SPEC = {"$ref": "#/components/schemas/JobSpec"}

SUBMIT_DOCS: dict[str, Any] = {
    "response_model": None,
    "responses": {
        201: {"model": JobAccepted, "description": "The job is in the queue"},
        200: {"model": JobAccepted, "description": "The key has submitted this job before"},
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "schema": {"type": "string", "minLength": 1, "maxLength": 200},
            },
            {
                "name": "accept_risk",
                "in": "query",
                "description": "Submit even if the deadline, budget or max_duration may not be "
                "kept",
                "schema": {"type": "boolean", "default": False},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                kind: {"schema": _SPEC} for kind in ("application/json", "application/yaml")
            },
        },
    },
}
"""How the submission is described: its body is read by hand."""
