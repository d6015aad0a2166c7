"""Alembic's entry point: runs migrations, with a limit on every wait.

Not here: which database and which revision, and whose turn it is (`app.storage.session.migrate`),
or the tables themselves (`app.storage.schema.tables`, `money_tables`).
"""

from __future__ import annotations

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from sqlalchemy import Connection, text

from app.storage.schema import money_tables as _money_tables  # fills metadata  # noqa: F401
from app.storage.schema.tables import metadata
from app.storage.session.revision import fingerprint_of

# A migration that cannot get its table lock gives up, rather than make every writer queue
# behind it.
LOCK_TIMEOUT = "4s"
STATEMENT_TIMEOUT = "60s"


def run_migrations(connection: Connection) -> None:
    """Run what was asked."""
    for name, value in (("lock_timeout", LOCK_TIMEOUT), ("statement_timeout", STATEMENT_TIMEOUT)):
        connection.execute(
            text("SELECT set_config(:name, :value, false)"), {"name": name, "value": value}
        )
    connection.commit()
    context.configure(
        connection=connection,
        target_metadata=metadata,
        compare_type=True,
        on_version_apply=_leave_fingerprint,
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()


def _leave_fingerprint(
    ctx: MigrationContext, step: MigrationInfo, *_: object, **__: object
) -> None:
    """So that another version, whose migration of this number says something else, notices.

    With each migration: one that commits in its middle commits those before it, and may then fail.
    """
    reached = step.destination_revision_ids
    told = fingerprint_of(reached[0]) if reached else None
    # The statement takes no parameters; a fingerprint is hexadecimal digits.
    comment = "NULL" if told is None else f"'{told}'"
    ctx.execute(f"COMMENT ON TABLE alembic_version IS {comment}")


run_migrations(context.config.attributes["connection"])
