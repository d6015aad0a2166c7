"""What a paused job will need when it is resumed, and what that would cost at the prices of now.

Not here: which machines it will get (placement decides then), or resuming (`job_forms`).
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.billing.budget import left_microusd
from app.domain.lifecycle.entities import Budget, Job
from app.domain.placement.expected_cost import steady_microusd
from app.domain.wording.checkpoint_words import where_it_continues
from app.domain.wording.machine_words import machines_in_words
from app.orchestration.estimates.estimate_remaining import WorkLeft
from app.orchestration.placement.unmet_requirements import OfferRow, UnmetRequirements
from app.storage.reports.job_facts import LastCheckpoint
from app.web import formats


@dataclass(frozen=True)
class ResumeOutlook:
    """Sentences: where it continues, what it needs, at which price, and what of its budget is left.

    blocked: whether the budget has nothing left, so that it needs more. unblocked_by: what would
    let it start, of a job for which no machine is free now.
    """

    goes_on: str
    needs: str
    price: str
    budget: str | None
    blocked: bool
    unblocked_by: tuple[str, ...]


def resume_outlook(
    job: Job,
    left: WorkLeft,
    saved: LastCheckpoint | None,
    unmet: UnmetRequirements,
    budget: Budget,
) -> ResumeOutlook:
    """Of a paused job. unmet: what it needs, with the pools as they are now."""
    remaining = left_microusd(budget.cap_microusd, budget.spent_microusd)
    return ResumeOutlook(
        goes_on=_goes_on(job, left, saved),
        needs=f"It will need {unmet.needs}.",
        price=_price(job, left, unmet),
        budget=_budget(remaining),
        blocked=remaining is not None and remaining <= 0,
        unblocked_by=() if _fitting(unmet) else unmet.unblocked_by,
    )


def _goes_on(job: Job, left: WorkLeft, saved: LastCheckpoint | None) -> str:
    work = (
        "" if left.to_the_end is None else f"; about {formats.brief(left.to_the_end)} of work left"
    )
    start, because = where_it_continues(job.committed_step, saved=saved is not None)
    return f"{start}{because}{work}."


def _price(job: Job, left: WorkLeft, unmet: UnmetRequirements) -> str:
    fitting = _fitting(unmet)
    if not fitting:
        return "No machine is free for it now: it would wait."
    offer = min(fitting, key=lambda one: one.microusd_per_hour)
    hourly = offer.microusd_per_hour * job.node_count
    told = f"Now: {formats.per_hour(hourly)} {_on(offer, job.node_count)}"
    if left.to_the_end is None:
        return f"{told}."
    cost = steady_microusd(hourly * offer.billing_speed, left.to_the_end)
    return f"{told}, about {formats.usd(cost)} for the work left."


def _fitting(unmet: UnmetRequirements) -> list[OfferRow]:
    return [one for one in unmet.offers if one.fits]


def _on(offer: OfferRow, count: int) -> str:
    pool = offer.pool
    market = formats.words(pool.market.value)
    return f"for {machines_in_words(count)} in {pool.zone} ({pool.instance_type}, {market})"


def _budget(remaining: int | None) -> str | None:
    if remaining is None:
        return None
    if remaining <= 0:
        return "Its budget is used up: add to it when you resume."
    return f"{formats.usd(remaining)} of its budget is left."
