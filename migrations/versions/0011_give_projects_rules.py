"""Give projects rules, and jobs the fields of their specs that the project has given.

Projects that there are have no rules; of the specs of jobs that there are everything is the
author's. Downgrading forgets the rules: jobs keep the specs that they were stored with.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("projects", sa.Column("rules", JSONB()))
    op.add_column("projects", sa.Column("rules_version", sa.Integer()))
    op.add_column("projects", sa.Column("rules_changed_at", sa.DateTime(timezone=True)))
    op.add_column("projects", sa.Column("rules_changed_by", sa.Text()))
    op.add_column("jobs", sa.Column("spec_sources", JSONB()))


def downgrade() -> None:
    """Remove them."""
    op.drop_column("jobs", "spec_sources")
    for name in ("rules_changed_by", "rules_changed_at", "rules_version", "rules"):
        op.drop_column("projects", name)
