"""SQL conditions: which machines' bills can be made, and when each is due.

Lives here: the conditions alone, so that the pick, the next due instant and the reports agree. Not
here: the statements that use them (`instance_repository`, `cost_read_models`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, case, func, or_, select, text

from app.domain.billing.billing_rules import REGION_SILENCE_SECONDS, RULES
from app.domain.lifecycle.instance import TERMINAL_INSTANCE_STATES
from app.storage.money.money_repository import Billing
from app.storage.schema import tables
from app.storage.schema.column_types import region_in
from app.storage.schema.money_tables import pools, prices

_instances = tables.instances.c
_NEVER_RAN = and_(
    _instances.launched_at.is_(None),
    text(f"instances.{tables.one_of('state', TERMINAL_INSTANCE_STATES)}"),
)


def _priced() -> ColumnElement[bool]:
    """Whether its cloud's rules are known, and a price covers its start and so all that follows."""
    known = select(prices.c.at).where(
        prices.c.pool == _instances.pool, prices.c.at <= _instances.launched_at
    )
    of_known_cloud = text(tables.one_of("coalesce(instances.cloud, '')", RULES))
    return and_(of_known_cloud, known.exists())


def can_be_billed() -> ColumnElement[bool]:
    """A bill that is not final and can be made, or the end of a row that never ran."""
    return and_(
        _instances.cost_final_at.is_(None),
        or_(_NEVER_RAN, and_(_instances.launched_at.is_not(None), _priced())),
    )


def is_unpriced() -> ColumnElement[bool]:
    """A bill that cannot be made: no price, or no billing rule, for the machine's start."""
    return and_(_instances.cost_final_at.is_(None), _instances.launched_at.is_not(None), ~_priced())


def bill_due_at(billing: Billing) -> ColumnElement[datetime | None]:
    """When a bill is due; NULL while a machine that ended waits for prices quoted after its end.

    In its own region: another one's prices say nothing of what changed there. A region that is
    quoted no more, for it left the settings, is waited for until its cloud is quoted a day later.
    """
    accrual = timedelta(seconds=billing.accrual_seconds)
    settle = timedelta(seconds=billing.settle_seconds)
    of_cloud = select(func.max(pools.c.quoted_at)).where(pools.c.provider == _instances.provider)
    quoted = of_cloud.where(
        or_(
            _instances.pool.is_(None),
            region_in(pools.c.pool) == region_in(_instances.pool),
        )
    ).scalar_subquery()
    silence = timedelta(seconds=REGION_SILENCE_SECONDS)
    return case(
        (_instances.launched_at.is_(None), _instances.updated_at),
        (
            _instances.ended_at.is_(None),
            func.coalesce(_instances.billed_until_at, _instances.launched_at) + accrual,
        ),
        (
            or_(
                _instances.billed_until_at.is_(None),
                _instances.billed_until_at < _instances.ended_at,
            ),
            _instances.ended_at,
        ),
        (
            or_(
                quoted >= _instances.ended_at,
                of_cloud.scalar_subquery() >= _instances.ended_at + silence,
            ),
            _instances.ended_at + settle,
        ),
        else_=None,
    )
