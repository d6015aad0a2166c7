"""The shapes of answers about machines, about what can be rented, and about its prices.

Not here: a job's own machines (`app.api.jobs.job_shapes`), or sweeps (`sweep_shapes`).
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from app.api.serving.shapes import Shape
from app.domain.lifecycle.instance import EndedBy, InstanceState
from app.domain.market.offer import Market


class Interruption(Shape):
    """When the local cloud kills the machine."""

    id: UUID
    ends_at: datetime


class InstanceShape(Shape):
    """A machine of one of the project's jobs. name: m1, m2, … once the cloud has started it."""

    id: UUID
    name: str | None
    job_id: UUID
    job_name: str
    provider: str
    cloud: str | None
    market: Market
    state: InstanceState
    origin: str
    pool: str | None
    region: str | None
    zone: str | None
    instance_type: str | None
    provider_instance_id: str | None
    requested_at: datetime
    launched_at: datetime | None
    registered_at: datetime | None
    noticed_at: datetime | None
    notice_deadline_at: datetime | None
    unreachable_at: datetime | None
    release_ordered_at: datetime | None
    release_reason: str | None
    ended_at: datetime | None
    ended_by: EndedBy | None
    suspect: bool
    billing_speed: int
    private_address: str | None
    cost_final_at: datetime | None
    phase: str | None
    answered_at: datetime | None
    step: int | None
    microusd_per_hour: int | None


class InstancePage(Shape):
    """Machines, newest first; all in one part."""

    items: list[InstanceShape]
    next: None


class HardwareShape(Shape):
    """What one machine carries. Fields with a default are left out where they are not known."""

    gpu_name: str
    gpu_count: int
    gpu_memory_gb: int
    vcpus: int
    memory_gb: int
    interconnect: str = ""
    fast_network: str = ""
    containers: bool = True
    quota: str = ""


class AttachmentsShape(Shape):
    """Prices of disk and address. `disk_microusd_per_month`: for its speed, left out if 0."""

    disk_gb: int
    disk_microusd_per_gb_month: int
    public_ip_microusd_per_hour: int
    source: str
    captured_at: datetime
    disk_microusd_per_month: int = 0


class OfferShape(Shape):
    """A pool with its newest quote, per machine and hour.

    `is_stale`: the quote is too old to be acted on. `cool_until_at`: until then the pool is not
    asked. The score (1 to 10) and the preemption rate are the cloud's own. The price is what is
    paid; `list_microusd_per_hour` and `price_terms` are null where that is the list price.
    """

    pool: str
    provider: str
    cloud: str
    region: str
    zone: str
    instance_type: str
    market: Market
    hardware: HardwareShape
    price_microusd_per_hour: int
    on_demand_microusd_per_hour: int
    on_demand_ratio: float | None
    quoted_at: datetime
    quote_age_seconds: int
    is_stale: bool
    price_source: str
    available: int | None
    billing_speed: int
    attachments: AttachmentsShape | None
    cool_until_at: datetime | None
    cool_reason: str | None
    refusals: int
    hazard_factor: float | None
    placement_score: int | None
    placement_scored_at: datetime | None
    preemption_rate: float | None
    preemption_rate_at: datetime | None
    list_microusd_per_hour: int | None
    price_terms: str | None


class OfferPage(Shape):
    """Offers, cheapest first; all in one part."""

    items: list[OfferShape]
    next: None


class PriceStepShape(Shape):
    """From then on a machine costs so much."""

    at: datetime
    microusd_per_hour: int


class PriceSummaryShape(Shape):
    """Micro-USD per hour. `median`: the price was at most this for half of the time."""

    least: int
    median: int
    most: int


class PreemptionRateShape(Shape):
    """The share of a pool's machines that its cloud took in a span of time."""

    from_at: datetime | None
    to_at: datetime | None
    rate: float


class PriceHistoryShape(Shape):
    """Recorded prices of one pool. `known_since_at`: of its oldest price; null without any."""

    pool: str
    region: str
    zone: str
    instance_type: str
    market: Market
    price_microusd_per_hour: int
    from_at: datetime
    to_at: datetime
    known_since_at: datetime | None
    steps: list[PriceStepShape]
    summary: PriceSummaryShape | None
    preemptions: list[PreemptionRateShape]
    past_asked_at: datetime | None


class PriceHistoryPage(Shape):
    """One entry for each pool, cheapest first; all in one part."""

    items: list[PriceHistoryShape]
    next: None
