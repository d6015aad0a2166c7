"""Money for the gang that is claimed: as it was chosen, or as large as the budgets bear.

Lives here: the sizes and the machines that a claim tries in turn. The job stays as it is meanwhile:
the gang that is borne is a value, and `claim_jobs` acts on it. Not here: the arithmetic
(`gang.reserve_budget`), or the offers (`find_places`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.billing.budget import BudgetCheck
from app.domain.lifecycle.entities import Budget
from app.domain.market.offer import Market, Offer
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.placement import bids_for_best_region, work_alike
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.fill_gang import candidates
from app.orchestration.gang.reserve_budget import check_and_reserve, reserve_for_bids
from app.orchestration.placement.decision_log import Reasons
from app.orchestration.placement.price_restores import restore_of
from app.orchestration.placement.shortlist import Shortlist
from app.orchestration.queue.find_places import Places, find_places, places_for_smaller


@dataclass(frozen=True)
class GangReservation:
    """What the budgets say of a gang, and the bids that they bear; reasons: its offers."""

    verdict: BudgetCheck
    gang: GangNeed
    reasons: Reasons
    bids: Sequence[Offer] = ()


def reserve_gang(
    aggregate: JobAggregate,
    gang: GangNeed,
    budgets: Sequence[Budget],
    reasons: Reasons,
    among: Shortlist,
    limits: Limits,
) -> GangReservation:
    """Hold money for the gang, or else for the largest smaller one that the budgets bear.

    reasons: the offers for what it lacks. Where they bear none, the gang is the one asked about.
    """
    tried, found = gang, reasons
    while True:
        bids = bids_for_best_region(found.considered)
        verdict, affordable = _reserve(aggregate, budgets, bids, found.count, limits)
        if verdict.yes:
            return GangReservation(verdict, tried, found, affordable)
        tried = replace(tried, node_count=tried.node_count - 1)
        offers = places_for_smaller(aggregate, tried, among, limits)
        if offers is None:
            return GangReservation(verdict, gang, reasons)
        missing = tried.node_count - len(candidates(aggregate, tried))
        found = replace(found, considered=offers, count=missing)


def reserve_at_any_pace(
    aggregate: JobAggregate,
    gang: GangNeed,
    budgets: Sequence[Budget],
    reasons: Reasons,
    among: Shortlist,
    limits: Limits,
) -> tuple[Places, GangReservation] | None:
    """The same with machines that would miss the deadline, where late is better than not at all.

    None where it is not, or no budget bears those either.
    """
    if not _may_be_late(aggregate, gang):
        return None
    of_any = replace(among, any_pace=True)
    places = find_places(aggregate, gang, of_any, budgets, limits)
    sized = places.gang(gang)
    offered = replace(reasons, considered=places.considered, count=sized.node_count)
    found = reserve_gang(aggregate, sized, budgets, offered, of_any, limits)
    return (places, found) if found.verdict.yes else None


def _may_be_late(aggregate: JobAggregate, gang: GangNeed) -> bool:
    """Whether slower machines than those in time are better than none."""
    asked = gang.market is Market.ON_DEMAND and not candidates(aggregate, gang)
    spec = aggregate.spec
    return asked and spec.on_deadline == "finish" and not work_alike(spec)


def _reserve(
    aggregate: JobAggregate,
    budgets: Sequence[Budget],
    bids: Sequence[Offer],
    missing: int,
    limits: Limits,
) -> tuple[BudgetCheck, Sequence[Offer]]:
    """Hold money for what the launch may end in, and leave out what is too dear."""
    uow, job, living, now = aggregate.uow, aggregate.job, aggregate.living(), aggregate.now
    if missing:
        return reserve_for_bids(
            uow, budgets, job.id, bids, missing, living, limits, now,
            restore=restore_of(aggregate),
        )  # fmt: skip
    return check_and_reserve(uow, budgets, job.id, [], living, limits, now), ()
