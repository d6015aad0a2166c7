"""The machine types that the configured zones really have, for a fresh catalog.

What the API tells (cores, memory, GPUs) replaces what was shipped; what it does not tell
(interconnect, network) is taken from the shipped type of the same name, or of the same series with
the most GPUs. Not here: which zone has which type (`zone_types`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.zones.machine_view import last_part
from app.domain.market.machine_catalog import MachineCatalog, MachineType


def read_offered_types(api: ComputeApi, catalog: MachineCatalog) -> tuple[MachineType, ...]:
    """Every GPU type of a configured zone whose series we know, by name. Raises ProviderError."""
    told = {}
    for page in api.pages("MachineTypesClient", api.deadline()):
        for scope, held in page.items.items():
            if api.settings.allows(last_part(scope)):
                told.update({one.name: one for one in held.machine_types})
    found = {one.name: one for one in catalog.types if one.base_type and one.base_type in told}
    for name, one in told.items():
        if not one.accelerators:
            continue
        like = catalog.get(name) or _largest_of_series(catalog, name)
        if like is not None:
            found[name] = _updated(like, name, one)
    return tuple(found[name] for name in sorted(found))


def _updated(like: MachineType, name: str, told: Any) -> MachineType:
    count = sum(one.guest_accelerator_count for one in told.accelerators)
    return replace(
        like,
        name=name,
        gpu_count=count,
        vcpus=told.guest_cpus,
        memory_gb=told.memory_mb // 1024,
    )


def _largest_of_series(catalog: MachineCatalog, name: str) -> MachineType | None:
    series = "-".join(name.split("-")[:2])
    family = [one for one in catalog.types if one.name.startswith(f"{series}-")]
    return max(family, key=lambda one: one.gpu_count, default=None)
