"""Which machine types, and which attached GPUs, each configured zone has.

Not here: what a type carries (the machine catalog), or its price.
"""

from __future__ import annotations

import re
from typing import Final

from app.adapters.providers.gcp.compute_api import ComputeApi, Deadline, translated
from app.adapters.providers.gcp.machine_view import last_part
from app.domain.machine_catalog import MachineCatalog

_SERIES: Final = re.compile(r"^[a-z0-9]+")


def read_zones_by_type(api: ComputeApi, catalog: MachineCatalog) -> dict[str, tuple[str, ...]]:
    """Our type's name -> the configured zones that have it, sorted. Raises ProviderError."""
    series = sorted({match[0] for one in catalog.types if (match := _SERIES.match(one.name))})
    types = _zones_by_name(api, "MachineTypesClient", f'name eq "({"|".join(series)})-.*"')
    accelerators = _zones_by_name(api, "AcceleratorTypesClient", 'name eq "nvidia-.*"')
    found = {}
    for one in catalog.types:
        zones = types.get(one.base_type or one.name, set())
        if one.accelerator:
            zones = zones & accelerators.get(one.accelerator, set())
        allowed = tuple(sorted(zone for zone in zones if api.settings.allows(zone)))
        if allowed:
            found[one.name] = allowed
    return found


def _zones_by_name(api: ComputeApi, client: str, wanted: str) -> dict[str, set[str]]:
    noun = "machine_types" if client.startswith("Machine") else "accelerator_types"
    found: dict[str, set[str]] = {}
    for page in api.pages(client, api.deadline(), filter=wanted):
        for scope, held in page.items.items():
            for one in getattr(held, noun):
                found.setdefault(one.name, set()).add(last_part(scope))
    return found


def configured_zones(api: ComputeApi, deadline: Deadline) -> tuple[str, ...]:
    """The zones where machines may be rented, sorted. Raises ProviderError."""
    if api.settings.zones:
        return tuple(sorted(api.settings.zones))
    with translated("list of ZonesClient"):
        names = [one.name for one in api.read("ZonesClient", "list", deadline)]
    return tuple(sorted(name for name in names if api.settings.allows(name)))
