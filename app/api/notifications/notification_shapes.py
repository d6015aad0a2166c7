"""The shapes of answers about notifications: where a channel leads is shown without its secrets."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from app.api.serving.shapes import Shape
from app.domain.notifications.channel_targets import ChannelKind
from app.domain.notifications.delivery_rules import DeliveryState
from app.domain.notifications.triggers import Trigger


class ChannelShape(Shape):
    """A channel. `destination`: the host of a webhook, or who is mailed; never a whole address.
    `version` grows each time that it is set. `changed_by`: an actor, as in a job's events.
    """

    name: str
    kind: ChannelKind
    version: int
    destination: str
    changed_at: datetime
    changed_by: str


class SetChannelShape(ChannelShape):
    """A channel that was set. `signing_key`: of a signed webhook, in this answer and in no other;
    null for other kinds.
    """

    signing_key: str | None


class ChannelPage(Shape):
    """Channels by name. `next` is always null."""

    items: list[ChannelShape]
    next: None


class RuleShape(Shape):
    """What a channel is told of. `after_seconds`: of `waiting`, how long a job may wait; else null.
    `created_by`: an actor, as in a job's events.
    """

    id: UUID
    channel: str
    trigger: Trigger
    after_seconds: int | None
    created_at: datetime
    created_by: str


class RulePage(Shape):
    """Rules, the oldest first. `next` is always null."""

    items: list[RuleShape]
    next: None


class DeliveryShape(Shape):
    """A notification to one channel. `id`: the same with every try. `kind`: a trigger, `digest` or
    `test`. `tries`: that were made. `last_answer`: what came of the last one.
    """

    id: UUID
    channel: str
    kind: str
    title: str
    text: str
    job_id: UUID | None
    state: DeliveryState
    created_at: datetime
    tries: int
    next_try_at: datetime | None
    last_tried_at: datetime | None
    last_answer: str | None
    ended_at: datetime | None


class DeliveryPage(Shape):
    """Deliveries of the last 30 days, the newest first. Send `next` as `after`."""

    items: list[DeliveryShape]
    next: str | None


class SentShape(Shape):
    """A delivery that is to be sent. `id`: of it."""

    id: UUID
