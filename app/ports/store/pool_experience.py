"""What the deployment's own machines and launches have been through, by pool, over all projects.

Not here: what follows from it (`availability.pool_life`), or what clouds tell (`pool_past`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.domain.availability.pool_life import Experience
from app.domain.availability.pool_sightings import Sightings
from app.domain.market.offer import Pool
from app.domain.throughput.measured_run import MeasuredRun


class PoolExperience(Protocol):
    """Counts of machines and launches."""

    def of(
        self, pools: Sequence[Pool], since: datetime, now: datetime
    ) -> Mapping[Pool, Experience]:
        """Experience with these pools since then; pools never rented in are left out."""
        ...

    def of_provider(
        self, provider: str, since: datetime, now: datetime
    ) -> Mapping[Pool, Experience]:
        """Experience with all of a provider's spot pools that machines were launched in."""
        ...

    def sightings(self, since: datetime, now: datetime) -> Mapping[Pool, Sightings]:
        """When spot pools had machines and when they lacked them, by all jobs; bounded."""
        ...

    def usual_prices(
        self, pools: Sequence[Pool], since: datetime, now: datetime
    ) -> Mapping[Pool, int]:
        """Mean price over that time, micro-USD per hour; without pools whose price stood still."""
        ...

    def measured_runs(
        self, project_id: UUID, spec: Mapping[str, Any], since: datetime
    ) -> Sequence[MeasuredRun]:
        """Ended attempts of a project's jobs that did the same work as the spec; bounded."""
        ...
