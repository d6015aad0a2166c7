"""May a job that is under way ask for more machines: its budgets say so before any cloud does.

Lives here: the check before a replacement, another try of a forming gang, or on-demand machines
before a deadline; what no budget bears stops the job with the sentence why. Not here: a claim,
which locks the budgets first (`claim_jobs`), or the arithmetic (`reserve_budget`).
"""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.lifecycle.job import StopCause
from app.domain.market.offer import Offer
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.reserve_budget import reserve_for_bids
from app.orchestration.gang.stop_job import order_stop
from app.orchestration.placement.price_restores import restore_of


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
