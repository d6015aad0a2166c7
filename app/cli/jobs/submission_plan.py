"""What a job would get if it were submitted now: the pools considered, the price, the estimate.

The verdicts are those of the placement's own rules, over the api's offers. Not here: the
submission (`submit`); what the queue decides later may differ, since prices move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from app.cli.client import wording
from app.cli.client.job_view import hazard_head, price_columns
from app.cli.client.terminal import Column, Terminal
from app.domain.billing.budget import first_segment_microusd, first_segment_words
from app.domain.market.gpu_choice import gpu_words
from app.domain.market.offer import Market, Offer, Pool, Quote
from app.domain.placement.fit_verdict import FitVerdict
from app.domain.units.durations import (
    billed_as,
    exact_duration,
    format_duration,
    whole_minutes,
)
from app.domain.units.instants import format_instant

if TYPE_CHECKING:
    from app.domain.placement.no_offer import Lack
    from app.domain.placement.placement import RankedOffer
    from app.domain.spec.job_spec import JobSpec

_ROWS_MAX: Final = 5
_SIZES: Final = (("disk", "disk"), ("shared memory", "shm_size"))


@dataclass(frozen=True, slots=True)
class Preview:
    """The spec's machines, what was considered for them, and what the estimate comes to.

    `chosen` is the cheapest pool that fits, None when none does. `on_demand` is the cheapest
    on-demand pool that fits, for comparison. `count` machines: what an elastic gang would begin
    with. Costs are for all machines together. `estimate_microusd` and `estimate_seconds` are
    the P50 of cost and finish in the api's estimate, as `lowtide estimate` shows them; None until
    they are known (`with_estimate`). `missed_by`: the seconds until a deadline that no machines
    can meet, and those of the work.
    """

    spec: JobSpec
    count: int
    considered: tuple[RankedOffer, ...]
    chosen: Offer | None
    on_demand: Offer | None
    estimate_microusd: int | None = None
    estimate_seconds: float | None = None
    missed_by: tuple[int, int] | None = None

    @property
    def microusd_per_hour(self) -> int | None:
        """What all machines cost in an hour, None when no pool fits."""
        if self.chosen is None:
            return None
        return self.chosen.cost_microusd_per_hour * self.count

    def to_json(self) -> dict[str, Any]:
        """The plan for scripts; money in micro-dollars."""
        return {
            "machines": self.count,
            "market": self.spec.effective_market(),
            "pool": None if self.chosen is None else self.chosen.pool.key,
            "microusd_per_hour": self.microusd_per_hour,
            "estimate_microusd": self.estimate_microusd,
            "estimate_seconds": self.estimate_seconds,
            "impossible": impossible(self),
            "considered": [
                {
                    "pool": item.offer.pool.key,
                    "microusd_per_hour": item.offer.cost_microusd_per_hour,
                    "on_demand_microusd_per_hour": item.offer.on_demand_microusd_per_hour,
                    "hazard_per_hour": hazard_of(item.offer),
                    "fits": item.fits,
                    "why": item.why,
                }
                for item in self.considered
            ],
        }


def make_plan(spec: JobSpec, offers: Iterable[dict[str, Any]], now: datetime) -> Preview:
    """The plan over the api's offers (items of GET /offers)."""
    from app.domain.placement.placement import need_of, rank_offers
    from app.orchestration.frame.limits import Limits
    from app.orchestration.placement.never_runs import missed_by
    from app.orchestration.placement.queue_need import queue_need

    quoted = [(read_offer(row), wording.instant(row.get("cool_until_at"))) for row in offers]
    count = _count(spec, quoted, now)
    considered = rank_offers(quoted, queue_need(spec, _market(spec), count, Limits()), now)
    compared = rank_offers(quoted, need_of(spec, Market.ON_DEMAND, count), now)
    return Preview(
        spec, count, considered, _first_fit(considered), _first_fit(compared),
        missed_by=missed_by(spec, now),
    )  # fmt: skip


def with_estimate(plan: Preview, figures: dict[str, Any] | None) -> Preview:
    """The plan with cost and finish of the api's answer about its spec, if it has an estimate."""
    if plan.spec.estimate is None or figures is None or not figures["estimates"]:
        return plan
    first = figures["estimates"][0]
    return replace(
        plan,
        estimate_microusd=first["cost_p50_microusd"],
        estimate_seconds=first["finish_p50_seconds"],
    )


def _count(spec: JobSpec, quoted: Sequence[tuple[Offer, datetime | None]], now: datetime) -> int:
    """As the queue would choose it now, with the usual times of a restart."""
    from app.domain.placement.gang_size import with_size
    from app.orchestration.frame.limits import Limits

    usual = Limits()
    acquire = usual.on_demand_acquire_seconds
    return with_size(spec, quoted, now, usual.restart_seconds, acquire).node_count


