"""Add people, their memberships and invitations, and sessions that belong to a person.

Keys, sessions and jobs that there are keep their owner: a key that belongs to no person.

To the release before, which may serve at the same time, a person's key is a viewer's of its project,
with a name that none of that release's paths can hold; so it neither does more nor is rotated there.
Downgrading revokes people's keys, and ends people's sessions.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_ROLES = ("admin", "auditor", "maintainer", "submitter", "viewer")


def upgrade() -> None:
    """Add the tables and columns."""
    op.create_table(
        "people",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("name_folded", sa.Text(), nullable=False),
        sa.Column("email", sa.Text()),
        _instant("created_at", nullable=False),
        _instant("disabled_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_people")),
        sa.UniqueConstraint("name_folded", name=op.f("uq_people_name_folded")),
    )
    op.create_table(
        "memberships",
        sa.Column("person_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        _instant("created_at", nullable=False),
        sa.Column("created_by", sa.Text()),
        sa.PrimaryKeyConstraint("person_id", "project_id", name=op.f("pk_memberships")),
        _refers("memberships", "person_id", "people"),
        _refers("memberships", "project_id", "projects"),
        _role_known("memberships"),
    )
    op.create_index("ix_memberships_project_id", "memberships", ["project_id"])
    _change_keys()
    _change_sessions()
    op.add_column("jobs", sa.Column("owner_person_id", sa.Uuid()))
    op.create_foreign_key(
        op.f("fk_jobs_owner_person_id"), "jobs", "people", ["owner_person_id"], ["id"]
    )
    op.create_index("ix_audit_entries_person", "audit_entries", ["person_id", "at", "id"])
    _add_ways_in()


def downgrade() -> None:
    """Remove them, and revoke what the release before would take for more than it is."""
    op.drop_table("sign_in_attempts")
    op.drop_table("logins")
    op.drop_table("invitations")
    op.drop_index("ix_audit_entries_person", "audit_entries")
    op.drop_constraint(op.f("fk_jobs_owner_person_id"), "jobs")
    op.drop_column("jobs", "owner_person_id")
    op.execute("DELETE FROM sessions WHERE key_id IS NULL")
    op.drop_constraint(op.f("ck_sessions_session_has_one_owner"), "sessions")
    op.drop_index("ix_sessions_key_id", "sessions")
    op.drop_index("ix_sessions_person_id", "sessions")
    for name in ("person_id", "project_id", "last_seen_at", "browser", "address"):
        op.drop_column("sessions", name)
    op.alter_column("sessions", "key_id", nullable=False)
    op.execute(
        "UPDATE api_keys SET revoked_at = coalesce(revoked_at, expires_at, created_at), "
        "former_hash = NULL, former_until_at = NULL WHERE person_id IS NOT NULL"
    )
    op.drop_constraint(op.f("ck_api_keys_a_person_s_key_is_a_viewer_s_to_others"), "api_keys")
    op.drop_constraint(op.f("ck_api_keys_limit_role_known"), "api_keys")
    op.drop_constraint(op.f("uq_api_keys_person_id_own_name"), "api_keys")
    op.drop_constraint(op.f("fk_api_keys_person_id"), "api_keys")
    for name in ("limit_role", "own_name", "person_id"):
        op.drop_column("api_keys", name)
    op.drop_table("memberships")
    op.drop_table("people")


def _change_keys() -> None:
    op.add_column("api_keys", sa.Column("person_id", sa.Uuid()))
    op.create_foreign_key(
        op.f("fk_api_keys_person_id"), "api_keys", "people", ["person_id"], ["id"]
    )
    op.add_column("api_keys", sa.Column("own_name", sa.Text()))
    op.add_column("api_keys", sa.Column("limit_role", sa.Text()))
    op.create_unique_constraint(
        op.f("uq_api_keys_person_id_own_name"), "api_keys", ["person_id", "own_name"]
    )
    words = ", ".join(f"'{role}'" for role in _ROLES)
    op.create_check_constraint(
        op.f("ck_api_keys_limit_role_known"), "api_keys", f"limit_role IN ({words})"
    )
    op.create_check_constraint(
        op.f("ck_api_keys_a_person_s_key_is_a_viewer_s_to_others"),
        "api_keys",
        "CASE WHEN person_id IS NULL THEN own_name IS NULL AND limit_role IS NULL "
        "ELSE own_name IS NOT NULL AND limit_role IS NOT NULL AND role = 'viewer' "
        "AND NOT is_admin END",
    )


def _change_sessions() -> None:
    op.alter_column("sessions", "key_id", nullable=True)
    op.add_column("sessions", sa.Column("person_id", sa.Uuid()))
    op.add_column("sessions", sa.Column("project_id", sa.Uuid()))
    op.add_column("sessions", _instant("last_seen_at"))
    op.add_column("sessions", sa.Column("browser", sa.Text()))
    op.add_column("sessions", sa.Column("address", sa.Text()))
    for name, table in (("person_id", "people"), ("project_id", "projects")):
        op.create_foreign_key(op.f(f"fk_sessions_{name}"), "sessions", table, [name], ["id"])
    for name in ("key_id", "person_id"):
        op.create_index(f"ix_sessions_{name}", "sessions", [name])
    op.create_check_constraint(
        op.f("ck_sessions_session_has_one_owner"),
        "sessions",
        "(key_id IS NULL) <> (person_id IS NULL)",
    )


def _add_ways_in() -> None:
    op.create_table(
        "invitations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("person_id", sa.Uuid()),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("email", sa.Text()),
        sa.Column("invited_by_key_id", sa.Uuid()),
        sa.Column("invited_by_person_id", sa.Uuid()),
        sa.Column("created_by", sa.Text(), nullable=False),
        _instant("created_at", nullable=False),
        _instant("expires_at", nullable=False),
        _instant("used_at"),
        sa.Column("used_by_person_id", sa.Uuid()),
        _instant("revoked_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_invitations_token_hash")),
        _refers("invitations", "project_id", "projects"),
        _refers("invitations", "person_id", "people"),
        _refers("invitations", "invited_by_key_id", "api_keys"),
        _refers("invitations", "invited_by_person_id", "people"),
        _refers("invitations", "used_by_person_id", "people"),
        _role_known("invitations"),
    )
    for name in ("project_id", "expires_at"):
        op.create_index(f"ix_invitations_{name}", "invitations", [name])
    op.create_table(
        "logins",
        sa.Column("challenge", sa.Text(), nullable=False),
        sa.Column("code_hash", sa.Text(), nullable=False),
        sa.Column("person_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("session_id_hash", sa.Text(), nullable=False),
        sa.Column("limit_role", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        _instant("created_at", nullable=False),
        _instant("expires_at", nullable=False),
        _instant("key_expires_at", nullable=False),
        _instant("used_at"),
        sa.PrimaryKeyConstraint("challenge", name=op.f("pk_logins")),
        _refers("logins", "person_id", "people"),
        _refers("logins", "project_id", "projects"),
        _role_known("logins", "limit_role"),
    )
    op.create_index("ix_logins_expires_at", "logins", ["expires_at"])
    op.create_table(
        "sign_in_attempts",
        sa.Column("subject", sa.Text(), nullable=False),
        _instant("began_at", nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_sign_in_attempts")),
    )
    op.create_index("ix_sign_in_attempts_began_at", "sign_in_attempts", ["began_at"])


def _instant(name: str, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _refers(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=op.f(f"fk_{table}_{column}"))


def _role_known(table: str, column: str = "role") -> sa.CheckConstraint:
    words = ", ".join(f"'{role}'" for role in _ROLES)
    return sa.CheckConstraint(f"{column} IN ({words})", name=op.f(f"ck_{table}_role_known"))
