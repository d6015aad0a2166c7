"""The shape of a job's explanation, for OpenAPI and for whoever reads it.

The answer is written without these models; a test checks real answers against them. Not here: the
answer (`explanations`), or the shape of a job (`job_shapes`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from app.api.jobs.job_shapes import DeadlineShape
from app.api.serving.shapes import Shape
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.job import BudgetKind, JobState
from app.domain.market.offer import Market
from app.domain.placement.placement_decision import DecisionVerdict


class RemedyShape(Shape):
    """What would let a waiting job start; the price is that of all its machines."""

    sentence: str
    pool: str | None
    microusd_per_hour: int | None


class NearPoolShape(Shape):
    """A pool that has what a waiting job needs, as it is now. The price is one machine's."""

    pool: str
    price_microusd_per_hour: int
    on_demand_ratio: float
    available: int | None
    fits: bool
    why: str


class WaitingShape(Shape):
    """Why a job waits, until when, and what would end it."""

    reason: str | None
    next_look_at: datetime | None
    needs: str
    unblocked_by: list[RemedyShape]
    nearest: list[NearPoolShape]


class UnblockShape(Shape):
    """What a decision to wait waits for; the price is one machine's."""

    sentence: str
    microusd_per_hour: int | None


class PoolVerdictShape(Shape):
    """One pool as a decision saw it. Prices are one machine's, with what comes with it.

    hazard_per_hour: interruptions of a machine there; null for on-demand. expected_microusd:
    to finish the work there with all machines; where expected_finish_seconds is null the work is
    not known, and it is that of one machine's hour of progress. why: as it was said at the
    decision; why_now: of a pool that the job trains in, after what the decision expected there.
    billing_speed: billed seconds of one second there; expected_microusd counts them.
    """

    pool: str
    market: Market
    price_microusd_per_hour: int
    on_demand_microusd_per_hour: int
    on_demand_ratio: float | None
    quoted_at: datetime
    quote_age_seconds: float
    fits: bool
    chosen: bool
    why: str
    why_now: str
    hazard_per_hour: float | None
    expected_microusd: int | None
    expected_finish_seconds: float | None
    expected_finish_at: datetime | None
    billing_speed: int


class DecisionShape(Shape):
    """One decision, its pools best first; its figures are those of `last_confirmed_at`.

    fence, ordinal: of its attempt, as in the list of attempts; null where none began.
    node_count: of the gang that it was made for, which may have changed since.
    held_until_at: when another one took its place, or the job came to rest; null while it holds.
    wait_, spot_, on_demand_microusd: the expected cost of each way from there to the end, without
    what was spent before.
    sentence: as it was said at the decision; sentence_now: in the past once the decision is over.
    """

    decision_no: int
    held_until_at: datetime | None
    decided_at: datetime
    last_confirmed_at: datetime
    verdict: DecisionVerdict
    reason: str
    sentence: str
    sentence_now: str
    fence: int | None
    ordinal: int | None
    node_count: int
    last_safe_at: datetime | None
    slack_seconds: float | None
    work_left_seconds: float | None
    wait_microusd: int | None
    spot_microusd: int | None
    on_demand_microusd: int | None
    unblock: UnblockShape | None
    pools: list[PoolVerdictShape]


class AsItRunsShape(Shape):
    """What is left of a job that trains, as it runs now; interruptions are not counted.

    pools: those that its machines are in; of these, it replaces what a decision expected.
    microusd_per_hour: of all machines that are paid for now. remaining_microusd: of those that it
    goes on with, at their prices of now: what comes on top of what is spent, as it will be billed;
    a machine under an interruption notice counts until its replacement is there. ends_at: as
    `eta_at` of the job.
    """

    pools: list[str]
    microusd_per_hour: int
    ends_at: datetime
    remaining_seconds: int
    remaining_microusd: int


class WorkByFormulaShape(Shape):
    """The whole run on one machine by the bundled trainer's formula, and what that rests on: the
    samples, the steps or epochs, the batch, the GPU and its samples a second.
    """

    seconds: int
    sentence: str


class Explanation(Shape):
    """Why a job is where it is; `decisions` newest first, `waiting` while it waits for machines.

    slack: the deadline's slack and last safe moment in words. eta_at, eta_from: the end of the job
    as it runs, as in its own document; what pools would take is told as a decision weighs it, with
    the interruptions to expect. as_it_runs: null while it does not train, or its end is not known.
    billing_speed: the most seconds that a second of its machines, or in a pool of these decisions,
    is billed as. Costs count it; prices per hour do not. compares_speed: whether pools are ordered
    by what an hour of the same work costs there; else by the price of a machine, for those that the
    spec accepts count as equally fast. work_by_formula: null where the spec has an `estimate`, or
    does not say enough; a submission weighs deadline and budget by it, decisions do not.
    """

    id: UUID
    name: str
    state: JobState
    why: str | None
    end_reason: EndReason | None
    paused_by_budget: BudgetKind | None
    node_count: int
    market_mode: Market
    deadline: DeadlineShape | None
    eta_at: datetime | None
    eta_from: Literal["measured", "estimate"] | None
    as_it_runs: AsItRunsShape | None
    billing_speed: int
    compares_speed: bool
    slack: str
    work_by_formula: WorkByFormulaShape | None
    waiting: WaitingShape | None
    decisions: list[DecisionShape]
