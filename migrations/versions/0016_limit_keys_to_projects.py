"""Let keys name their projects: a person's key some of the person's, a service key several.

To the release before, such a key is one of its own project, which is always among them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("api_keys", sa.Column("project_ids", ARRAY(sa.Uuid())))
    op.create_check_constraint(
        op.f("ck_api_keys_projects_hold_its_own_and_no_role_of_all"),
        "api_keys",
        "project_ids IS NULL OR (project_ids @> ARRAY[project_id] "
        "AND coalesce(limit_role, role) IN ('viewer', 'submitter', 'maintainer'))",
    )
    op.create_index("ix_api_keys_project_ids", "api_keys", ["project_ids"], postgresql_using="gin")


def downgrade() -> None:
    """Remove it. Revokes people's keys that it has limited: without it, they would open more."""
    op.execute(
        "UPDATE api_keys SET revoked_at = coalesce(revoked_at, expires_at, created_at), "
        "former_hash = NULL, former_until_at = NULL "
        "WHERE person_id IS NOT NULL AND project_ids IS NOT NULL"
    )
    # The deferred triggers of these rows stand in the way of a change of the table.
    op.execute("SET CONSTRAINTS ALL IMMEDIATE")
    op.drop_index("ix_api_keys_project_ids", "api_keys")
    op.drop_constraint(
        op.f("ck_api_keys_projects_hold_its_own_and_no_role_of_all"), "api_keys", type_="check"
    )
    op.drop_column("api_keys", "project_ids")
