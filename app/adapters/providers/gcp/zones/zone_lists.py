"""Lists over zones: all of them in one call, or one by one where that call fails.

A zone that fails makes an aggregated list fail for the whole project (its REST reference,
`returnPartialSuccess`: false by default, and not a field of this client). Asked one by one, only
the places that really do not answer are unknown. Not here: what the items mean.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from app.adapters.providers.gcp.client.compute_api import (
    ApiLost,
    ApiRefusal,
    ApiUnreadable,
    ComputeApi,
    Deadline,
    translated,
)
from app.adapters.providers.gcp.client.gcp_settings import region_of
from app.adapters.providers.gcp.client.parallel_calls import in_parallel
from app.adapters.providers.gcp.zones.machine_view import last_part
from app.ports.cloud_provider import ProviderError

_NO_RESULTS: Final = "NO_RESULTS_ON_PAGE"
_SERVER_ERRORS: Final = 500
EVERYWHERE: Final = ""
"""A silent place that is not named."""


@dataclass(frozen=True)
class ZoneListing:
    """What zones hold, as (zone, item), and the places that did not answer."""

    items: tuple[tuple[str, Any], ...]
    silent: frozenset[str]

    def heard(self, region: str) -> bool:
        """Whether every zone of the region has answered."""
        return not any(place == EVERYWHERE or region_of(place) == region for place in self.silent)


@dataclass(frozen=True)
class ListedNoun:
    """A resource that has both lists: its clients, and what a scope calls its items."""

    aggregated: str
    zonal: str
    items: str


INSTANCES: Final = ListedNoun("InstancesClient", "InstancesClient", "instances")
DISKS: Final = ListedNoun("DisksClient", "DisksClient", "disks")
MACHINE_TYPES: Final = ListedNoun("MachineTypesClient", "MachineTypesClient", "machine_types")
ACCELERATORS: Final = ListedNoun(
    "AcceleratorTypesClient", "AcceleratorTypesClient", "accelerator_types"
)
OPERATIONS: Final = ListedNoun("GlobalOperationsClient", "ZoneOperationsClient", "operations")


class ZoneLists:
    """The lists of one project; safe to share between threads."""

    def __init__(self, api: ComputeApi) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._zones: tuple[str, ...] = ()

    def read(
        self,
        deadline: Deadline,
        noun: ListedNoun,
        wanted: str = "",
        regions: Collection[str] | None = None,
    ) -> ZoneListing:
        """Every item that matches the filter, of `regions` at least; None: of those that are set.

        Raises ProviderError where nothing can be said of any zone.
        """
        fields = {"filter": wanted} if wanted else {}
        items: list[tuple[str, Any]] = []
        silent: set[str] = set()
        try:
            for page in self._api.pages(noun.aggregated, deadline, **fields):
                silent |= {last_part(place) for place in page.unreachables}
                if page.warning.code:
                    silent.add(EVERYWHERE)
                for scope, held in page.items.items():
                    zone = last_part(scope)
                    if held.warning.code and held.warning.code != _NO_RESULTS:
                        silent.add(zone)
                    items += [(zone, one) for one in getattr(held, noun.items)]
        except ApiUnreadable:
            silent.add(EVERYWHERE)
        except ApiLost as error:
            if not items:
                return self._one_by_one(deadline, noun, fields, regions, error)
            silent.add(EVERYWHERE)
        except ApiRefusal as error:
            if error.http_status < _SERVER_ERRORS:
                raise
            return self._one_by_one(deadline, noun, fields, regions, error)
        return ZoneListing(tuple(items), frozenset(silent))

    def zones(self, deadline: Deadline) -> tuple[str, ...]:
        """Every zone of the project, sorted; read once. Raises ProviderError."""
        with self._lock:
            known = self._zones
        if not known:
            with translated("list of ZonesClient"):
                listed = self._api.read("ZonesClient", "list", deadline)
                known = tuple(sorted(one.name for one in listed))
            with self._lock:
                self._zones = known
        return known

    def _one_by_one(
        self,
        deadline: Deadline,
        noun: ListedNoun,
        fields: dict[str, str],
        regions: Collection[str] | None,
        refused: ProviderError,
    ) -> ZoneListing:
        """Zones of the regions; others are silent, as is one that does not answer."""
        looked_at = set(self._api.settings.regions if regions is None else regions)
        zones = [zone for zone in self.zones(deadline) if region_of(zone) in looked_at]
        items: list[tuple[str, Any]] = []
        silent: set[str] = set() if regions is not None else {EVERYWHERE}

        def read(zone: str) -> list[Any] | None:
            try:
                listed = self._api.read(noun.zonal, "list", deadline, zone=zone, **fields)
                with translated(f"list of {noun.zonal}"):
                    return list(listed)
            except ProviderError:
                return None

        for zone, found in zip(zones, in_parallel(read, zones), strict=True):
            if found is None:
                silent.add(zone)
            else:
                items += [(zone, one) for one in found]
        if len(silent - {EVERYWHERE}) == len(zones):
            raise refused
        return ZoneListing(tuple(items), frozenset(silent))