def _market(spec: JobSpec) -> Market:

    return Market.ON_DEMAND if spec.effective_market() == "on_demand" else Market.SPOT


def read_offer(row: dict[str, Any]) -> Offer:
    """The offer in one item of GET /offers."""
    absent = {"attachments": None, "hazard_factor": None}  # in answers of earlier releases
    told = {"pool": Pool.parse(row["pool"]), "quoted_at": wording.instant(row["quoted_at"])}
    return Offer.from_quote(cast(Quote, {**absent, **row, **told}))


def print_plan(terminal: Terminal, plan: Preview) -> None:
    """The plan for people."""
    from app.domain.placement.placement import RankedOffer

    terminal.line(f"{terminal.paint('plan', 'bold')}    {_what(plan.spec)}")
    for line in environment_lines(plan.spec):
        terminal.line(f"        {line}")
    market = "on_demand" if plan.spec.effective_market() == "on_demand" else "spot"
    of_market = [item for item in plan.considered if item.offer.pool.market == market]
    rows = of_market[:_ROWS_MAX]
    if market == "spot" and plan.on_demand is not None:
        why = _why_not_on_demand(plan)
        rows.append(RankedOffer(plan.on_demand, FitVerdict.UNSUITABLE, why))
    terminal.table(
        [
            Column("POOL", lambda row: wording.pool(row.offer.pool.key)),
            Column("GPU", lambda row: gpu_text(row.offer.hardware)),
            *price_columns(plan.count, lambda row: row.offer.cost_microusd_per_hour),
            Column("VS ON-DEMAND", _against, True),
            Column(hazard_head(plan.count), _hazard, True),
            Column("DECISION", lambda row: _decision(row, plan)),
        ],
        rows,
    )
    if len(of_market) > _ROWS_MAX:
        rest = len(of_market) - _ROWS_MAX
        terminal.line(f"and {wording.plural(rest, 'more pool')}: lowtide offers")
    for sentence in plan_sentences(plan):
        terminal.line(sentence)


def plan_sentences(plan: Preview) -> list[str]:
    """The price and the estimate, and what stands against a start now."""
    if plan.chosen is None or plan.microusd_per_hour is None:
        return [
            f"Nothing can start now: {_why_none_fits(plan)}.",
            _how_it_waits(plan),
            *_out_of_reach(plan),
        ]
    machines = wording.plural(plan.count, "machine")
    if plan.spec.nodes.is_elastic:
        machines += f" of {plan.spec.nodes}"
    faster = billed_as(plan.chosen.billing_speed)
    told = [f"{machines} for ${wording.hourly(plan.microusd_per_hour)} an hour{faster}."]
    estimate, budget = plan.estimate_microusd, plan.spec.budget_microusd
    if estimate is None:
        told.append(_how_long(plan.spec))
    else:
        finish = plan.estimate_seconds
        ends = "" if finish is None else f" and ends after {format_duration(finish)}"
        told.append(f"By its estimate the job costs {wording.money(estimate)}{ends} (P50).")
        if budget is not None and estimate > budget:
            told.append(
                f"That is more than the budget of {wording.money(budget)}: "
                "the job will be paused before it is finished."
            )
    return [" ".join(told), *_too_little(plan)]


def _how_long(spec: JobSpec) -> str:
    from app.domain.spec.trainer_work import described_work

    described = None if spec.estimate is not None else described_work(spec)
    if described is None:
        return "How long it takes is unknown until it trains."
    work = described.estimate
    gpu = "the smallest GPU that fits" if work.gpu is None else work.gpu.words
    return (
        f"By the trainer's formula it takes about {whole_minutes(work.seconds)} on one machine "
        f"with {gpu}, a real GPU; `lowtide estimate` shows cost and finish."
    )


def _why_none_fits(plan: Preview) -> str:
    from app.domain.placement.no_offer import why_none_fits
    from app.domain.placement.placement import need_of

    need = need_of(plan.spec, _market(plan.spec), plan.count)
    return why_none_fits(plan.considered, need)


def impossible(plan: Preview) -> str | None:
    """Why the job will never run as it is, without a full stop; None for one that may run."""
    if plan.chosen is None:
        lack = _lasting_lack(plan)
        # What the deployment lacks is the api's to refuse, which it did before the plan was made.
        if lack is not None and lack.field is not None:
            return (
                f"no pool can run this job, now or later: {lack.why} (`{lack.field}` in its spec)"
            )
    for sentence in _out_of_reach(plan):
        return sentence[:1].lower() + sentence[1:].rstrip(".")
    return None


def _lasting_lack(plan: Preview) -> Lack | None:
    """What no pool has, however long the job waits."""
    from app.domain.placement.placement import need_of
    from app.orchestration.placement.never_runs import lasting_lack

    need = need_of(plan.spec, _market(plan.spec), plan.count)
    return lasting_lack(plan.spec, plan.considered, need)


