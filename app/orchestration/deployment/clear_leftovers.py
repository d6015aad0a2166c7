"""Look for what clouds keep of this deployment besides machines, and remove what nothing needs.

Lives here: the controller of disks, templates, groups and policies. A thing goes when it was idle
at every look for the grace period and nothing shows that rows are missing, or when everything was
ordered to end and the region shows no machine any more. Not here: what there is (a provider's
`CloudLeftovers`), the grace (`leftover_rules`), or machines (`sweep_deployment`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.domain.deployment.leftover_rules import LEFTOVERS_LOOK_SECONDS, is_over
from app.domain.deployment.sweep_rules import DeploymentEventKind
from app.domain.units.money import format_usd
from app.orchestration.deployment.destroy_deployment import record_progress
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.runtime import Runtime
from app.ports.cloud_leftovers import CloudLeftovers, Leftover
from app.ports.cloud_provider import ProviderError
from app.storage.instances.sweep_repository import (
    DeploymentEvent,
    SeenLeftover,
    SweepOrders,
    SweptRegion,
)
from app.storage.unit_of_work import UnitOfWork

log = logging.getLogger(__name__)

LEFTOVERS_CONTROLLER = "clear_remains"
UNKNOWN_KIND = "unknown"
"""Stands for what a region may hold that could not be asked."""
_FRESH_PERIODS = 5
_AGAIN = timedelta(seconds=5)
_LOOK = timedelta(seconds=LEFTOVERS_LOOK_SECONDS)


@dataclass(frozen=True)
class RegionToClear:
    """One region; `over` are (kind, id) whose time is over. everything: whatever is there goes."""

    provider: str
    region: str
    over: frozenset[tuple[str, str]]
    everything: bool


@dataclass(frozen=True)
class Cleared:
    """What was found and what is left of it; `error` when the region could not be asked."""

    asked_at: datetime
    found: tuple[Leftover, ...] = ()
    left: tuple[Leftover, ...] = ()
    error: str | None = None


class ClearLeftovers(RuntimeController):
    """The controller of leftovers."""

    name = LEFTOVERS_CONTROLLER
    limit = 20

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        sweep_seconds = max(runtime.limits.sweep_seconds, self.period_seconds)
        self._fresh = timedelta(seconds=_FRESH_PERIODS * sweep_seconds)

    def select(self, uow: UnitOfWork, limit: int) -> list[RegionToClear]:
        """Regions that are due, with what may go there."""
        orders, lists = uow.sweeps.orders(), self._lists(uow)
        due = [one for one in lists if _due_at(one, orders) <= uow.now]
        if not due:
            return []
        may_remove = not orders.adopting and self._all_listed(uow)
        return [self._work(uow, one, orders, may_remove) for one in due[:limit]]

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first region is to be looked at again."""
        orders = uow.sweeps.orders()
        return min((_due_at(one, orders) for one in self._lists(uow)), default=None)

    def effect(self, work: RegionToClear) -> Cleared:
        """List, and remove what may go."""
        asked_at = self._runtime.clock.now()
        provider = self._runtime.providers[work.provider]
        if not isinstance(provider, CloudLeftovers):
            return Cleared(asked_at)
        try:
            found = provider.list_leftovers(work.region)
            going = [one for one in found if _goes(work, one)]
            kept = [one for one in found if not _goes(work, one)]
            left = provider.remove_leftovers(going) if going else ()
        except ProviderError as error:
            log.warning("%s of %s could not be cleared: %s", work.region, work.provider, error)
            return Cleared(asked_at, error=str(error))
        return Cleared(asked_at, found, (*kept, *left))

    def apply(self, uow: UnitOfWork, work: RegionToClear, result: Cleared) -> None:
        """Write down what is left, and tell what was removed."""
        if result.error is not None:
            note = f"the cloud did not answer: {result.error}"
            seen = [SeenLeftover(UNKNOWN_KIND, "-", note, None, None)]
            uow.sweeps.record_leftovers(work.provider, work.region, result.asked_at, seen)
            return
        before = {(one.kind, one.id): one for one in self._seen(uow, work)}
        seen = [_seen_now(one, before, result.asked_at) for one in result.left]
        uow.sweeps.record_leftovers(work.provider, work.region, result.asked_at, seen)
        kept = {(one.kind, one.id) for one in result.left}
        removed = [one for one in result.found if (one.kind, one.id) not in kept]
        if removed:
            self._tell(uow, work, removed)
        if uow.sweeps.orders().destroy_ordered_at is not None:
            record_progress(uow, self._runtime)

    def _lists(self, uow: UnitOfWork) -> list[SweptRegion]:
        """The last lists of the regions that can be asked for leftovers."""
        providers = self._runtime.providers
        return [
            one
            for one in uow.sweeps.regions()
            if isinstance(providers.get(one.provider), CloudLeftovers)
            and one.region in providers[one.provider].regions()
        ]

    def _all_listed(self, uow: UnitOfWork) -> bool:
        """Every region's machines were listed lately: a list tells whether rows are missing."""
        at = {(one.provider, one.region): one.swept_at for one in uow.sweeps.regions()}
        return all(
            (found := at.get((name, region))) is not None and uow.now - found <= self._fresh
            for name, provider in self._runtime.providers.items()
            for region in provider.regions()
        )

    def _work(
        self, uow: UnitOfWork, one: SweptRegion, orders: SweepOrders, may_remove: bool
    ) -> RegionToClear:
        over = frozenset(
            (seen.kind, seen.id) for seen in one.remains if is_over(seen.idle_since_at, uow.now)
        )
        everything = orders.destroy_ordered_at is not None and _is_empty(one, orders)
        return RegionToClear(
            one.provider, one.region, over if may_remove else frozenset(), everything
        )

    def _seen(self, uow: UnitOfWork, work: RegionToClear) -> Iterable[SeenLeftover]:
        for one in uow.sweeps.regions():
            if (one.provider, one.region) == (work.provider, work.region):
                yield from one.remains

    def _tell(self, uow: UnitOfWork, work: RegionToClear, removed: list[Leftover]) -> None:
        """One line for all, with the money that it saves."""
        names = ", ".join(f"{one.kind} {one.id}" for one in removed[:10])
        if len(removed) > 10:
            names += f" and {len(removed) - 10} more"
        saved = sum(one.microusd_per_day or 0 for one in removed)
        text = f"{names} in {work.region} was unused: removed"
        text += f", which saves {format_usd(saved)} a day." if saved else "."
        data = {
            "provider": work.provider,
            "region": work.region,
            "removed": [[one.kind, one.id] for one in removed],
            "saved_microusd_per_day": saved,
        }
        event = DeploymentEvent(uow.now, DeploymentEventKind.REMAINS_REMOVED.value, text, data)
        uow.sweeps.add_event(self._runtime.entropy.new_id(), event)


