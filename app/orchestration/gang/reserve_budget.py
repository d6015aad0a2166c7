"""Reserve money: what live machines can still cost, held against the budgets that pay for them.

Lives here: reading what the budgets cover beside the live machines, and writing the reservation. A
claim locks the budgets before the job. Not here: the arithmetic (`app.domain.billing.headroom`), or
stopping what is over its budget (`enforce_budgets`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from uuid import UUID

from app.domain.billing.billing_rules import RULES
from app.domain.billing.budget import (
    BudgetOwner,
    LiveInstance,
    ReserveWindow,
    left_microusd,
    reserve_microusd,
)
from app.domain.billing.headroom import BudgetLine, Headroom
from app.domain.lifecycle.attempt import DRAIN_GRACE_SECONDS
from app.domain.lifecycle.entities import Budget, Instance
from app.domain.market.offer import Pool
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.placement.price_restores import restore_of
from app.storage.unit_of_work import UnitOfWork


def live_reserve(uow: UnitOfWork, live: Iterable[Instance], limits: Limits, now: datetime) -> int:
    """Micro-dollars that these machines can still cost before they are gone and billed.

    At the price of now; a machine that its cloud has not accepted yet counts at the dearest of
    the bids it was asked for with.
    """
    prices = _Prices(uow)
    total = 0
    for instance in live:
        speed = Fraction(instance.billing_speed)
        started = instance.launched_at
        elapsed = 0.0 if started is None else max(0.0, (now - started).total_seconds())
        machine = LiveInstance(
            microusd_per_hour=prices.of(instance),
            billed_seconds=math.floor(elapsed * speed),
            minimum_seconds=_minimum_seconds(instance),
        )
        total += reserve_microusd([machine], reserve_window(limits, speed))
    return total


def reserve_window(limits: Limits, billing_speed: Fraction) -> ReserveWindow:
    """For how long a machine may cost money after we look."""
    return ReserveWindow(
        accrual_period_seconds=math.ceil(limits.accrual_seconds),
        drain_reserve_seconds=math.ceil(limits.drain_seconds + DRAIN_GRACE_SECONDS),
        observation_gap_seconds=math.ceil(limits.describe_seconds),
        billing_speed=billing_speed,
    )


def read_headroom(
    aggregate: JobAggregate, limits: Limits, budgets: Sequence[Budget] | None = None
) -> Headroom:
    """What the job's budgets cover beside its live machines.

    budgets: their rows, where these are locked already. Else they are read here, for who holds the
    job's lock: budgets come before jobs in the order of locking, so one that somebody else holds is
    not waited for. Other jobs see what is reserved here on the job's own row meanwhile.
    """
    job, uow = aggregate.job, aggregate.uow
    if budgets is None:
        budgets = uow.money.budgets(job.project_id, job.budget_id)
        # The same rows, as they are then.
        uow.money.lock_free_budgets(job.project_id, job.budget_id)
    lines = [BudgetLine.of(budget, _reserved_by_others(uow, budget, job.id)) for budget in budgets]
    lines += _of_months(uow, job.project_id, job.id)
    held = live_reserve(uow, aggregate.living(), limits, aggregate.now)
    window = reserve_window(limits, Fraction(1))
    return Headroom(tuple(lines), held, window, restore_of(aggregate))


def _of_months(uow: UnitOfWork, project_id: UUID, job_id: UUID) -> list[BudgetLine]:
    """The budgets of this month: the project's, which its own budget's row guards, and the
    deployment's, for which launches of all projects wait for each other.
    """
    own, shared = uow.monthly_budgets.over(project_id)
    lines = []
    if own is not None:
        reserved = uow.money.reserved_by_others(project_id, job_id)
        lines.append(BudgetLine.of_month(BudgetOwner.PROJECT, own, reserved))
    if shared is not None:
        # Setting it closes the gate: there is none that a launch before this one has not seen.
        uow.launch_gate.open()
        uow.launch_gate.one_by_one(None)
        reserved = uow.money.reserved_by_all(but=job_id)
        lines.append(BudgetLine.of_month(BudgetOwner.DEPLOYMENT, shared, reserved))
    return lines


def reserve_in_passing(aggregate: JobAggregate, reserved_microusd: int) -> None:
    """Hold so much for all of the job's machines, those included that are requested next.

    The next booking writes the reservation of a budget that somebody else holds now.
    """
    job, uow = aggregate.job, aggregate.uow
    ours = uow.money.lock_free_budgets(job.project_id, job.budget_id)
    write_reservation(uow, ours, job.id, reserved_microusd)


def write_reservation(
    uow: UnitOfWork, budgets: Sequence[Budget], job_id: UUID, reserved_microusd: int
) -> None:
    """Hold so much for the job: on its own budget, and in the sum on the project's.

    budgets: rows that are locked.
    """
    for budget in budgets:
        budget.reserved_microusd = _reserved_by_others(uow, budget, job_id) + reserved_microusd


def _reserved_by_others(uow: UnitOfWork, budget: Budget, job_id: UUID) -> int:
    """Of a project's budget; nobody else reserves of a job's own."""
    if budget.job_id is not None:
        return 0
    return uow.money.reserved_by_others(budget.project_id, job_id)


def is_used_up(budget: Budget) -> bool:
    """Whether what is spent and reserved has reached the cap, as the rows stand."""
    left = left_microusd(budget.cap_microusd, budget.spent_microusd, budget.reserved_microusd)
    return left is not None and left <= 0


def _minimum_seconds(instance: Instance) -> int:
    """Billed seconds its cloud charges at least; the longest known before a cloud is known."""
    if instance.cloud is not None and instance.cloud in RULES:
        return RULES[instance.cloud].minimum_seconds
    return max(rules.minimum_seconds for rules in RULES.values())


class _Prices:
    """Present prices of instances, each pool and launch looked up once."""

    def __init__(self, uow: UnitOfWork) -> None:
        self._uow = uow
        self._pools: dict[Pool, int] = {}
        self._launches: dict[UUID, int] = {}

    def of(self, instance: Instance) -> int:
        """Micro-dollars per hour; 0 for a machine that no price is known for."""
        if instance.pool is not None:
            if instance.pool not in self._pools:
                offer = self._uow.offers.get(instance.pool)
                known = instance.on_demand_microusd_per_hour or 0
                price = known if offer is None else offer.cost_microusd_per_hour
                self._pools[instance.pool] = price
            return self._pools[instance.pool]
        if instance.launch_id is None:
            return 0
        if instance.launch_id not in self._launches:
            launch = self._uow.launches.get(instance.launch_id)
            bids = [] if launch is None else launch.bids
            self._launches[instance.launch_id] = max(
                (bid["price_microusd_per_hour"] for bid in bids), default=0
            )
        return self._launches[instance.launch_id]
