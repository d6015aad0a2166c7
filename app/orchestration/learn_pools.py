"""Keep beside each pool's price how often machines are taken there, learned from all of them.

Lives here: the reading and writing, in the transaction that stores new prices, so that whoever
reads an offer reads its hazard with it and none is computed while a job is locked. Not here: what
follows from counts (`app.domain.pool_life`), or the order of offers (`app.domain.placement`).
"""

from __future__ import annotations

from datetime import timedelta

from app.domain.pool_life import hazard_factor
from app.ports.unit_of_work import UnitOfWork

EXPERIENCE = timedelta(days=30)
"""Pools change their ways: older machines tell nothing of today."""

_DIGITS = 2


def learn_pools(uow: UnitOfWork, provider: str) -> None:
    """Write the hazard of each of a provider's spot pools in which machines have lived."""
    now = uow.now
    known = uow.pool_experience.of_provider(provider, now - EXPERIENCE, now)
    factors = {
        pool: round(hazard_factor(experience), _DIGITS) for pool, experience in known.items()
    }
    uow.offers.learn(provider, factors)
