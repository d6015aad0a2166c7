"""Where the machines of a job's next gang can come from, and how many an elastic one gets.

Lives here: the order of MECHANICS: beside the survivors, with fewer, elsewhere as a whole. Not
here: the verdicts on offers (`fill_gang.offers_for`), or the attempt that follows (`claim_jobs`).
"""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.lifecycle.entities import Budget
from app.domain.placement.gang_options import size_options
from app.domain.placement.placement import Considered, together
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.fill_gang import candidates, least_more, offers_for
from app.orchestration.gang.release_order import order_release
from app.orchestration.placement.choose_gang_size import choose_gang_size, set_size
from app.orchestration.placement.shortlist import Shortlist


def find_places(
    aggregate: JobAggregate, among: Shortlist, budgets: Sequence[Budget], limits: Limits
) -> tuple[Considered, ...]:
    """Offers for what the gang lacks, judged; none are needed where its machines are at hand.

    The size of an elastic gang is settled on the way. Survivors are given back where the gang
    moves as a whole.
    """
    job, nodes, survivors = aggregate.job, aggregate.spec.nodes, candidates(aggregate)
    if not survivors:
        return _whole(aggregate, among, budgets, limits)
    missing = job.node_count - len(survivors)
    if missing <= 0:
        return ()
    beside = offers_for(aggregate, missing, limits, among=among)
    if together(beside):
        return beside
    least = least_more(aggregate, missing, len(survivors))
    judged = offers_for(aggregate, least, limits, among=among)
    fewer = max((o.count for o in size_options(judged, range(least, missing))), default=0)
    if fewer or len(survivors) >= nodes.least:
        count = len(survivors) + fewer
        set_size(aggregate, count, "no more machines are available next to the current ones")
        return offers_for(aggregate, fewer, limits, among=among) if fewer else ()
    elsewhere = _whole(aggregate, among, budgets, limits)
    if not together(elsewhere):
        return beside
    order_release(aggregate, survivors, "the job moves to another zone")
    return elsewhere


def make_smaller(
    aggregate: JobAggregate, among: Shortlist, limits: Limits
) -> tuple[Considered, ...] | None:
    """Offers for one machine less, as no budget bears that many; None at the least.

    Machines at hand are not given up for it. Who asks writes it down (`note_size`).
    """
    job, at_hand = aggregate.job, len(candidates(aggregate))
    count = job.node_count - 1
    if count < max(aggregate.spec.nodes.least, at_hand):
        return None
    job.node_count = count
    return () if count == at_hand else offers_for(aggregate, count - at_hand, limits, among=among)


def _whole(
    aggregate: JobAggregate, among: Shortlist, budgets: Sequence[Budget], limits: Limits
) -> tuple[Considered, ...]:
    """Offers for a whole gang, wherever its machines are now; an elastic one gets its size."""
    nodes = aggregate.spec.nodes
    judged = offers_for(aggregate, nodes.least, limits, anywhere=True, among=among)
    if not nodes.is_elastic or not choose_gang_size(
        aggregate, judged, limits, budgets, among.speeds
    ):
        return judged
    if aggregate.job.node_count == nodes.least:
        return judged
    return offers_for(aggregate, aggregate.job.node_count, limits, anywhere=True, among=among)
