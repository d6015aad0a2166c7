"""The claim of the queue in SQL: which jobs may be claimed, the lock, and the wait of those alike.

A claim reads `READY` and `WAITED`, whose rows are not locked, and then locks one job after another
by `LOCK_OR_SKIP` (SKIP LOCKED), so that any number of workers claim side by side. Not here: running
the statements (`job_repository`), or who claims (`queue.claim_jobs`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Uuid, bindparam, func, or_, select, text, update

from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES
from app.storage.schema import tables
from app.storage.session.ready_statement import Ready

_jobs = tables.jobs
_claimable = text(tables.one_of("state", CLAIMABLE_JOB_STATES))
_BY: BindParameter[Any] = bindparam("by")
_AT_MOST: BindParameter[Any] = bindparam("at_most")
_OF_PROJECT: BindParameter[Any] = bindparam("of_project", type_=Uuid)


def _lock(skip_locked: bool) -> Ready:
    """The job under its lock, and the clock as it is once the lock is there.

    A subquery with a lock is carried out as it stands: the clock outside is read after it.
    """
    one = select(*_jobs.c).where(_jobs.c.id == bindparam("this_job"))
    locked = one.with_for_update(skip_locked=skip_locked, key_share=True).subquery("locked")
    return Ready(select(*locked.c, func.clock_timestamp()))


LOCK, LOCK_OR_SKIP = _lock(False), _lock(True)

_RANK = (_jobs.c.queue_rank_at, _jobs.c.id)
_PAYER = (_jobs.c.project_id, _jobs.c.budget_id)
_PROMISE = (_jobs.c.submitted_at, _jobs.c.deadline_at)
_CLAIMED_AT = (
    select(func.max(tables.attempts.c.created_at))
    .where(tables.attempts.c.job_id == _jobs.c.id)
    .scalar_subquery()
)
_NEEDS = (_jobs.c.spec, _jobs.c.market_mode, _jobs.c.node_count)
_CHANGES = (_jobs.c.next_fence, _jobs.c.moving_launch_id, _jobs.c.moving_until_at)
_QUEUED = (*_RANK, *_PAYER, *_NEEDS, *_CHANGES, *_PROMISE, _CLAIMED_AT)
# Each has its own index: the first stops after so many rows.
READY = Ready(
    select(*_QUEUED)
    .where(_claimable, _jobs.c.claimable_at.is_(None))
    .order_by(*_RANK)
    .limit(_AT_MOST)
)
WAITED = Ready(
    select(*_QUEUED).where(_claimable, _jobs.c.claimable_at <= _BY).order_by(*_RANK).limit(_AT_MOST)
)
ANY_READY = Ready(select(_jobs.c.id).where(_claimable, _jobs.c.claimable_at.is_(None)).limit(1))
# A statement of its own: one with both ends of the index would read what is between them, too.
FAR_AHEAD = Ready(
    select(*_QUEUED)
    .where(_claimable, _jobs.c.claimable_at > bindparam("latest"))
    .order_by(_jobs.c.claimable_at.desc(), _jobs.c.id)
    .limit(_AT_MOST)
)
WAITING = Ready(
    select(func.min(_jobs.c.claimable_at), func.max(_jobs.c.claimable_at)).where(
        _claimable, _jobs.c.claimable_at.is_not(None)
    )
)

# Those with machines on hold need fewer; those that are locked are left alone.
_WAIT_ALIKE = (
    select(_jobs.c.id)
    .where(
        _claimable,
        or_(_jobs.c.claimable_at.is_(None), _jobs.c.claimable_at <= _BY),
        _jobs.c.capacity_key == bindparam("of_key"),
        or_(_OF_PROJECT.is_(None), _jobs.c.project_id == _OF_PROJECT),
        _jobs.c.market_mode == bindparam("of_market"),
        _jobs.c.hold_until_at.is_(None),
        _jobs.c.id != bindparam("this_job"),
    )
    .order_by(_jobs.c.id)
    # Not the key: whoever writes a row that belongs to the job need not wait for thousands of jobs.
    .with_for_update(skip_locked=True, key_share=True)
    .cte("alike")
    .prefix_with("MATERIALIZED")
)
WAIT_TOGETHER = Ready(
    update(_jobs)
    .where(_jobs.c.id == _WAIT_ALIKE.c.id)
    .values(claimable_at=bindparam("next_look_at"), wait_reason=bindparam("why"))
    .returning(_jobs.c.id)
)
