"""The rows the rules work on: job, attempt, member, launch, instance, assignment, checkpoint.

Lives here: plain records, one field per column. Not here: their states and moves (`job`,
`attempt`, `instance`, `launch`), or how they are stored (`app.storage`).

A record's `state` is changed only by `frame.aggregate`, through the table of its noun.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.lifecycle.attempt import DRAIN_GRACE_SECONDS, AttemptState, DrainCause
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.instance import OVERDUE_AFTER_SECONDS, EndedBy, InstanceState
from app.domain.lifecycle.job import BudgetKind, JobState, StopCause
from app.domain.lifecycle.launch import LaunchOutcome
from app.domain.lifecycle.stored_documents import (
    BidDocument,
    EndDocument,
    RatingDocument,
    SpecSourcesDocument,
)
from app.domain.market.attachments import AttachmentsDocument
from app.domain.market.offer import Market, Pool
from app.domain.spec.spec_document import SpecDocument


@dataclass(eq=False)
class Job:
    """What the user asked. `version` grows with every change of the aggregate.

    queue_rank_at: submission time less ten minutes per priority point; recovering jobs lead.
    claimable_at: None = ready; else the next look, with `wait_reason` for people.
    run_limit_at: when `max_duration` ends, counted from the first attempt that trained.
    hold_until_at: until when idle survivors are kept for the next attempt.
    timer_at: the earliest instant at which a rule of time applies to the job or what it owns.
    prune_at: when its checkpoints are to be looked through for spare ones.
    node_count: machines of the gang it has, or will have next; the spec says within which range.
    trained_steps, trained_seconds: what the ended attempts trained after the first step of each,
    rework included, and how long it took them, or would have taken a gang of full size, start-up
    excluded; None before the first measured attempt has ended.
    begun_step: of a job that counts its own steps, the first one ever seen; else 0. saved_seconds:
    what the ended attempts trained up to their last save, start-up excluded, of a full gang.
    start_up_seconds, start_up_p95_seconds: from the start of a trainer's process to the end of its
    first step, as learned from this job and its like; None before that.
    market_changed_at: when market_mode last changed. slower_since_at: since when the measured pace
    alone forces the job off spot.
    steps_per_second, eta_at, eta_from: the pace and the end as last worked out, for the list.
    serial_share: how its gangs scale, as measured when its size was last looked at; None: as
    expected (`gang_scaling`).
    owner_key_id, owner_person_id: the key and the person that submitted it; None where that is not
    known, and where there was none.
    spec_sources: which fields of its spec the project has given; None for none.
    market_mode: where its next machines come from: `on_demand` once the last safe moment has
    passed, or earlier where a deadline makes that cheaper.
    moving_launch_id: the launch of the machines that the job moves to, while it does;
    moving_until_at: when they must all have come, None once the move is on.
    move_look_at: when other pools are looked at next; None = now.
    """

    id: UUID
    project_id: UUID
    name: str
    spec: SpecDocument
    spec_digest: str
    state: JobState
    priority: int
    node_count: int
    submitted_at: datetime
    updated_at: datetime
    queue_rank_at: datetime
    capacity_key: str
    budget_id: UUID
    version: int = 0
    event_seq: int = 0
    next_fence: int = 1
    claimable_at: datetime | None = None
    wait_reason: str | None = None
    stop_cause: StopCause | None = None
    stop_ordered_at: datetime | None = None
    market_mode: Market = Market.SPOT
    deadline_at: datetime | None = None
    max_wait_at: datetime | None = None
    max_duration_seconds: int | None = None
    run_limit_at: datetime | None = None
    last_safe_at: datetime | None = None
    unsafe_since_at: datetime | None = None
    deadline_missed_at: datetime | None = None
    paused_at: datetime | None = None
    paused_by_budget: BudgetKind | None = None
    slack_look_at: datetime | None = None
    moving_launch_id: UUID | None = None
    moving_until_at: datetime | None = None
    move_look_at: datetime | None = None
    hold_until_at: datetime | None = None
    timer_at: datetime | None = None
    prune_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cost_final_at: datetime | None = None
    on_demand_comparison_microusd: int | None = None
    end_reason: EndReason | None = None
    end_message: str | None = None
    committed_step: int = 0
    total_steps: int | None = None
    trained_steps: int | None = None
    trained_seconds: float | None = None
    owner_key_id: UUID | None = None
    owner_person_id: UUID | None = None
    begun_step: int | None = None
    saved_seconds: float | None = None
    start_up_seconds: float | None = None
    start_up_p95_seconds: float | None = None
    market_changed_at: datetime | None = None
    slower_since_at: datetime | None = None
    steps_per_second: float | None = None
    eta_at: datetime | None = None
    eta_from: str | None = None
    serial_share: float | None = None
    retries_used: int = 0
    consecutive_failures: int = 0
    attempts_without_progress: int = 0
    idempotency_key: str | None = None
    idempotency_digest: str | None = None
    spec_sources: SpecSourcesDocument | None = None


@dataclass(eq=False)
class Attempt:
    """One rendezvous of a gang. `fence` is its number within the job and only grows.

    best_step: the highest step it is known to have trained; committed_step: the highest saved;
    committed_at: when this attempt saved last.
    hazard_per_hour, price_microusd_per_hour: losses to expect of its machines and what they cost,
    together, as its trainer was told; outlook_at: when both are to be looked at again, None = now.
    size_look_at: when an elastic gang's size is to be looked at while it trains.
    first_step, last_step, stepping_seconds, start_up_seconds: what its agent measured of it, as in
    `trainer.protocol.agent_report.Pace`; None until it ends, and where nothing was measured. Of a
    command without steps, start_up_seconds follows from its first two saves.
    first_step_at: when its first step ended. work_digest: what its work is alike to
    (`app.domain.throughput.same_work`), once it was measured.
    """

    id: UUID
    job_id: UUID
    fence: int
    state: AttemptState
    node_count: int
    created_at: datetime
    updated_at: datetime
    form_until_at: datetime
    launches_made: int = 0
    parent_fence: int | None = None
    parent_step: int | None = None
    parent_digest: str | None = None
    master_addr: str | None = None
    master_port: int | None = None
    preparing_at: datetime | None = None
    trained_at: datetime | None = None
    drain_cause: DrainCause | None = None
    drain_until_at: datetime | None = None
    settle_until_at: datetime | None = None
    stalled_at: datetime | None = None
    best_step: int = 0
    committed_step: int = 0
    committed_at: datetime | None = None
    hazard_per_hour: float | None = None
    price_microusd_per_hour: int | None = None
    outlook_at: datetime | None = None
    size_look_at: datetime | None = None
    end_reason: EndReason | None = None
    end_message: str | None = None
    ended_at: datetime | None = None
    first_step: int | None = None
    first_step_at: datetime | None = None
    last_step: int | None = None
    stepping_seconds: float | None = None
    start_up_seconds: float | None = None
    work_digest: str | None = None

    @property
    def drain_expires_at(self) -> datetime | None:
        """When a drain is over: its end, and the time a last report may take."""
        if self.drain_until_at is None:
            return None
        return self.drain_until_at + timedelta(seconds=DRAIN_GRACE_SECONDS)


@dataclass(eq=False)
class AttemptMember:
    """One instance's part in an attempt; `end` is the agent's word on how its trainer ended.

    secret_deliveries: how often it was given the job's secrets; None: never.
    """

    attempt_id: UUID
    instance_id: UUID
    node_rank: int
    prepared_at: datetime | None = None
    master_port: int | None = None
    started_at: datetime | None = None
    outcome: str | None = None
    exit_code: int | None = None
    end: EndDocument | None = None
    ended_at: datetime | None = None
    secret_deliveries: int | None = None


@dataclass(eq=False)
class Launch:
    """One call to a cloud for one or more instances; committed before the call.

    called_at: when the last call that may have started machines was about to be made.
    """

    id: UUID
    job_id: UUID
    provider: str
    client_token: str
    count: int
    min_count: int
    market: Market
    bids: list[BidDocument]
    params_digest: str
    purpose: str
    outcome: LaunchOutcome
    created_at: datetime
    token_hash: str
    token_expires_at: datetime
    next_call_at: datetime | None = None
    submitted_at: datetime | None = None
    called_at: datetime | None = None
    operation_name: str | None = None
    calls_made: int = 0
    error: str | None = None
    settled_at: datetime | None = None
    alarmed_at: datetime | None = None
    lease_token: str | None = None
    lease_until_at: datetime | None = None


@dataclass(eq=False)
class Instance:
    """One rented machine. It belongs to the job, and outlives an attempt.

    launched_at, ended_at: the cloud's words, with their source; never our own call's time when
    the cloud gives one. ordinal: its number among the job's machines that have started; it never
    changes. observed_at: before the call that last told us of it.
    forced_at: when it was given back on silence alone, which is no proof that it is gone.
    warned_at: when its cloud first recommended to leave it (a raised risk; nothing is decided).
    suspect: a fault was seen on it; it is not kept for the next attempt.
    host: the computer it runs on, in the cloud's own words, where the cloud tells.
    attachments: disk and address with their prices, as `market.attachments` writes them; None
    where those are not known.
    """

    id: UUID
    job_id: UUID | None
    launch_id: UUID | None
    provider: str
    market: Market
    state: InstanceState
    origin: str
    requested_at: datetime
    updated_at: datetime
    pool: Pool | None = None
    cloud: str | None = None
    billing_speed: int = 1
    provider_instance_id: str | None = None
    host: str | None = None
    launched_at: datetime | None = None
    launched_source: str | None = None
    ordinal: int | None = None
    register_until_at: datetime | None = None
    registered_at: datetime | None = None
    noticed_at: datetime | None = None
    notice_deadline_at: datetime | None = None
    release_ordered_at: datetime | None = None
    release_reason: str | None = None
    ended_at: datetime | None = None
    ended_source: str | None = None
    ended_by: EndedBy | None = None
    on_demand_microusd_per_hour: int | None = None
    attachments: AttachmentsDocument | None = None
    credential_hash: str | None = None
    nonce_hash: str | None = None
    boot_id: str | None = None
    private_address: str | None = None
    port_from: int | None = None
    port_to: int | None = None
    observed_at: datetime | None = None
    describe_at: datetime | None = None
    absent_since_at: datetime | None = None
    unreachable_at: datetime | None = None
    forced_at: datetime | None = None
    warned_at: datetime | None = None
    suspect: bool = False
    terminate_at: datetime | None = None
    terminate_calls: int = 0
    lease_token: str | None = None
    lease_until_at: datetime | None = None
    billed_until_at: datetime | None = None
    rating: RatingDocument | None = None
    cost_final_at: datetime | None = None

    @property
    def overdue_at(self) -> datetime | None:
        """When a noticed machine that still runs is given back by us."""
        if self.notice_deadline_at is None:
            return None
        return self.notice_deadline_at + timedelta(seconds=OVERDUE_AFTER_SECONDS)


@dataclass(eq=False)
class Assignment:
    """Who an instance works for, from when to when; gapless and disjoint per instance."""

    id: UUID
    instance_id: UUID
    job_id: UUID | None
    attempt_id: UUID | None
    from_at: datetime
    to_at: datetime | None = None


@dataclass(eq=False)
class CheckpointRecord:
    """A manifest the control plane has been told of; the store stays the truth."""

    job_id: UUID
    fence: int
    step: int
    digest: str
    size_bytes: int
    final: bool
    committed_at: datetime
    instance_id: UUID
    parent_fence: int | None = None
    parent_step: int | None = None
    parent_digest: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    pruned_at: datetime | None = None


@dataclass(eq=False)
class Budget:
    """A cap with what is spent and reserved against it; locked before any job."""

    id: UUID
    project_id: UUID
    job_id: UUID | None
    cap_microusd: int | None
    spent_microusd: int = 0
    reserved_microusd: int = 0


@dataclass(eq=False)
class Contact:
    """The newest report of an instance: a hot row, written often, indexed by nothing else.

    session_uptime_ms, session_at: when the agent began that is heard, by its machine's uptime, and
    when it registered here; they tell a former agent's late words from a new one's.
    first_step, last_step, stepping_seconds, start_up_seconds: what the agent measured of the
    attempt's steps, as in `trainer.protocol.agent_report.Pace`; None before the first step.
    """

    instance_id: UUID
    session_id: str
    seq: int
    answered_at: datetime
    phase: str
    fact_no: int = 0
    fence: int | None = None
    step: int | None = None
    total_steps: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    step_at: datetime | None = None
    session_uptime_ms: int | None = None
    session_at: datetime | None = None
    first_step: int | None = None
    last_step: int | None = None
    stepping_seconds: float | None = None
    start_up_seconds: float | None = None
