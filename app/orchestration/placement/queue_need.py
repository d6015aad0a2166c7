"""What the queue asks the market for: the need of a launch with the deployment's times."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from app.domain.market.offer import Market
from app.domain.placement.placement import Need, need_of
from app.domain.spec.job_spec import JobSpec
from app.orchestration.frame.limits import Limits


def queue_need(spec: JobSpec, market: Market, count: int, limits: Limits) -> Need:
    """As the queue asks for a whole gang: with the deployment's times, so that hazards count."""
    return replace(
        need_of(spec, market, count),
        quote_age_max=timedelta(seconds=limits.quote_age_max_seconds),
        restart_seconds=limits.restart_seconds,
    )
