"""Reserve money: what live machines can still cost, held against the budgets that pay for them.

Lives here: the reservation, and the test before machines are requested; what no budget covers stops
the job with the sentence why. A claim locks the budgets before the job. Not here: the arithmetic
(`app.domain.billing.budget`), or stopping what is over its budget (`enforce_budgets`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from uuid import UUID

from app.domain.billing.billing_rules import RULES
from app.domain.billing.budget import (
    FIRST_STRETCH_SECONDS,
    SECONDS_PER_HOUR,
    BudgetCheck,
    LiveInstance,
    ReserveWindow,
    claim_allowed,
    first_segment_microusd,
    left_microusd,
    reserve_microusd,
)
from app.domain.billing.egress import Restore, restore_microusd
from app.domain.lifecycle.entities import Budget, Instance
from app.domain.lifecycle.job import StopCause
from app.domain.market.offer import Offer, Pool
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.frame.timers import DRAIN_GRACE_SECONDS
from app.orchestration.gang.stop_job import order_stop
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
            instance_id=instance.id,
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


def check_and_reserve(
    uow: UnitOfWork,
    budgets: Sequence[Budget],
    job_id: UUID,
    new_prices: Sequence[int],
    live: Sequence[Instance],
    limits: Limits,
    now: datetime,
) -> BudgetCheck:
    """May the job rent machines at `new_prices` (micro-dollars per hour, one for each)?

    budgets: as `uow.money.lock_budgets` returned them. live: the job's machines that may cost
    money already. Every budget must bear what is spent, the reserve and the new machines' first
    15 billed minutes; then that is written as the job's reservation.
    Otherwise nothing is written, and the sentence says which budget is short, and by how much.
    """
    committed = _Committed(uow, budgets, job_id, live_reserve(uow, live, limits, now))
    verdict = committed.bears(new_prices)
    if verdict.yes:
        committed.reserve(new_prices)
    return verdict


def reserve_for_bids(
    uow: UnitOfWork,
    budgets: Sequence[Budget],
    job_id: UUID,
    bids: Sequence[Offer],
    count: int,
    live: Sequence[Instance],
    limits: Limits,
    now: datetime,
    *,
    writable: Sequence[Budget] | None = None,
    restore: Restore | None = None,
) -> tuple[BudgetCheck, tuple[Offer, ...]]:
    """Which of the bids may a launch of `count` machines be made with?

    A launch may end in any of its pools, so the money is reserved for the dearest one. Pools that
    the budgets do not bear are left out; when they bear none, the sentence is the cheapest one's.
    writable: those of the budgets that are locked; all of them without it. restore: what each
    machine brings first, at the price of its pool.
    """

    def cost(bid: Offer) -> int:
        # Its first segment is what is asked for: the restore falls into that as a whole.
        once = restore_microusd(restore, bid.pool)
        return bid.cost_microusd_per_hour + once * SECONDS_PER_HOUR // FIRST_STRETCH_SECONDS

    committed = _Committed(uow, budgets, job_id, live_reserve(uow, live, limits, now))
    verdict = BudgetCheck(False, "No pool is offered.")
    speed = max((bid.billing_speed for bid in bids), default=1)
    for price in sorted({cost(bid) for bid in bids}, reverse=True):
        verdict = committed.bears([price] * count, speed)
        if verdict.yes:
            committed.reserve([price] * count, writable)
            return verdict, tuple(bid for bid in bids if cost(bid) <= price)
    return verdict, ()


def bears_another_window(
    uow: UnitOfWork,
    budgets: Sequence[Budget],
    job_id: UUID,
    live: Sequence[Instance],
    limits: Limits,
    now: datetime,
    coming: Iterable[Offer] = (),
) -> bool:
    """Whether every budget bears twice what is held for these machines, and for those to come.

    While it does, some of them can be given back without the job coming to its cap: what all of
    them cost until those are gone is the one window, the other holds for those that stay.
    coming: an offer for each machine that would be asked for.
    """
    held = live_reserve(uow, live, limits, now)
    for offer in coming:
        machine = LiveInstance(job_id, offer.cost_microusd_per_hour, billed_seconds=0)
        held += reserve_microusd([machine], reserve_window(limits, Fraction(offer.billing_speed)))
    return _Committed(uow, budgets, job_id, 2 * held).bears([]).yes


def write_reservation(
    uow: UnitOfWork, budgets: Sequence[Budget], job_id: UUID, reserved_microusd: int
) -> None:
    """Hold so much for the job: on its own budget, and in the sum on the project's."""
    _Committed(uow, budgets, job_id, reserved_microusd).reserve([])


