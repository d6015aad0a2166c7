"""Keep notifications: channels, rules, and an outbox of what is to be sent.

The release before knows nothing of the tables, and writes no delivery.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_KINDS = "kind IN ('slack', 'smtp', 'webhook')"
_TRIGGERS = (
    "trigger IN ('books_differ', 'budget', 'deadline_at_risk', 'deployment_budget', "
    "'failed', 'interrupted', "
    "'machine_leaked', 'started', 'succeeded', 'waiting')"
)
_STATES = "state IN ('delivered', 'digested', 'failed', 'held', 'new', 'waiting')"


def _instant(name: str, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def upgrade() -> None:
    """Add the tables."""
    _add_channels()
    _add_rules()
    _add_deliveries()


def _add_channels() -> None:
    table = "notification_channels"
    op.create_table(
        table,
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text()),
        sa.Column("wrapped_key", sa.LargeBinary()),
        sa.Column("content", sa.LargeBinary()),
        _instant("changed_at", nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        _instant("rests_until_at"),
        _instant("removed_at"),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f(f"fk_{table}_project_id")
        ),
        sa.CheckConstraint(_KINDS, name=op.f(f"ck_{table}_kind_known")),
        sa.CheckConstraint(
            "(removed_at IS NULL) = (key_id IS NOT NULL) AND (key_id IS NULL) = (wrapped_key IS NULL) "
            "AND (key_id IS NULL) = (content IS NULL)",
            name=op.f(f"ck_{table}_sealed_until_removed"),
        ),
    )
    op.create_index(
        f"uq_{table}_name",
        table,
        ["project_id", "name"],
        unique=True,
        postgresql_where=sa.text("removed_at IS NULL"),
    )


def _add_rules() -> None:
    table = "notification_rules"
    op.create_table(
        table,
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("channel_id", sa.Uuid(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("after_seconds", sa.Integer(), nullable=False),
        _instant("created_at", nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f(f"fk_{table}_project_id")
        ),
        sa.ForeignKeyConstraint(
            ["channel_id"], ["notification_channels.id"], name=op.f(f"fk_{table}_channel_id")
        ),
        sa.UniqueConstraint(
            "channel_id",
            "trigger",
            "after_seconds",
            name=op.f(f"uq_{table}_channel_id_trigger_after_seconds"),
        ),
        sa.CheckConstraint(_TRIGGERS, name=op.f(f"ck_{table}_trigger_known")),
        sa.CheckConstraint(
            "(trigger = 'waiting') = (after_seconds > 0)",
            name=op.f(f"ck_{table}_only_waits_have_a_length"),
        ),
    )
    op.create_index(f"ix_{table}_project_id", table, ["project_id", "trigger"])
    op.create_index(f"ix_{table}_trigger", table, ["trigger"])


def _add_deliveries() -> None:
    table = "notification_deliveries"
    op.create_table(
        table,
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("channel_id", sa.Uuid(), nullable=False),
        sa.Column("source_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("occasion", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Uuid()),
        sa.Column("message", JSONB(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        _instant("created_at", nullable=False),
        _instant("admitted_at"),
        sa.Column("tries", sa.Integer(), nullable=False),
        _instant("next_try_at"),
        _instant("leased_until_at"),
        _instant("last_tried_at"),
        sa.Column("last_answer", sa.Text()),
        _instant("ended_at"),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f(f"fk_{table}_project_id")
        ),
        sa.ForeignKeyConstraint(
            ["channel_id"], ["notification_channels.id"], name=op.f(f"fk_{table}_channel_id")
        ),
        sa.UniqueConstraint("channel_id", "occasion", name=op.f(f"uq_{table}_channel_id_occasion")),
        sa.CheckConstraint(_STATES, name=op.f(f"ck_{table}_state_known")),
        sa.CheckConstraint(
            "(state = 'waiting') = (next_try_at IS NOT NULL)",
            name=op.f(f"ck_{table}_waits_for_a_time"),
        ),
    )
    op.create_index(
        f"ix_{table}_due",
        table,
        ["next_try_at"],
        postgresql_where=sa.text("state IN ('new', 'waiting')"),
    )
    op.create_index(
        f"ix_{table}_held",
        table,
        ["source_id", "channel_id", "created_at"],
        postgresql_where=sa.text("state = 'held'"),
    )
    op.create_index(f"ix_{table}_source", table, ["source_id", "channel_id", "admitted_at"])
    op.create_index(f"ix_{table}_project", table, ["project_id", "id"])
    op.create_index(f"ix_{table}_job", table, ["job_id", "kind"])
    op.create_index(f"ix_{table}_created_at", table, ["created_at"])


def downgrade() -> None:
    """Remove them, and with them what channels lead to."""
    op.drop_table("notification_deliveries")
    op.drop_table("notification_rules")
    op.drop_table("notification_channels")
