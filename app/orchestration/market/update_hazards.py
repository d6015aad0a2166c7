"""Keep beside each pool's price how often machines are taken there, learned from all of them.

Lives here: the reading and writing, in the transaction that stores new prices, so that whoever
reads an offer reads its hazard with it and none is computed while a job is locked. Not here: what
follows from counts (`availability.hazard_by_age`), or the order of offers (`placement.placement`).
"""

from __future__ import annotations

from app.domain.availability.hazard_by_age import EXPERIENCE_KEPT
from app.domain.availability.hazard_models import posterior
from app.storage.unit_of_work import UnitOfWork

_DIGITS = 2


def update_hazards(uow: UnitOfWork, provider: str) -> None:
    """Write the hazard of each of a provider's spot pools in which machines have lived."""
    now = uow.now
    known = uow.pool_experience.of_provider(provider, now - EXPERIENCE_KEPT, now)
    factors = {
        pool: round(posterior(experience).hazard_factor, _DIGITS)
        for pool, experience in known.items()
    }
    uow.offers.learn(provider, factors)
