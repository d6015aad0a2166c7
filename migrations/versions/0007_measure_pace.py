"""Keep what agents measure of steps and start-up, and what follows from it for a job.

What the ended attempts of a job had trained was counted from the start of their processes, start-up
included. Such a count is no pace: it is dropped, and counted anew from here on.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_MEASURED = ("first_step", "last_step", "stepping_seconds", "start_up_seconds")
_COUNTED = ("trained_steps", "trained_seconds")


def upgrade() -> None:
    """Add the columns; each is empty at first, so that no row is rewritten."""
    for table in ("contacts", "attempts"):
        for name in _MEASURED:
            op.add_column(table, sa.Column(name, _number_of(name), nullable=True))
    op.add_column("attempts", sa.Column("first_step_at", _instant(), nullable=True))
    op.add_column("attempts", sa.Column("work_digest", sa.Text(), nullable=True))
    op.create_index(
        "ix_attempts_work",
        "attempts",
        ["work_digest", "trained_at"],
        postgresql_where=sa.text("work_digest IS NOT NULL"),
    )
    _count_anew()
    for name, kind in _of_jobs().items():
        op.add_column("jobs", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    """Drop them."""
    for name in _of_jobs():
        op.drop_column("jobs", name)
    _count_anew()
    op.drop_index("ix_attempts_work", "attempts")
    op.drop_column("attempts", "work_digest")
    op.drop_column("attempts", "first_step_at")
    for table in ("contacts", "attempts"):
        for name in _MEASURED:
            op.drop_column(table, name)


def _count_anew() -> None:
    """Clears two columns of any number of rows at once."""
    for name in _COUNTED:
        op.drop_column("jobs", name)
        op.add_column("jobs", sa.Column(name, _number_of(name), nullable=True))


def _of_jobs() -> dict[str, sa.types.TypeEngine[Any]]:
    return {
        "begun_step": sa.BigInteger(),
        "saved_seconds": sa.Float(53),
        "start_up_seconds": sa.Float(53),
        "start_up_p95_seconds": sa.Float(53),
        "market_changed_at": _instant(),
        "slower_since_at": _instant(),
        "steps_per_second": sa.Float(53),
        "eta_at": _instant(),
        "eta_from": sa.Text(),
    }


def _number_of(name: str) -> sa.types.TypeEngine[Any]:
    return sa.Float(53) if name.endswith("_seconds") else sa.BigInteger()


def _instant() -> sa.types.TypeEngine[Any]:
    return sa.DateTime(timezone=True)
