"""How accurate estimates were: each job's estimate against what it took in the end.

Lives here: the pair and the figures over many of them. Not here: making estimates (`job_estimate`),
or keeping them (`app.orchestration.estimates.keep_estimates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from uuid import UUID


@dataclass(frozen=True)
class EstimateOutcome:
    """One ended job: its estimate, made as of its submission, and what came of it.

    `finish_p90_seconds` is None where the estimate was that it might never end.
    """

    job_id: UUID
    job_name: str
    cost_p50_microusd: int
    cost_p90_microusd: int
    finish_p50_seconds: float | None
    finish_p90_seconds: float | None
    cost_microusd: int
    seconds: float


@dataclass(frozen=True)
class Calibration:
    """Shares of jobs that stayed under their P90; 0.9 is right, more is too careful.

    `cost_error`, `finish_error`: median of actual over P50, minus 1. All None without jobs.
    `finish_jobs`: those of which an end was promised, and is judged.
    """

    jobs: int
    finish_jobs: int
    cost_under_p90: float | None
    finish_under_p90: float | None
    cost_error: float | None
    finish_error: float | None


def calibration(outcomes: Sequence[EstimateOutcome]) -> Calibration:
    """The figures over these jobs."""
    finished = [one for one in outcomes if one.finish_p90_seconds and one.finish_p50_seconds]
    return Calibration(
        jobs=len(outcomes),
        finish_jobs=len(finished),
        cost_under_p90=_share([one.cost_microusd <= one.cost_p90_microusd for one in outcomes]),
        finish_under_p90=_share(
            [one.seconds <= (one.finish_p90_seconds or 0.0) for one in finished]
        ),
        cost_error=_error(
            [one.cost_microusd / one.cost_p50_microusd for one in outcomes if one.cost_p50_microusd]
        ),
        finish_error=_error([one.seconds / (one.finish_p50_seconds or 1.0) for one in finished]),
    )


def _share(met: Sequence[bool]) -> float | None:
    return sum(met) / len(met) if met else None


def _error(ratios: Sequence[float]) -> float | None:
    return median(ratios) - 1.0 if ratios else None
