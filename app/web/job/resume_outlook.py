"""What a paused job will need when it is resumed, and what that would cost at the prices of now.

Not here: which machines it will get (placement decides then), or resuming (`job_forms`).
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.billing.budget import (
    ReserveWindow,
    enough_text,
    left_microusd,
    start_microusd,
    start_words,
)
from app.domain.lifecycle.entities import Budget, Job
from app.domain.placement.expected_cost import steady_microusd
from app.domain.spec.job_spec_values import MIN_BUDGET_MICROUSD
from app.domain.wording.checkpoint_words import where_it_continues
from app.domain.wording.machine_words import machines_in_words
from app.orchestration.estimates.estimate_remaining import WorkLeft
from app.orchestration.placement.unmet_requirements import OfferRow, UnmetRequirements
from app.storage.reports.job_facts import LastCheckpoint
from app.web import formats


@dataclass(frozen=True)
class ResumeOutlook:
    """Sentences: where it continues, what it needs, at which price, and what of its budget is left.

    add_microusd: what must be added to the budget for it to start at the prices of now; 0 where
    the budget is enough, or is none. unblocked_by: what would let it start, of a job for which no
    machine is free now.
    """

    goes_on: str
    needs: str
    price: str
    budget: str | None
    add_microusd: int
    unblocked_by: tuple[str, ...]


def resume_outlook(
    job: Job,
    left: WorkLeft,
    saved: LastCheckpoint | None,
    unmet: UnmetRequirements,
    budget: Budget,
    least_nodes: int,
    window: ReserveWindow,
) -> ResumeOutlook:
    """Of a paused job. unmet: what it needs, with the pools as they are now. least_nodes: the
    smallest gang that it begins with. window: the deployment's, by which a claim is measured.
    """
    lack = lack_of_budget(unmet, budget, least_nodes, window)
    return ResumeOutlook(
        goes_on=_goes_on(job, left, saved),
        needs=f"It will need {unmet.needs}.",
        price=price_words(unmet, job.node_count, left.to_the_end),
        budget=budget_words(budget, lack),
        add_microusd=lack.microusd,
        unblocked_by=() if _fitting(unmet) else unmet.unblocked_by,
    )


@dataclass(frozen=True)
class BudgetLack:
    """What a budget lacks for a start, 0 where it is enough, and what that pays for, in words."""

    microusd: int
    pays_for: str


def lack_of_budget(
    unmet: UnmetRequirements, budget: Budget, least_nodes: int, window: ReserveWindow
) -> BudgetLack:
    """For a start of the smallest gang, by the rule of a claim.

    In the pool that fits now where it needs least. Without one, what a budget lacks that is used
    up. At least a cent, the least that a budget can grow by.
    """
    needed, speed = min(
        ((_start(offer, least_nodes, window), offer.billing_speed) for offer in _fitting(unmet)),
        default=(1, 1),
    )
    left = left_microusd(budget.cap_microusd, budget.spent_microusd, needed)
    lacks = 0 if left is None or left >= 0 else max(MIN_BUDGET_MICROUSD, -left)
    return BudgetLack(lacks, start_words(speed))


def _start(offer: OfferRow, nodes: int, window: ReserveWindow) -> int:
    return start_microusd(
        [offer.cost_microusd_per_hour] * nodes, window.at_speed(offer.billing_speed)
    )


def _goes_on(job: Job, left: WorkLeft, saved: LastCheckpoint | None) -> str:
    work = (
        ""
        if left.to_the_end is None
        else f"; about {formats.brief(left.to_the_end)} to its end, start-up included"
    )
    start, because = where_it_continues(job.committed_step, saved=saved is not None)
    return f"{start}{because}{work}."


def price_words(unmet: UnmetRequirements, nodes: int, work_seconds: float | None) -> str:
    """What so many machines cost in the cheapest pool that fits now, with all that is charged.

    Placement may choose another one: it also weighs interruptions, and whose were the last.
    """
    fitting = _fitting(unmet)
    if not fitting:
        return "No machine is free for it now: it would wait."
    offer = min(fitting, key=lambda one: one.cost_microusd_per_hour)
    hourly = offer.cost_microusd_per_hour * nodes
    told = f"Cheapest now: {formats.per_hour(hourly)} {_on(offer, nodes)}"
    if offer.cost_microusd_per_hour > offer.microusd_per_hour:
        told += ", with disks and addresses"
    if work_seconds is None:
        return f"{told}."
    cost = steady_microusd(hourly * offer.billing_speed, work_seconds)
    return f"{told}, about {formats.usd(cost)} to the end. It may get another pool."


def _fitting(unmet: UnmetRequirements) -> list[OfferRow]:
    return [one for one in unmet.offers if one.fits]


def _on(offer: OfferRow, count: int) -> str:
    pool = offer.pool
    market = formats.words(pool.market.value)
    return f"for {machines_in_words(count)} in {pool.zone} ({pool.instance_type}, {market})"


def budget_words(budget: Budget, lack: BudgetLack) -> str | None:
    """What is left of it; where that is too little, the least budget with which the job starts."""
    cap, left = budget.cap_microusd, left_microusd(budget.cap_microusd, budget.spent_microusd)
    if cap is None or left is None:
        return None
    told = "Its budget is used up" if left <= 0 else f"{formats.usd(left)} of its budget is left"
    add = lack.microusd
    if not add:
        return f"{told}."
    least = (
        f"it needs a budget of at least {enough_text(cap + add)}, {enough_text(add)} more, for "
        f"{lack.pays_for}"
    )
    return f"{told}: {least}, or it is paused again, at the prices of now."
