"""The provider and its price source, put together on one set of clients.

Not here: where settings, catalog, deployment id and boot script come from (`app.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.prices.price_source import AwsPriceSource
from app.adapters.providers.aws.provider import AwsProvider
from app.adapters.providers.machine_images import with_images
from app.domain.market.machine_catalog import MachineCatalog


def open_aws(
    settings: AwsSettings,
    catalog: MachineCatalog,
    *,
    deployment_id: Callable[[], str],
    render: Callable[[Mapping[str, str]], str],
    session: object = None,
) -> tuple[AwsProvider, AwsPriceSource]:
    """Both, without a call to AWS: the first use signs in. `render` raises ValueError.

    session: boto3's, where it is not to be made from the environment.
    """
    provider = AwsProvider(
        settings, deployment_id=deployment_id, render=render, catalog=catalog, session=session
    )
    bootable = with_images(catalog, settings.image_for)
    prices = AwsPriceSource(settings, provider.clients, provider.facts, bootable)
    return provider, prices
