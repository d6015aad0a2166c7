"""Store which budget has paused a job, how often a machine was given secrets, and index deliveries
by channel.

The release before writes and reads none of them: its workers name no budget, and count nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_DELIVERIES = "notification_deliveries"


def upgrade() -> None:
    """Add the columns and indexes."""
    op.add_column("jobs", sa.Column("paused_by_budget", sa.Text()))
    op.add_column("attempt_members", sa.Column("secret_deliveries", sa.Integer()))
    op.drop_index(f"ix_{_DELIVERIES}_due", _DELIVERIES)
    op.create_index(
        f"ix_{_DELIVERIES}_new",
        _DELIVERIES,
        ["created_at", "id"],
        postgresql_where=sa.text("state = 'new'"),
    )
    op.create_index(
        f"ix_{_DELIVERIES}_waiting",
        _DELIVERIES,
        ["channel_id", "next_try_at", "id"],
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_index(
        f"ix_{_DELIVERIES}_leased",
        _DELIVERIES,
        ["channel_id"],
        postgresql_where=sa.text("state = 'waiting' AND leased_until_at IS NOT NULL"),
    )


def downgrade() -> None:
    """Remove them."""
    for kind in ("leased", "waiting", "new"):
        op.drop_index(f"ix_{_DELIVERIES}_{kind}", _DELIVERIES)
    op.create_index(
        f"ix_{_DELIVERIES}_due",
        _DELIVERIES,
        ["next_try_at"],
        postgresql_where=sa.text("state IN ('new', 'waiting')"),
    )
    op.drop_column("attempt_members", "secret_deliveries")
    op.drop_column("jobs", "paused_by_budget")
