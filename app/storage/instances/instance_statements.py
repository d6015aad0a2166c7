"""The statements about instances, each built once.

Lives here: the statements alone. Not here: running them (`instance_repository`), or when a bill is
due (`bill_due`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import BindParameter, and_, bindparam, func, or_, select, text

from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES, EndedBy, InstanceState
from app.storage.money.bill_due import bill_due_at, can_be_billed, is_unpriced
from app.storage.money.money_repository import Billing
from app.storage.schema import money_tables, tables
from app.storage.schema.column_types import region_in
from app.storage.session.ready_statement import Ready

_one = tables.instances.c
_contacts = tables.contacts.c
_spans = money_tables.assignments.c
_LIVE = text(f"instances.{tables.one_of('state', LIVE_INSTANCE_STATES)}")
_HEARD = text(
    f"instances.{tables.one_of('state', (InstanceState.REGISTERED, InstanceState.INTERRUPTING))}"
)
_BY: BindParameter[Any] = bindparam("by")
_AT_MOST: BindParameter[Any] = bindparam("at_most")
_ALL = select(*_one)
_WHOSE = select(_one.id, _one.job_id)
_IN_ORDER = (_one.requested_at, _one.id)

OF_JOB = Ready(_ALL.where(_one.job_id == bindparam("of_job")).order_by(*_IN_ORDER))
LIVE_OF_JOB = Ready(_ALL.where(_one.job_id == bindparam("of_job"), _LIVE).order_by(*_IN_ORDER))
OF_LAUNCH = Ready(_ALL.where(_one.launch_id == bindparam("of_launch")).order_by(_one.id))
ON_HOST = Ready(
    _ALL.where(_one.job_id == bindparam("of_job"), _one.host == bindparam("on_host"))
    .order_by(*_IN_ORDER)
    .limit(_AT_MOST)
)
NEXT_ORDINAL = Ready(
    select(1 + func.greatest(func.count(), func.coalesce(func.max(_one.ordinal), 0))).where(
        _one.job_id == bindparam("of_job"), _one.launched_at.is_not(None)
    )
)
INTERRUPTED_POOLS = Ready(
    select(_one.pool)
    .where(
        _one.job_id == bindparam("of_job"),
        _one.pool.is_not(None),
        or_(
            and_(
                text(f"instances.ended_by = '{EndedBy.CLOUD_INTERRUPTION.value}'"),
                _one.ended_at >= bindparam("since"),
            ),
            _one.noticed_at >= bindparam("since"),
            and_(
                _one.suspect,
                func.coalesce(_one.ended_at, _one.release_ordered_at) >= bindparam("since"),
            ),
        ),
    )
    .distinct()
)
_NAMED = (
    _one.provider == bindparam("of_provider"),
    _one.provider_instance_id == bindparam("named"),
)
_NEWEST_FIRST = (_one.requested_at.desc(), _one.id.desc())
BY_PROVIDER_ID = Ready(_ALL.where(*_NAMED).order_by(*_NEWEST_FIRST).limit(1))
WHOSE = Ready(_WHOSE.where(*_NAMED).order_by(*_NEWEST_FIRST).limit(1))
HOLDER = Ready(_WHOSE.where(_one.credential_hash == bindparam("this_hash")))
DUE_TERMINATIONS = Ready(
    _WHOSE.where(
        _one.terminate_at <= _BY,
        _one.provider_instance_id.is_not(None),
        or_(_one.lease_until_at.is_(None), _one.lease_until_at <= _BY),
    )
    .order_by(_one.terminate_at, _one.id)
    .limit(_AT_MOST)
)
NEXT_TERMINATION = Ready(
    select(func.min(func.greatest(_one.terminate_at, _one.lease_until_at))).where(
        _one.terminate_at.is_not(None), _one.provider_instance_id.is_not(None)
    )
)
DUE_DESCRIPTIONS = Ready(
    select(
        _one.id,
        _one.job_id,
        _one.provider,
        func.coalesce(region_in(_one.pool), ""),
        _one.provider_instance_id,
    )
    .where(_one.describe_at <= _BY, _one.provider_instance_id.is_not(None))
    .order_by(_one.describe_at, _one.id)
    .limit(_AT_MOST)
)
NEXT_DESCRIPTION = Ready(
    select(func.min(_one.describe_at)).where(
        _one.describe_at.is_not(None), _one.provider_instance_id.is_not(None)
    )
)
LIVE_OF_REGION = Ready(
    select(_one.id, _one.job_id, _one.provider_instance_id)
    .where(
        _LIVE,
        _one.provider == bindparam("of_provider"),
        region_in(_one.pool) == bindparam("of_region"),
    )
    .order_by(_one.id)
)
_UNDER_LOCK = _ALL.where(_one.id == bindparam("this_instance"))
LOCK = Ready(_UNDER_LOCK.with_for_update())
LOCK_OR_SKIP = Ready(_UNDER_LOCK.with_for_update(skip_locked=True))
UNPRICED = Ready(_ALL.where(is_unpriced()).order_by(_one.launched_at, _one.id).limit(_AT_MOST))
LAST_UNFINAL_END = Ready(
    select(func.max(_one.ended_at)).where(
        _one.provider == bindparam("of_provider"),
        _one.launched_at.is_not(None),
        _one.cost_final_at.is_(None),
    )
)
LIVE_OF_PROJECT = Ready(
    _ALL.join(tables.jobs, tables.jobs.c.id == _one.job_id)
    .where(tables.jobs.c.project_id == bindparam("of_project"), _LIVE)
    .order_by(*_IN_ORDER)
)
_WITH_CONTACT = select(_one.id).join(tables.contacts, _contacts.instance_id == _one.id)
SILENT = Ready(
    _WITH_CONTACT.where(_HEARD, _one.unreachable_at.is_(None), _contacts.answered_at <= _BY)
    .order_by(_one.id)
    .limit(_AT_MOST)
)
HEARD_AGAIN = Ready(
    _WITH_CONTACT.where(
        _HEARD, _one.unreachable_at.is_not(None), _contacts.answered_at > bindparam("after")
    )
    .order_by(_one.id)
    .limit(_AT_MOST)
)
ASSIGNMENTS = Ready(
    select(*_spans)
    .where(_spans.instance_id == bindparam("of_instance"))
    .order_by(_spans.from_at, _spans.id)
)


@lru_cache(maxsize=8)
def billable(billing: Billing) -> tuple[Ready, Ready]:
    """What is due, and when the first of it is."""
    due = bill_due_at(billing)
    return (
        Ready(_WHOSE.where(can_be_billed(), due <= _BY).order_by(due, _one.id).limit(_AT_MOST)),
        Ready(select(func.min(due)).where(can_be_billed())),
    )
