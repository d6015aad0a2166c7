"""Number a job's machines as the cloud starts them, so that what people call them never changes.

Machines that have started are numbered as they have been called so far.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_NUMBER_ALL = """
UPDATE instances SET ordinal = numbered.place FROM (
    SELECT id, row_number() OVER (PARTITION BY job_id ORDER BY requested_at, id) AS place
    FROM instances WHERE launched_at IS NOT NULL AND job_id IS NOT NULL
) AS numbered WHERE numbered.id = instances.id
"""


def upgrade() -> None:
    """Add the column, and number the machines that there are."""
    op.add_column("instances", sa.Column("ordinal", sa.Integer(), nullable=True))
    op.execute(_NUMBER_ALL)


def downgrade() -> None:
    """Remove it."""
    op.drop_column("instances", "ordinal")
