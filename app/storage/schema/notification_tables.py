"""Tables of notifications: channels, rules, and the outbox of deliveries.

A delivery is written in the transaction of what it tells of, so that neither is there without the
other.
"""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.notifications.channel_targets import ChannelKind
from app.domain.notifications.delivery_rules import DeliveryState
from app.domain.notifications.triggers import Trigger
from app.storage.schema.column_types import Word
from app.storage.schema.schema import instant, metadata, one_of

notification_channels = Table(
    "notification_channels",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Word(ChannelKind), nullable=False),
    # Grows with each target: no two are encrypted for the same place.
    Column("version", Integer, nullable=False),
    # Where it leads, for people: nothing in it opens anything.
    Column("destination", Text, nullable=False),
    # The target with its secrets, encrypted (`app.ports.value_encryption`); NULL once removed.
    Column("key_id", Text),
    Column("wrapped_key", LargeBinary),
    Column("content", LargeBinary),
    instant("changed_at", nullable=False),
    Column("changed_by", Text, nullable=False),
    # Left alone until then, after a call that failed.
    instant("rests_until_at"),
    # Its deliveries can still be read; another channel may take its name.
    instant("removed_at"),
    CheckConstraint(one_of("kind", ChannelKind), name="kind_known"),
    CheckConstraint(
        "(removed_at IS NULL) = (key_id IS NOT NULL) AND (key_id IS NULL) = (wrapped_key IS NULL) "
        "AND (key_id IS NULL) = (content IS NULL)",
        name="sealed_until_removed",
    ),
    Index(
        "uq_notification_channels_name",
        "project_id",
        "name",
        unique=True,
        postgresql_where=text("removed_at IS NULL"),
    ),
)

notification_rules = Table(
    "notification_rules",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    Column("channel_id", Uuid, ForeignKey("notification_channels.id"), nullable=False),
    Column("trigger", Word(Trigger), nullable=False),
    # Of a wait: how long it may be; 0 for other triggers.
    Column("after_seconds", Integer, nullable=False),
    instant("created_at", nullable=False),
    Column("created_by", Text, nullable=False),
    Unique("channel_id", "trigger", "after_seconds"),
    CheckConstraint(one_of("trigger", Trigger), name="trigger_known"),
    CheckConstraint(
        f"(trigger = '{Trigger.WAITING}') = (after_seconds > 0)", name="only_waits_have_a_length"
    ),
    Index("ix_notification_rules_project_id", "project_id", "trigger"),
    Index("ix_notification_rules_trigger", "trigger"),
)

_WAITING = f"state = '{DeliveryState.WAITING}'"

notification_deliveries = Table(
    "notification_deliveries",
    metadata,
    # The same with every try: a receiver tells by it what it has already.
    Column("id", Uuid, primary_key=True),
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    Column("channel_id", Uuid, ForeignKey("notification_channels.id"), nullable=False),
    # The rule, or the job whose spec names the channel: what is limited by the hour. No foreign
    # key: what was told outlives its rule.
    Column("source_id", Uuid, nullable=False),
    # A trigger, `digest` or `test`.
    Column("kind", Text, nullable=False),
    # What it tells of: a channel is told once, by however many rules.
    Column("occasion", Text, nullable=False),
    Column("job_id", Uuid),
    Column("message", JSONB, nullable=False),
    Column("state", Word(DeliveryState), nullable=False),
    instant("created_at", nullable=False),
    # When it was found to be within its rule's hourly number.
    instant("admitted_at"),
    Column("tries", Integer, nullable=False),
    instant("next_try_at"),
    # While a worker sends it; then another one may.
    instant("leased_until_at"),
    instant("last_tried_at"),
    Column("last_answer", Text),
    instant("ended_at"),
    Unique("channel_id", "occasion"),
    CheckConstraint(one_of("state", DeliveryState), name="state_known"),
    CheckConstraint(
        f"(state = '{DeliveryState.WAITING}') = (next_try_at IS NOT NULL)",
        name="waits_for_a_time",
    ),
    Index(
        "ix_notification_deliveries_new",
        "created_at",
        "id",
        postgresql_where=text(f"state = '{DeliveryState.NEW}'"),
    ),
    Index(
        "ix_notification_deliveries_waiting",
        "channel_id",
        "next_try_at",
        "id",
        postgresql_where=text(_WAITING),
    ),
    Index(
        "ix_notification_deliveries_leased",
        "channel_id",
        postgresql_where=text(f"{_WAITING} AND leased_until_at IS NOT NULL"),
    ),
    Index(
        "ix_notification_deliveries_held",
        "source_id",
        "channel_id",
        "created_at",
        postgresql_where=text(f"state = '{DeliveryState.HELD}'"),
    ),
    Index("ix_notification_deliveries_source", "source_id", "channel_id", "admitted_at"),
    Index("ix_notification_deliveries_project", "project_id", "id"),
    Index("ix_notification_deliveries_job", "job_id", "kind"),
    Index("ix_notification_deliveries_created_at", "created_at"),
)
