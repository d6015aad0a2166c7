"""Whether a spec that is to be submitted can ever run, by the pools that are known now.

Lives here: what no pool has, however long the job waits, and a deadline that is nearer than its
work could end on any machines. Not here: the chance that a limit holds (`evaluate_promise`), or
what one pool lacks (`app.domain.placement.no_offer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from app.domain.market.offer import Market, Offer
from app.domain.placement.no_offer import Lack, what_all_lack
from app.domain.placement.placement import Need, RankedOffer, rank_offers
from app.domain.spec.job_spec import JobSpec
from app.domain.throughput.gang_scaling import EXPECTED_SCALING
from app.domain.throughput.gpu_throughput import expected_speed, gpu_shape_of_choice
from app.domain.units.durations import exact_duration, whole_minutes
from app.domain.units.errors import Advice, ProblemKind, SpecError
from app.orchestration.frame.limits import Limits
from app.orchestration.placement.queue_need import queue_need

if TYPE_CHECKING:  # The command line asks the rules below, and starts without a database's library.
    from app.orchestration.frame.runtime import Runtime

Quoted = Sequence[tuple[Offer, datetime | None]]


def require_possible(runtime: Runtime, spec: JobSpec) -> None:
    """Raises SpecError for a job that will never run as it is.

    Its advice is to accept the risk: pools that are not known today may be there later.
    """
    with runtime.begin() as uow:
        quoted = uow.offers.all()
    never = why_never(spec, quoted, runtime.limits, runtime.clock.now())
    if never is not None:
        field, why = never
        raise SpecError.of(why, field, ProblemKind.IMPOSSIBLE, advice=Advice.ACCEPT_RISK)


def why_never(
    spec: JobSpec, quoted: Quoted, limits: Limits, now: datetime
) -> tuple[str, str] | None:
    """The field of the spec that asks too much, and why, without a full stop; None if it may run.

    quoted: the offers that are known, with the ends of their cool-downs.
    """
    asked = spec.effective_market()
    market = Market.ON_DEMAND if asked == "on_demand" else Market.SPOT
    need = queue_need(spec, market, spec.nodes.least, limits)
    considered = rank_offers(quoted, need, now)
    if any(item.fits for item in considered):
        return None
    lack = lasting_lack(spec, considered, need)
    if lack is not None and lack.field is not None:
        why = f"no pool can run this job, now or later: {lack.why}"
        return lack.field, f"{lack.field}: {why}"
    return _too_near(spec, now)


def lasting_lack(spec: JobSpec, considered: Sequence[RankedOffer], need: Need) -> Lack | None:
    """What no pool has, however long the job waits; None where one may serve it later, also with
    on-demand machines.
    """
    lack = what_all_lack(considered, need)
    on_demand_later = spec.effective_market() == "auto"
    return None if lack is not None and lack.field == "market" and on_demand_later else lack


def _too_near(spec: JobSpec, now: datetime) -> tuple[str, str] | None:
    """A deadline that is nearer than the work could end on the most and quickest machines.

    Only where no pool fits: elsewhere the estimate over real pools tells what will hold.
    """
    missed = missed_by(spec, now)
    if missed is None:
        return None
    ahead, work = missed
    return "deadline", (
        f"deadline: it is in {exact_duration(ahead)}, and the estimate comes to "
        f"{whole_minutes(work)}: it will be missed, unless the work is shorter"
    )


def missed_by(spec: JobSpec, now: datetime) -> tuple[int, int] | None:
    """The seconds until its deadline, and the least that its work takes, where that is longer.

    None without a deadline or an estimate.
    """
    deadline_at = spec.deadline_at(now)
    if deadline_at is None or spec.estimate is None:
        return None
    ahead, work = int((deadline_at - now).total_seconds()), _least_seconds(spec)
    return None if work <= ahead else (ahead, work)


def _least_seconds(spec: JobSpec) -> int:
    """The estimate's work on the largest gang of the quickest kind that is accepted."""
    assert spec.estimate is not None
    pace = EXPECTED_SCALING.relative_pace(spec.nodes.most, spec.estimate.nodes)
    kinds = [gpu_shape_of_choice(one) for one in spec.gpu_choices if one.name is not None]
    told = spec.estimate.gpu
    if kinds and told is not None and told.name is not None:
        pace *= max(map(expected_speed, kinds)) / expected_speed(gpu_shape_of_choice(told))
    return round(spec.estimate.seconds / pace)
