"""The shapes of what happened to one job: attempts, events, checkpoints, metrics, logs.

Not here: the job as it stands (`job_shapes`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from app.api.serving.shapes import Shape
from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.end_reason import EndReason
from app.domain.market.offer import Market


class MemberShape(Shape):
    """One machine's part in an attempt. `machine`: its name. `end`: what its agent said of it."""

    attempt_id: UUID
    instance_id: UUID
    node_rank: int
    prepared_at: datetime | None
    master_port: int | None
    started_at: datetime | None
    outcome: str | None
    exit_code: int | None
    end: dict[str, Any] | None
    ended_at: datetime | None
    pool: str | None
    market: Market
    machine: str | None


class AttemptShape(Shape):
    """One attempt. `ordinal`: the number that people read, from 1; `fence`: its key, which grows.

    `parent_…`: the checkpoint that it started from. `outlook_at`: when its hazard and price, those
    of the whole gang, were computed. `stepping_seconds`: time between first and last step.
    """

    id: UUID
    job_id: UUID
    fence: int
    ordinal: int
    state: AttemptState
    node_count: int
    created_at: datetime
    updated_at: datetime
    form_until_at: datetime
    launches_made: int
    parent_fence: int | None
    parent_step: int | None
    parent_digest: str | None
    master_addr: str | None
    master_port: int | None
    preparing_at: datetime | None
    trained_at: datetime | None
    drain_cause: DrainCause | None
    drain_until_at: datetime | None
    settle_until_at: datetime | None
    stalled_at: datetime | None
    best_step: int
    committed_step: int
    committed_at: datetime | None
    hazard_per_hour: float | None
    price_microusd_per_hour: int | None
    outlook_at: datetime | None
    size_look_at: datetime | None
    end_reason: EndReason | None
    end_message: str | None
    ended_at: datetime | None
    first_step: int | None
    first_step_at: datetime | None
    last_step: int | None
    stepping_seconds: float | None
    start_up_seconds: float | None
    work_digest: str | None
    members: list[MemberShape]


class AttemptPage(Shape):
    """Attempts by fence; all in one part."""

    items: list[AttemptShape]
    next: None


class EventShape(Shape):
    """One entry of the history. `machine`: the name of the one that it is about."""

    seq: int
    at: datetime
    actor: str
    kind: str
    noun: str
    noun_id: UUID | None
    from_state: str | None
    to_state: str | None
    message: str
    data: dict[str, Any]
    machine: str | None


class EventPage(Shape):
    """Entries in order; `next` is the `after` of the following part."""

    items: list[EventShape]
    next: str | None


class CheckpointShape(Shape):
    """One committed checkpoint. `parent_…`: what its attempt started from."""

    fence: int
    ordinal: int | None
    step: int
    digest: str
    size_bytes: int
    final: bool
    best: bool
    parent_fence: int | None
    parent_step: int | None
    parent_digest: str | None
    committed_at: datetime
    instance_id: UUID
    metrics: dict[str, float]
    pruned_at: datetime | None


class CheckpointPage(Shape):
    """Checkpoints, newest first; all in one part."""

    items: list[CheckpointShape]
    next: None


class PointShape(Shape):
    """The numeric keys of one step's progress lines."""

    fence: int
    ordinal: int | None
    step: int
    at: datetime
    metrics: dict[str, float]


class PointPage(Shape):
    """Points by fence and step; `next` is the `after` of the following part."""

    items: list[PointShape]
    next: str | None


class LogStreamShape(Shape):
    """One stream of a log, and the machine that writes it."""

    stream: str
    instance_id: UUID
    size_bytes: int
    updated_at: datetime
    machine: str | None
    ordinal: int | None


class LogStreamPage(Shape):
    """Streams by name; all in one part."""

    items: list[LogStreamShape]
    next: None
