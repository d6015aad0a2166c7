"""Keep an estimate of every job before its first machine, to be held against what it takes.

Lives here: the controller. Not here: the estimate (`estimate_job`), or the comparison
(`app.domain.calibration`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.domain.errors import DomainError
from app.domain.what_if import Estimate
from app.orchestration.estimate_job import JobEstimate, estimate_job
from app.orchestration.parsed_specs import parsed_spec
from app.orchestration.runtime import Runtime
from app.orchestration.schedule import turn_of
from app.ports.kept_estimates import KeptEstimate
from app.ports.unit_of_work import UnitOfWork

ESTIMATE_CONTROLLER = "keep_estimates"
_SEEDS = 2**32
_PATHS = 200
"""Fewer than for a person who asks: thousands of jobs may be submitted at once."""


@dataclass(frozen=True)
class Unestimated:
    """A job in the queue without an estimate."""

    job_id: UUID
    project_id: UUID
    spec: dict[str, Any]


class KeepEstimates:
    """The controller of kept estimates."""

    name = ESTIMATE_CONTROLLER
    limit = 5

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.queue, self.period_seconds = turn_of(self.name, runtime.limits)

    def lease(self, uow: UnitOfWork, limit: int) -> list[Unestimated]:
        """Jobs without one. It changes nothing but its own row, so it takes no lease."""
        return [Unestimated(*found) for found in uow.kept_estimates.missing(limit)]

    def effect(self, work: Unestimated) -> JobEstimate | None:
        """Imagine its runs; None where nothing can be said, as for a spec without `estimate`."""
        try:
            seed = work.job_id.int % _SEEDS
            spec = parsed_spec(work.spec)
            return estimate_job(
                self._runtime, work.project_id, spec, seed, draw_curve=False, paths=_PATHS
            )
        except DomainError:
            return None

    def apply(self, uow: UnitOfWork, work: Unestimated, result: JobEstimate | None) -> None:
        """Remember the figures of the way in which the product will rent."""
        kept = KeptEstimate(work.job_id, uow.now)
        if result is not None and result.estimates:
            kept = _kept(kept, result.estimates[0])
        uow.kept_estimates.keep(kept)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """At once, while a job has none."""
        return uow.now if uow.kept_estimates.missing(1) else None


def _kept(empty: KeptEstimate, figures: Estimate) -> KeptEstimate:
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