def _how_it_waits(plan: Preview) -> str:
    """Whether a pool may fit later; where none can, what is to be changed."""
    lack = _lasting_lack(plan)
    if lack is None:
        return "The job will wait in the queue, and start when a pool fits."
    change = "this deployment" if lack.field is None else f"`{lack.field}` in its spec"
    return f"No pool can run it later either: change {change}; as it is, the job will not start."


def _out_of_reach(plan: Preview) -> list[str]:
    """A deadline that is nearer than the work could end on the most and quickest machines.

    Only where no pool fits: elsewhere the api's estimate tells what will hold.
    """
    if plan.chosen is not None or plan.missed_by is None:
        return []
    ahead, work = plan.missed_by
    return [
        f"The deadline is in {exact_duration(ahead)}, the estimate comes to "
        f"{whole_minutes(work)}: it will be missed, unless the work is shorter."
    ]


def _too_little(plan: Preview) -> list[str]:
    """A budget that does not pay for a start."""
    budget = plan.spec.budget_microusd
    if budget is None or plan.chosen is None:
        return []
    first = first_segment_microusd([plan.chosen.cost_microusd_per_hour] * plan.count)
    if first <= budget:
        return []
    what = first_segment_words(plan.chosen.billing_speed)
    return [
        f"{what[:1].upper()}{what[1:]} cost {wording.money(first)}, more than the budget of "
        f"{wording.money(budget)}: the job will be paused before it starts."
    ]


def gpu_text(hardware: Any) -> str:
    """ "8 × A100 80 GB"."""
    return gpu_words(hardware.gpu_name, hardware.gpu_count, hardware.gpu_memory_gb)


def _what(spec: JobSpec) -> str:
    kind = "a command" if spec.trainer is None else f"{spec.trainer.model} on {spec.trainer.data}"
    nodes = spec.nodes
    machines = f"{nodes} machines" if nodes.is_elastic else wording.plural(nodes.most, "machine")
    parts = [spec.name or "", kind, machines]
    if spec.deadline is not None:
        parts.append(f"deadline {_deadline(spec.deadline)}")
    if spec.budget_microusd is not None:
        parts.append(f"budget {wording.money(spec.budget_microusd)}")
    return " · ".join(part for part in parts if part)


def _deadline(deadline: timedelta | datetime) -> str:
    if isinstance(deadline, timedelta):
        return exact_duration(int(deadline.total_seconds()))
    return format_instant(deadline)


def environment_lines(spec: JobSpec) -> list[str]:
    """What the command will find around it, one line each; nothing where the spec says nothing."""
    asked: Mapping[str, object] = spec.to_json().get("resources", {})
    machine = [f"{name} {asked[key]}" for name, key in _SIZES if key in asked]
    if spec.instance_types:
        machine.append(f"only {' or '.join(spec.instance_types)}")
    lines = [] if spec.image is None else [f"image {spec.image}"]
    lines += [" · ".join(machine)] if machine else []
    lines += [f"input {path} ← {uri}" for path, uri in spec.inputs.items()]
    lines += [f"output {path} → {uri}/<job id>/" for path, uri in spec.outputs.items()]
    return lines


def _against(row: RankedOffer) -> str:
    offer = row.offer
    return wording.against_on_demand(
        offer.price_microusd_per_hour, offer.on_demand_microusd_per_hour
    )


def hazard_of(offer: Offer) -> float | None:
    """Interruptions per hour of a new machine, over its expected life; None on-demand."""
    from app.domain.placement.expected_cost import expect

    if offer.pool.market is not Market.SPOT:
        return None
    return round(expect(0, 3_600, 0.0, offer.hazard_factor).interruptions_per_hour, 3)


def _hazard(row: RankedOffer) -> str:
    hazard = hazard_of(row.offer)
    return wording.NOTHING if hazard is None else f"{hazard:.2f}"


def _decision(row: RankedOffer, plan: Preview) -> str:
    if plan.chosen is not None and row.offer.pool == plan.chosen.pool:
        return f"✓ cheapest, {row.why.removeprefix('fits, ')}"
    if not row.fits or plan.chosen is None:
        return f"  {row.why}"
    more = row.offer.cost_microusd_per_hour - plan.chosen.cost_microusd_per_hour
    told = "higher price" if more > 0 else "same price"
    if more < 0:
        told = "costs more per hour of training"
    return f"  {told}, {row.why.removeprefix('fits, ')}"


def _why_not_on_demand(plan: Preview) -> str:
    if plan.spec.effective_market() == "auto":
        return "in reserve for the deadline"
    return "not requested"


def _first_fit(considered: Sequence[RankedOffer]) -> Offer | None:
    return next((item.offer for item in considered if item.fits), None)
