"""Which machine types, and which attached GPUs, each configured zone has.

Not here: what a type carries (the machine catalog), or its price.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from app.adapters.providers.gcp.client.compute_api import Deadline
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.zones.zone_lists import (
    ACCELERATORS,
    EVERYWHERE,
    MACHINE_TYPES,
    ZoneListing,
    ZoneLists,
)
from app.domain.market.machine_catalog import MachineCatalog

_SERIES: Final = re.compile(r"^[a-z0-9]+")


def read_zones_by_type(
    lists: ZoneLists,
    deadline: Deadline,
    settings: GcpSettings,
    catalog: MachineCatalog,
    known: Mapping[str, tuple[str, ...]],
) -> dict[str, tuple[str, ...]]:
    """Our type's name -> the configured zones that have it, sorted.

    known: what was read before, which still counts for a zone that does not answer. Raises
    ProviderError.
    """
    series = sorted({match[0] for one in catalog.types if (match := _SERIES.match(one.name))})
    wanted = f'name eq "({"|".join(series)})-.*"'
    type_listing = lists.read(deadline, MACHINE_TYPES, wanted, settings.regions)
    gpu_listing = lists.read(deadline, ACCELERATORS, 'name eq "nvidia-.*"', settings.regions)
    types, gpus = _zones_by_name(type_listing), _zones_by_name(gpu_listing)
    silent = type_listing.silent | gpu_listing.silent
    found = {}
    for one in catalog.types:
        zones = types.get(one.base_type or one.name, set())
        if one.accelerator:
            zones = zones & gpus.get(one.accelerator, set())
        before = known.get(one.name, ())
        zones = zones | {zone for zone in before if zone in silent or EVERYWHERE in silent}
        allowed = tuple(sorted(zone for zone in zones if settings.allows(zone)))
        if allowed:
            found[one.name] = allowed
    return found


def _zones_by_name(listing: ZoneListing) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for zone, one in listing.items:
        found.setdefault(one.name, set()).add(zone)
    return found


def configured_zones(
    lists: ZoneLists, deadline: Deadline, settings: GcpSettings
) -> tuple[str, ...]:
    """The zones where machines may be rented, sorted. Raises ProviderError."""
    if settings.zones:
        return tuple(sorted(settings.zones))
    return tuple(zone for zone in lists.zones(deadline) if settings.allows(zone))
