"""The shapes of answers about estimates: a spec's, and how accurate earlier ones were.

Money is whole micro-USD, for the whole gang. Not here: the figures (`app.domain.estimate`).
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from app.api.serving.shapes import Shape


class ForecastShape(Shape):
    """Figures over many simulated runs of one way to rent.

    A finish is null where it is never reached; a chance is null without that limit.
    """

    market: Literal["auto", "spot", "on_demand"]
    cost_p50_microusd: int
    cost_p90_microusd: int
    finish_p50_seconds: float | None
    finish_p90_seconds: float | None
    simulated_finish_p90_seconds: float | None
    interruptions_mean: float
    deadline_chance: float | None
    budget_chance: float | None
    kept_chance: float


class CurvePointShape(ForecastShape):
    """The product's own way to rent, if this were the deadline."""

    deadline_seconds: float


class PoolForecastShape(Shape):
    """One pool alone, if it always had machines. The hazard is null for on-demand machines.

    `lived_hours`: for how long machines of the project's own jobs have run there. The hazard rests
    on those of the whole deployment.
    """

    pool: str
    microusd_per_hour: int
    billing_speed: int
    speed: float
    speed_source: str
    expected_microusd: int
    expected_seconds: float
    hazard_per_hour: float | None
    interruptions_per_hour: float
    empty_chance: float | None
    lived_hours: float


class EstimateShape(Shape):
    """The estimate of a spec. `risk`: why a limit will probably not hold, as a sentence."""

    work_seconds: float
    work_source: str
    scaling: str | None
    earliest_seconds: float | None
    acquire_seconds: float
    node_count: int
    seed: int
    estimates: list[ForecastShape]
    curve: list[CurvePointShape]
    pools: list[PoolForecastShape]
    on_demand: PoolForecastShape | None
    risk: str | None


class EstimateOutcomeShape(Shape):
    """One ended job: what was estimated at its submission, and what it took."""

    job_id: UUID
    job_name: str
    cost_p50_microusd: int
    cost_p90_microusd: int
    finish_p50_seconds: float | None
    finish_p90_seconds: float | None
    cost_microusd: int
    seconds: float


class CalibrationShape(Shape):
    """Shares of jobs that stayed under their P90, and median errors; null without jobs."""

    jobs: int
    finish_jobs: int
    cost_under_p90: float | None
    finish_under_p90: float | None
    cost_error: float | None
    finish_error: float | None
    items: list[EstimateOutcomeShape]