def name_budget(budget: Budget, sentence: str) -> str:
    """The sentence, saying whose budget it speaks of when that is not the job's own."""
    return sentence if budget.job_id is not None else f"The project's budget: {sentence}"


def is_used_up(budget: Budget) -> bool:
    """Whether what is spent and reserved has reached the cap, as the rows stand."""
    left = left_microusd(budget.cap_microusd, budget.spent_microusd, budget.reserved_microusd)
    return left is not None and left <= 0


class _Committed:
    """What the budgets of a job bear already: its own live machines, and other jobs' machines."""

    def __init__(
        self, uow: UnitOfWork, budgets: Sequence[Budget], job_id: UUID, reserve_microusd: int
    ) -> None:
        self._own = reserve_microusd
        self._budgets = [
            (budget, uow.money.reserved_by_others(budget.project_id, job_id))
            if budget.job_id is None
            else (budget, 0)
            for budget in budgets
        ]

    def bears(self, new_prices: Sequence[int], billing_speed: int = 1) -> BudgetCheck:
        """Whether every budget bears new machines at these prices too, billed so fast."""
        verdict = BudgetCheck(True, "No budget is set.")
        for budget, others in self._budgets:
            said = claim_allowed(
                spent_microusd=budget.spent_microusd,
                reserve_microusd=others + self._own,
                first_microusd=first_segment_microusd(new_prices),
                budget_microusd=budget.cap_microusd,
                billing_speed=billing_speed,
            )
            if not said.yes:
                return BudgetCheck(False, name_budget(budget, said.sentence))
            if budget.cap_microusd is not None:
                verdict = BudgetCheck(True, name_budget(budget, said.sentence))
        return verdict

    def reserve(self, new_prices: Sequence[int], writable: Sequence[Budget] | None = None) -> None:
        """Hold it for the job: on its own budget, and in the sum on the project's."""
        for budget, others in self._budgets:
            if writable is not None and budget not in writable:
                continue
            budget.reserved_microusd = others + self._own + first_segment_microusd(new_prices)


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


def bids_within_budget(
    aggregate: JobAggregate,
    offers: Sequence[Offer],
    count: int,
    limits: Limits,
    *,
    can_do_without: bool = False,
) -> tuple[Offer, ...]:
    """Those of the offers that the budgets bear for `count` more machines; reserved for them.

    When they bear none of them nothing is returned, and the job is stopped for its budget.
    can_do_without: the gang is enough as it is, and the job is not stopped.
    """
    job, uow = aggregate.job, aggregate.uow
    # Budgets come before jobs in the order of locking, and here the job is locked: a budget that
    # somebody else holds is not waited for. Then its row as it stands decides, and the next
    # booking writes its reservation; other jobs see this one's on the job's own row meanwhile.
    budgets, ours = uow.money.budgets_in_passing(job.project_id, job.budget_id)
    verdict, affordable = reserve_for_bids(
        uow, budgets, job.id, offers, count, aggregate.living(), limits, aggregate.now,
        writable=ours, restore=restore_of(aggregate),
    )  # fmt: skip
    if not verdict.yes and not can_do_without:
        order_stop(aggregate, StopCause.BUDGET, verdict.sentence, limits)
    return affordable
