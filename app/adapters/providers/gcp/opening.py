"""The provider and its price source, put together on one set of clients.

Not here: where settings, catalog, deployment id and boot script come from (`app.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Callable

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.prices.price_source import GcpPriceSource
from app.adapters.providers.gcp.provider import GcpProvider
from app.adapters.providers.machine_images import with_images
from app.domain.market.machine_catalog import MachineCatalog


def open_gcp(
    settings: GcpSettings,
    catalog: MachineCatalog,
    *,
    deployment_id: Callable[[], str],
    render: Callable[[dict[str, str]], str],
) -> tuple[GcpProvider, GcpPriceSource]:
    """Both, without a call to Google: the first use signs in. `render` raises ValueError."""
    api = ComputeApi(settings)
    prices = GcpPriceSource(api, with_images(catalog, settings.image_for))
    provider = GcpProvider(
        settings,
        api,
        catalog,
        deployment_id=deployment_id,
        render=render,
        price_of=prices.price_of,
    )
    return provider, prices
