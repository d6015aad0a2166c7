"""The page of estimates against what jobs took: the calibration error as a figure.

Lives here: figures, rows and dots ready for the template. Not here: the figures' meaning
(`app.domain.estimate.calibration`), or making estimates (`app.domain.estimate.job_estimate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from app.domain.estimate.calibration import Calibration, EstimateOutcome, calibration
from app.domain.units.percent import percent
from app.web import formats
from app.web.page_frame import PageParts

JOBS_MAX: Final = 200
ROWS_SHOWN: Final = 30
RATIO_MAX: Final = 2.0
"""The right end of the picture: twice the P90; what took more is drawn there."""

_LEVELS: Final = 3
_LEVEL_PX: Final = 9


@dataclass(frozen=True)
class AccuracyDot:
    """One job in the picture. x: percent of its width; y: pixels; under: it stayed under P90."""

    x: float
    y: int
    under: bool
    title: str


@dataclass(frozen=True)
class AccuracyStrip:
    """What the jobs took over their P90, one dot each; `error`: median over P50, minus 1.

    jobs: how many of them were judged.
    """

    name: str
    under_p90: str
    jobs: int
    error: str
    dots: tuple[AccuracyDot, ...]


@dataclass(frozen=True)
class EstimateAccuracy:
    """The page. `jobs`: how many it rests on; `rows`: the newest of them."""

    jobs: int
    strips: tuple[AccuracyStrip, ...]
    rows: tuple[EstimateOutcome, ...]


def estimate_accuracy(parts: PageParts, project_id: UUID) -> EstimateAccuracy:
    """Succeeded jobs of a project with an estimate and a final cost."""
    with parts.runtime.begin() as uow:
        jobs = uow.kept_estimates.outcomes(project_id, JOBS_MAX)
    found = calibration(jobs)
    return EstimateAccuracy(len(jobs), tuple(_strips(found, jobs)), tuple(jobs[:ROWS_SHOWN]))


def _strips(found: Calibration, jobs: Sequence[EstimateOutcome]) -> Iterable[AccuracyStrip]:
    costs = [
        (one.cost_microusd / one.cost_p90_microusd, f"{one.job_name}: {_cost(one)}")
        for one in jobs
        if one.cost_p90_microusd
    ]
    yield _strip("Cost", found.cost_under_p90, found.jobs, found.cost_error, costs)
    finishes = [
        (one.seconds / one.finish_p90_seconds, f"{one.job_name}: {_finish(one)}")
        for one in jobs
        if one.finish_p90_seconds
    ]
    yield _strip("Finish", found.finish_under_p90, found.finish_jobs, found.finish_error, finishes)


def _strip(
    name: str,
    under: float | None,
    jobs: int,
    error: float | None,
    ratios: Sequence[tuple[float, str]],
) -> AccuracyStrip:
    share = formats.DASH if under is None else percent(under)
    return AccuracyStrip(name, share, jobs, formats.change(error), _dots(ratios))


def _dots(ratios: Sequence[tuple[float, str]]) -> tuple[AccuracyDot, ...]:
    return tuple(
        AccuracyDot(
            x=round(100 * min(ratio, RATIO_MAX) / RATIO_MAX, 2),
            y=_LEVEL_PX * (1 + number % _LEVELS),
            under=ratio <= 1,
            title=title,
        )
        for number, (ratio, title) in enumerate(ratios)
    )


def _cost(one: EstimateOutcome) -> str:
    return f"{formats.usd(one.cost_microusd)}, P90 {formats.usd(one.cost_p90_microusd)}"


def _finish(one: EstimateOutcome) -> str:
    return f"{formats.brief(one.seconds)}, P90 {formats.brief(one.finish_p90_seconds)}"
