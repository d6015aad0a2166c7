"""Add accounts of people at issuers of OpenID Connect, and memberships that follow groups there.

Downgrading keeps the people and their memberships, which are by hand then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables, the column and the index."""
    op.create_table(
        "identities",
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("person_id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("signed_in_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("issuer", "subject", name=op.f("pk_identities")),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_identities_person_id")),
    )
    op.create_index("ix_identities_person_id", "identities", ["person_id"])
    op.create_table(
        "answered_sign_ins",
        sa.Column("state_hash", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("state_hash", name=op.f("pk_answered_sign_ins")),
    )
    op.create_index("ix_answered_sign_ins_expires_at", "answered_sign_ins", ["expires_at"])
    op.add_column("memberships", sa.Column("issuer", sa.Text()))
    op.create_index("ix_people_email", "people", [sa.text("lower(email)")])


def downgrade() -> None:
    """Remove them. Sessions that an issuer's word has begun end within twelve hours."""
    op.drop_index("ix_people_email", "people")
    op.drop_column("memberships", "issuer")
    op.drop_table("answered_sign_ins")
    op.drop_table("identities")
