"""Keep an estimate of every job as of its submission, to be held against what it takes.

Lives here: the controller. Not here: the estimate (`estimate_job`), or the comparison
(`app.domain.estimate.calibration`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from app.domain.estimate.job_estimate import Forecast
from app.domain.units.errors import DomainError
from app.orchestration.estimates.estimate_job import estimate_job
from app.orchestration.frame.aggregate import parsed_spec
from app.orchestration.frame.controller_frame import RuntimeController
from app.storage.jobs.kept_estimate_rows import KeptEstimate, Unestimated
from app.storage.unit_of_work import UnitOfWork

ESTIMATE_CONTROLLER = "keep_estimates"
_SEEDS = 2**32
_PATHS = 200
"""Fewer than for a person who asks: thousands of jobs may be submitted at once."""


@dataclass(frozen=True)
class EstimateResult:
    """What was simulated of a job; figures None where nothing could be said."""

    made_at: datetime
    figures: Forecast | None = None


class KeepEstimates(RuntimeController):
    """The controller of kept estimates."""

    name = ESTIMATE_CONTROLLER
    limit = 5

    def select(self, uow: UnitOfWork, limit: int) -> list[Unestimated]:
        """Jobs without one. It changes nothing but its own row, so it takes no lease."""
        return uow.kept_estimates.missing(limit, uow.now)

    def effect(self, work: Unestimated) -> EstimateResult:
        """Simulate its runs, as of its submission: it may have been claimed since.

        When nothing could be said at first, then as of now. Without figures where nothing can be
        said, as for a spec without `estimate`.
        """
        now = self._runtime.clock.now()
        made_at = work.submitted_at if work.asked_at is None else now
        # A deadline that is told in hours counts from the submission, whenever it is asked about.
        spec = parsed_spec(work.spec)
        spec = spec.model_copy(update={"deadline": work.deadline_at})
        try:
            seed = work.job_id.int % _SEEDS
            found = estimate_job(
                self._runtime,
                work.project_id,
                spec,
                seed,
                compare=False,
                paths=_PATHS,
                submitted_at=made_at,
            )
        except DomainError:
            return EstimateResult(now)
        own = next(iter(found.estimates), None)
        return EstimateResult(now) if own is None else EstimateResult(made_at, own)

    def apply(self, uow: UnitOfWork, work: Unestimated, result: EstimateResult) -> None:
        """Remember the figures of the way in which the product will rent.

        A job that another transaction holds is left for the next run: nothing here is urgent.
        """
        # Another worker that writes the same row would be waited for by the insert.
        if not uow.operations.try_single_flight(f"{self.name} {work.job_id}"):
            return
        kept = KeptEstimate(work.job_id, result.made_at)
        uow.kept_estimates.keep(kept if result.figures is None else _kept(kept, result.figures))

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """At once while a job has none, later for those of which nothing could be said."""
        if uow.kept_estimates.missing(1, uow.now):
            return uow.now
        return uow.kept_estimates.next_try_at()


def _kept(empty: KeptEstimate, figures: Forecast) -> KeptEstimate:
    return KeptEstimate(
        job_id=empty.job_id,
        made_at=empty.made_at,
        cost_p50_microusd=figures.cost_p50_microusd,
        cost_p90_microusd=figures.cost_p90_microusd,
        finish_p50_seconds=_finite(figures.finish_p50_seconds),
        finish_p90_seconds=_finite(figures.finish_p90_seconds),
        deadline_chance=figures.deadline_chance,
        budget_chance=figures.budget_chance,
    )


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
