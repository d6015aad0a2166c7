"""What a waiting job asks for, and which pools come nearest to it, at what price.

Not here: why it waits (the queue writes that), or which offer it would get (`placement`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.domain.job_spec import JobSpec
from app.domain.offer import Pool
from app.ports.job_reports import JobReports
from app.web import formats

OFFERS_SHOWN: Final = 5


@dataclass(frozen=True)
class OfferRow:
    """A pool that has what a waiting job needs, with its price now."""

    pool: Pool
    microusd_per_hour: int
    on_demand_ratio: float
    available: int | None


def needs(spec: JobSpec) -> str:
    """What a waiting job asks for, for people."""
    gpus = " or ".join(str(choice) for choice in spec.gpu_choices) or "one GPU that fits"
    machines = "1 machine" if spec.node_count == 1 else f"{spec.node_count} machines"
    market = {"auto": "spot or on-demand", "on_demand": "on-demand"}.get(
        spec.effective_market(), "spot"
    )
    most = formats.percent(spec.max_price_ratio)
    return f"{machines} with {gpus}, {market}, at no more than {most} of the on-demand price"


def cheapest_offers(jobs: JobReports, spec: JobSpec) -> tuple[OfferRow, ...]:
    """The cheapest pools with a GPU that the job names, whatever their price."""
    names: list[str | None] = [choice.name for choice in spec.gpu_choices]
    found = [row for name in dict.fromkeys(names or [None]) for row in jobs.offers(name)]
    found.sort(key=lambda row: (row["price_microusd_per_hour"], str(row["pool"])))
    return tuple(
        OfferRow(
            row["pool"],
            row["price_microusd_per_hour"],
            row["price_microusd_per_hour"] / row["on_demand_microusd_per_hour"],
            row["available"],
        )
        for row in found[:OFFERS_SHOWN]
    )
