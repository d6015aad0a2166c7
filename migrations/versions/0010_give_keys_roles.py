"""Give keys a role, a last use and an end, and jobs the key that submitted them.

Keys that there are keep what they may do: an admin's key is an admin's, another one is a
maintainer's. Which of them submitted a job is not looked up: all of them command every job.

Downgrading revokes what the release before would take for more than it is: keys of lesser roles,
and keys with an end.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_ROLES = ("admin", "auditor", "maintainer", "submitter", "viewer")
_INSTANTS = ("former_until_at", "expires_at", "last_used_at")
_TEXTS = ("prefix", "former_hash", "created_by", "revoked_by")


def upgrade() -> None:
    """Add the columns, and give each key the role that it had."""
    op.add_column("projects", sa.Column("archived_at", sa.DateTime(timezone=True)))
    op.add_column("api_keys", sa.Column("role", sa.Text()))
    for name in _INSTANTS:
        op.add_column("api_keys", sa.Column(name, sa.DateTime(timezone=True)))
    for name in _TEXTS:
        op.add_column("api_keys", sa.Column(name, sa.Text()))
    op.execute("UPDATE api_keys SET role = CASE WHEN is_admin THEN 'admin' ELSE 'maintainer' END")
    op.alter_column("api_keys", "role", nullable=False)
    words = ", ".join(f"'{role}'" for role in _ROLES)
    op.create_check_constraint(op.f("ck_api_keys_role_known"), "api_keys", f"role IN ({words})")
    op.create_check_constraint(
        op.f("ck_api_keys_former_key_has_an_end"),
        "api_keys",
        "(former_hash IS NULL) = (former_until_at IS NULL)",
    )
    op.create_unique_constraint(op.f("uq_api_keys_former_hash"), "api_keys", ["former_hash"])
    op.add_column("jobs", sa.Column("owner_key_id", sa.Uuid()))
    op.create_foreign_key(
        op.f("fk_jobs_owner_key_id"), "jobs", "api_keys", ["owner_key_id"], ["id"]
    )


def downgrade() -> None:
    """Remove them, and revoke the keys that would be good for more without them."""
    op.execute(
        "UPDATE api_keys SET revoked_at = coalesce(expires_at, created_at) "
        "WHERE revoked_at IS NULL "
        "AND (role IN ('viewer', 'submitter', 'auditor') OR expires_at IS NOT NULL)"
    )
    op.drop_constraint(op.f("fk_jobs_owner_key_id"), "jobs")
    op.drop_column("jobs", "owner_key_id")
    op.drop_constraint(op.f("uq_api_keys_former_hash"), "api_keys")
    op.drop_constraint(op.f("ck_api_keys_former_key_has_an_end"), "api_keys")
    op.drop_constraint(op.f("ck_api_keys_role_known"), "api_keys")
    for name in ("role", *_INSTANTS, *_TEXTS):
        op.drop_column("api_keys", name)
    op.drop_column("projects", "archived_at")
