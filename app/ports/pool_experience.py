"""What the deployment's own machines and launches have been through, by pool, over all projects.

Not here: what follows from it (`app.domain.pool_life`), or what clouds tell (`pool_past`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from app.domain.offer import Pool
from app.domain.pool_life import Experience


class PoolExperience(Protocol):
    """Counts of machines and launches."""

    def of(
        self, pools: Sequence[Pool], since: datetime, now: datetime
    ) -> Mapping[Pool, Experience]:
        """Experience with these pools since then; pools never rented in are left out."""
        ...
