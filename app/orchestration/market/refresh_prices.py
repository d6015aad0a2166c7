"""Ask every provider what it offers now, and what its prices were since the last time.

Not here: the choice between offers (`app.domain.placement.placement`), or booking at these prices
(`accrue_costs`, which waits for prices asked for after a machine's end before its bill is final).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.domain.launch_limits.contract_prices import ContractPrices
from app.domain.market.offer import Offer
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.runtime import Runtime
from app.orchestration.market.update_hazards import update_hazards
from app.orchestration.money.accrue_costs import ACCRUE_CONTROLLER
from app.ports.cloud_provider import ProviderError
from app.ports.price_source import PriceChange
from app.storage.unit_of_work import UnitOfWork

log = logging.getLogger(__name__)

PRICE_CONTROLLER = "refresh_prices"
FIRST_LOOK_BACK = timedelta(hours=1)
"""How much of the past is asked for when nothing is stored."""


@dataclass(frozen=True)
class PriceQuestion:
    """One provider, and since when its changes are not known."""

    provider: str
    since: datetime


@dataclass(frozen=True)
class PriceAnswer:
    """What it said; `error` in place of both when it could not be asked."""

    offers: tuple[Offer, ...] = ()
    changes: tuple[PriceChange, ...] = ()
    error: str | None = None


class RefreshPrices(RuntimeController):
    """The controller of offers and price history."""

    name = PRICE_CONTROLLER
    limit = 16

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        # Only a courtesy to a provider that fails: lost with the process, at no harm.
        self._asked_at: dict[str, datetime] = {}

    def select(self, uow: UnitOfWork, limit: int) -> list[PriceQuestion]:
        """Providers whose prices are old, or awaited by the bill of a machine that ended."""
        found: list[PriceQuestion] = []
        for provider in sorted(self._runtime.price_sources):
            due = self._due_at(uow, provider)
            if (due is None or due <= uow.now) and len(found) < limit:
                self._asked_at[provider] = uow.now
                found.append(PriceQuestion(provider, self._since(uow, provider)))
        return found

    def effect(self, work: PriceQuestion) -> PriceAnswer:
        """Offers first: the changes asked for after them reach beyond the quotes' instant."""
        source = self._runtime.price_sources[work.provider]
        contract = self._runtime.contract
        try:
            offers = tuple(map(contract.paid, source.offers()))
            changes = tuple(_paid_change(contract, one) for one in source.changes_since(work.since))
            return PriceAnswer(offers, changes)
        except ProviderError as error:
            return PriceAnswer(error=f"{error.kind.value}: {error}")

    def apply(self, uow: UnitOfWork, work: PriceQuestion, result: PriceAnswer) -> None:
        """Store quotes and changes; a failure leaves the old ones, which age in sight of all."""
        if result.error is not None:
            log.warning("prices of %s stay as they were: %s", work.provider, result.error)
            return
        # What is stored of the past stays as it was: other terms hold from their first quote on.
        known = uow.offers.price_terms(work.provider)
        renewed = [
            PriceChange(
                one.pool,
                one.quoted_at,
                one.price_microusd_per_hour,
                _by_terms(one.price_source, one.price_terms),
            )
            for one in result.offers
            if one.pool in known and known[one.pool] != one.price_terms
        ]
        if renewed:
            log.info("prices of %d pools of %s have other terms", len(renewed), work.provider)
        uow.offers.record(result.offers, (*renewed, *result.changes), uow.now)
        update_hazards(uow, work.provider)
        uow.notify_after_commit(ACCRUE_CONTROLLER)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first provider is to be asked."""
        due = [self._due_at(uow, name) or uow.now for name in self._runtime.price_sources]
        return min(due, default=None)

    def _due_at(self, uow: UnitOfWork, provider: str) -> datetime | None:
        """None: never asked, so now."""
        limits = self._runtime.limits
        quoted, asked = uow.offers.last_quoted_at(provider), self._asked_at.get(provider)
        looks = [instant for instant in (quoted, asked) if instant is not None]
        if not looks:
            return None
        regular = max(looks) + timedelta(seconds=limits.price_refresh_seconds)
        ended = uow.instances.last_unfinal_end_at(provider)
        if ended is None or quoted is None or quoted >= ended:
            return regular
        awaited = ended + timedelta(seconds=limits.cost_settle_seconds)
        return awaited if asked is None or asked < awaited else regular

    def _since(self, uow: UnitOfWork, provider: str) -> datetime:
        """From the last quotes, with an overlap for what was published late.

        Further back where a machine runs whose start no price covers.
        """
        quoted = uow.offers.last_quoted_at(provider)
        overlap = timedelta(seconds=self._runtime.limits.price_refresh_seconds)
        since = uow.now - FIRST_LOOK_BACK if quoted is None else quoted - overlap
        starts = [
            instance.launched_at
            for instance in uow.instances.unpriced(limit=1_000)
            if instance.provider == provider and instance.launched_at is not None
        ]
        return min([since, *starts])


def _paid_change(contract: ContractPrices, change: PriceChange) -> PriceChange:
    """A change of a list price as a change of what is paid; its source says by which terms."""
    terms = contract.terms_of(change.pool)
    if terms.words is None:
        return change
    paid = terms.paid(change.microusd_per_hour)
    return replace(change, microusd_per_hour=paid, source=_by_terms(change.source, terms.words))


def _by_terms(source: str, terms: str | None) -> str:
    return source if terms is None else f"{source}, {terms}"
