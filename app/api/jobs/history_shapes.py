"""The shapes of what happened to one job: events, checkpoints, points of metrics, log streams.

Not here: the job as it stands (`job_shapes`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from app.api.serving.shapes import Shape


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
