"""Add triggers: the ledger only grows, and only a job that is under way has a live attempt."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_REFUSE_LEDGER_CHANGE = """
CREATE FUNCTION refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ledger_entries is append-only: % refused; book an adjustment instead', TG_OP
        USING ERRCODE = 'restrict_violation';
END $$
"""
# For each statement: an UPDATE that meets no row is refused as well. ALWAYS: also in a session
# that replays replicated changes, where ordinary triggers stay silent.
_LEDGER_TRIGGER = """
CREATE TRIGGER ledger_entries_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_ledger_change();
ALTER TABLE ledger_entries ENABLE ALWAYS TRIGGER ledger_entries_append_only;
REVOKE UPDATE, DELETE, TRUNCATE ON ledger_entries FROM PUBLIC, CURRENT_USER
"""

# Looks at the rows as they are at the commit, for a transaction may pass through states that it
# does not leave behind. FOR SHARE makes it right also for two transactions at once: whoever
# changes the job's state has to wait, or is waited for; a transaction that holds the job's lock
# already, as all of ours do, waits for nobody. Costs one look-up by key in each table, and only
# when an attempt begins or a job leaves the states under way.
_REFUSE_LIVE_ATTEMPT = """
CREATE FUNCTION refuse_live_attempt_of_idle_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner_id uuid;
    owner_state text;
BEGIN
    IF TG_TABLE_NAME = 'jobs' THEN
        owner_id := NEW.id;
    ELSE
        owner_id := NEW.job_id;
    END IF;
    SELECT state INTO owner_state FROM jobs WHERE id = owner_id FOR SHARE;
    IF owner_state NOT IN ('starting', 'running', 'stopping') AND EXISTS (
        SELECT FROM attempts WHERE job_id = owner_id
            AND state IN ('provisioning', 'preparing', 'running', 'draining', 'settling')
    ) THEN
        RAISE EXCEPTION 'job % is % and must not have a live attempt', owner_id, owner_state
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$
"""
_JOBS_TRIGGER = """
CREATE CONSTRAINT TRIGGER jobs_idle_without_attempt
    AFTER UPDATE OF state ON jobs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.state NOT IN ('starting', 'running', 'stopping'))
    EXECUTE FUNCTION refuse_live_attempt_of_idle_job()
"""
_ATTEMPTS_TRIGGERS = """
CREATE CONSTRAINT TRIGGER attempts_begin_under_way
    AFTER INSERT ON attempts DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION refuse_live_attempt_of_idle_job();
CREATE CONSTRAINT TRIGGER attempts_revive_under_way
    AFTER UPDATE OF state, job_id ON attempts DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (
        NEW.job_id <> OLD.job_id
        OR OLD.state NOT IN ('provisioning', 'preparing', 'running', 'draining', 'settling')
    )
    EXECUTE FUNCTION refuse_live_attempt_of_idle_job()
"""


def upgrade() -> None:
    """Add the functions and triggers."""
    op.execute(_REFUSE_LEDGER_CHANGE)
    op.execute(_LEDGER_TRIGGER)
    op.execute(_REFUSE_LIVE_ATTEMPT)
    op.execute(_JOBS_TRIGGER)
    op.execute(_ATTEMPTS_TRIGGERS)


def downgrade() -> None:
    """Remove them, and give the privileges back."""
    op.execute("DROP TRIGGER attempts_revive_under_way ON attempts")
    op.execute("DROP TRIGGER attempts_begin_under_way ON attempts")
    op.execute("DROP TRIGGER jobs_idle_without_attempt ON jobs")
    op.execute("DROP FUNCTION refuse_live_attempt_of_idle_job()")
    op.execute("DROP TRIGGER ledger_entries_append_only ON ledger_entries")
    op.execute("DROP FUNCTION refuse_ledger_change()")
    op.execute("GRANT UPDATE, DELETE, TRUNCATE ON ledger_entries TO CURRENT_USER")