def _goes(work: RegionToClear, one: Leftover) -> bool:
    return work.everything or (one.idle and (one.kind, one.id) in work.over)


def _is_empty(one: SweptRegion, orders: SweepOrders) -> bool:
    """Listed after the order to destroy, and without machines."""
    ordered_at = orders.destroy_ordered_at
    return ordered_at is not None and (
        one.swept_at >= ordered_at and one.complete and one.machines == 0
    )


def _due_at(one: SweptRegion, orders: SweepOrders) -> datetime:
    """When the region is to be looked at; its machines are listed first.

    Under an order to end everything a look counts only once the region shows no machine.
    """
    if orders.destroy_ordered_at is not None:
        if not _is_empty(one, orders):
            return one.swept_at + _LOOK
        again = one.remains_at is not None and one.remains_at >= orders.destroy_ordered_at
        return one.remains_at + _AGAIN if again and one.remains_at else one.swept_at
    if one.remains_at is None:
        return one.swept_at
    if orders.asked_at is not None and one.remains_at < orders.asked_at <= one.swept_at:
        return one.swept_at
    return one.remains_at + _LOOK


def _seen_now(
    one: Leftover, before: dict[tuple[str, str], SeenLeftover], asked_at: datetime
) -> SeenLeftover:
    """With the instant since when it is idle, which is that of an earlier look."""
    earlier = before.get((one.kind, one.id))
    since = None if earlier is None else earlier.idle_since_at
    return SeenLeftover(
        one.kind, one.id, one.note, (since or asked_at) if one.idle else None, one.microusd_per_day
    )
