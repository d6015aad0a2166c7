"""What a job would cost and when it would end, before it is submitted.

Not here: the simulated runs (`app.domain.estimate.job_estimate`), or what the machines would be
(`app.orchestration.estimates.estimate_job`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.jobs.estimate_shapes import CalibrationShape, EstimateShape, PoolForecastShape
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import Reader
from app.api.serving.json_answers import as_json
from app.api.serving.shapes import fields_of
from app.api.submission.spec_body import read_spec
from app.domain.availability.hazard_by_age import EXPERIENCE_KEPT
from app.domain.availability.hazard_models import PoolPosterior, posterior
from app.domain.estimate.calibration import calibration
from app.domain.estimate.job_estimate import Forecast
from app.domain.estimate.simulated_run import PoolQuote
from app.domain.market.offer import Pool
from app.domain.placement.expected_cost import expect
from app.orchestration.estimates.estimate_job import JobEstimate
from app.orchestration.estimates.evaluate_promise import estimate_known_work, risk_of
from app.orchestration.frame.runtime import Runtime

router = APIRouter(prefix="/api/v1", tags=["estimates"])

_JOBS_MAX = 1_000


@router.post("/estimates", response_model=None, responses={200: {"model": EstimateShape}})
async def estimate(
    request: Request,
    caller: Reader,
    seed: Annotated[
        int,
        Query(
            ge=0,
            le=2**32 - 1,
            description="Seed of the simulated runs; repeat one to get the same result",
        ),
    ] = 0,
    accept_risk: Annotated[
        bool, Query(description="A refusal does not advise to accept a risk: it is accepted")
    ] = False,
) -> Response:
    """Cost and finish (P50, P90) and the chances of a spec, for each way to rent. Rents nothing.

    The body is a job spec, as JSON or YAML. Its work is its `estimate`; without one that of the
    bundled trainer's formula, where model, data and length tell it. `work_source` says which; how
    fast it goes in each pool is measured where the project ran the same work (`speed_source`).
    """
    spec, parts = await read_spec(request), parts_of(request)
    caller = await parts.keys.in_project_of(caller, spec)
    spec = (await parts.rules.resolve(caller, spec)).spec
    runtime = parts.runtime
    ask = partial(estimate_known_work, accept_risk=accept_risk)
    found, source = await to_thread.run_sync(ask, runtime, caller.project_id, spec, seed)
    own_hours = await to_thread.run_sync(_own_hours, runtime, caller.project_id, found)
    risk = risk_of(spec, found)
    return as_json(_document(found, source, None if risk is None else risk[1], own_hours))


@router.get(
    "/estimates/calibration", response_model=None, responses={200: {"model": CalibrationShape}}
)
def estimate_accuracy(
    request: Request,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=_JOBS_MAX, description="Newest jobs only")] = 200,
) -> Response:
    """How well the project's estimates were borne out: shares under P90, and each job's pair."""
    with parts_of(request).runtime.begin() as uow:
        jobs = uow.kept_estimates.outcomes(caller.project_id, limit)
    return as_json({**asdict(calibration(jobs)), "items": [asdict(one) for one in jobs]})


def _own_hours(runtime: Runtime, project_id: UUID, found: JobEstimate) -> dict[str, float]:
    """Machine hours of the project's own jobs in the last month, by the key of a pool."""
    quoted = (*found.pools, *(() if found.on_demand is None else (found.on_demand,)))
    pools = [Pool.parse(quote.key) for quote in quoted]
    with runtime.begin() as uow:
        now = uow.now
        hours = uow.pool_experience.own_hours(pools, project_id, now - EXPERIENCE_KEPT, now)
    return {pool.key: one for pool, one in hours.items()}


def _document(
    found: JobEstimate, source: str, risk: str | None, own_hours: Mapping[str, float]
) -> dict[str, Any]:
    on_demand = found.on_demand

    def pool(quote: PoolQuote, known: PoolPosterior | None) -> dict[str, Any]:
        return _pool(quote, found, known, own_hours.get(quote.key, 0.0))

    return fields_of(
        EstimateShape,
        found,
        work_source=source,
        estimates=[_figures(one) for one in found.estimates],
        curve=[
            {"deadline_seconds": point.deadline_seconds, **_figures(point.estimate)}
            for point in found.curve
        ],
        pools=[pool(one, posterior(one.experience)) for one in found.pools],
        on_demand=None if on_demand is None else pool(on_demand, None),
        risk=risk,
    )


def _figures(estimate: Forecast) -> dict[str, Any]:
    """JSON has no infinity: a finish that is not reached is null."""
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in asdict(estimate).items()
    }


def _pool(
    quote: PoolQuote, found: JobEstimate, known: PoolPosterior | None, own_hours: float
) -> dict[str, Any]:
    """One pool alone, if it always had machines; known: of its hazards, None on-demand.

    own_hours: that the project's machines have run there.

    hazard_per_hour: interruptions of one machine over its life, as a decision tells them;
    interruptions_per_hour: of the gang, whichever of its machines it is.
    """
    work_seconds = found.work_seconds / quote.speed
    billed_per_hour = quote.microusd_per_hour * quote.billing_speed
    factor = None if known is None else known.hazard_factor
    gang_factor = None if factor is None else factor * found.node_count
    alone = expect(billed_per_hour, work_seconds, found.restart_seconds, gang_factor)
    machine = expect(billed_per_hour, work_seconds, found.restart_seconds, factor)
    return fields_of(
        PoolForecastShape,
        quote,
        pool=quote.key,
        expected_microusd=alone.microusd,
        expected_seconds=alone.seconds,
        hazard_per_hour=None if factor is None else machine.interruptions_per_hour,
        interruptions_per_hour=alone.interruptions_per_hour,
        empty_chance=None if known is None else known.empty_chance,
        lived_hours=own_hours,
    )
