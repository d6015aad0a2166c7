"""What in the file of contract prices is for no machine that is rented here.

A misspelt machine type changes nothing, and nobody would see why. Not here: reading the file
(`contract_file`), or what its prices do (`app.domain.launch_limits`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from app.adapters.providers.machine_catalog import CATALOG_PROVIDERS, load_catalog
from app.domain.launch_limits.contract_prices import ContractPrices, RentedMachines
from app.domain.units.errors import InvalidValue


class RentingSettings(Protocol):
    """The part of `Settings` that says what is rented where."""

    @property
    def active_providers(self) -> tuple[str, ...]:
        """The clouds that machines are rented at."""
        ...

    @property
    def aws_regions(self) -> tuple[str, ...]:
        """Of AWS."""
        ...

    @property
    def gcp_regions(self) -> tuple[str, ...]:
        """Of GCP."""
        ...

    @property
    def state_dir(self) -> Path:
        """Where newer catalogs are."""
        ...

    @property
    def contract_prices(self) -> ContractPrices:
        """Those of the file."""
        ...


def contract_warnings(settings: RentingSettings) -> tuple[str, ...]:
    """A sentence for each entry of the file that no machine matches; asks no cloud."""
    regions = {"aws": settings.aws_regions, "gcp": settings.gcp_regions}
    rented = {
        cloud: RentedMachines(
            _types(cloud, settings.state_dir) if cloud in CATALOG_PROVIDERS else None,
            frozenset(regions[cloud]) if cloud in regions else None,
        )
        for cloud in settings.active_providers
    }
    return tuple(
        f"LOWTIDE_CONTRACT_PRICES: {sentence}"
        for sentence in settings.contract_prices.unmatched(rented)
    )


def _types(cloud: str, state_dir: Path) -> frozenset[str] | None:
    """The known machine types; None where the catalog is damaged, which others tell."""
    try:
        return frozenset(one.name for one in load_catalog(cloud, state_dir).types)
    except (InvalidValue, OSError):
        return None
