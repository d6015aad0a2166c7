"""The AWS provider on the fake account, as the worker would make it. Not here: the account."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import boto3

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.provider import AwsProvider
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import LaunchOrder, PoolBid
from tests.support.aws.aws_fake import IMAGE_PARAMETER, AwsFake
from tests.support.aws.aws_requests import check_requests_of
from tests.support.aws.aws_world import REGIONS

DEPLOYMENT = "0190aaaa-bbbb-7ccc-8ddd-eeeeffff0001"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent/config",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
}


def a_script(user_data: Mapping[str, str]) -> str:
    """Some user data, as the boot script would be."""
    return "#!/bin/sh\n" + "".join(f"{key}={value}\n" for key, value in sorted(user_data.items()))


def settings_for(fake: AwsFake, **more: Any) -> AwsSettings:
    given: dict[str, Any] = {
        "regions": REGIONS,
        "image": IMAGE_PARAMETER,
        "endpoint_url": fake.url,
        "queue_url": fake.queue_url,
    }
    given |= more
    url = given.pop("queue_url")
    given.setdefault("queue_urls", () if url is None else (url,))
    return AwsSettings(**given)


@functools.cache
def shared_session() -> Any:
    """One for all tests: it keeps EC2's large model, which takes half a second to read.

    What its clients send is checked against AWS's own models.
    """
    session = boto3.Session(
        aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    )
    check_requests_of(session)
    return session


def provider_for(fake: AwsFake, **more: Any) -> AwsProvider:
    return AwsProvider(
        settings_for(fake, **more),
        deployment_id=lambda: DEPLOYMENT,
        render=a_script,
        catalog=shipped_catalog("aws"),
        session=shared_session(),
    )


def aws_pool(
    zone: str = "us-east-1a", instance_type: str = "g5.xlarge", market: Market = Market.SPOT
) -> Pool:
    return Pool("aws", zone[:-1], zone, instance_type, market)


def aws_order(*pools: Pool, count: int = 1, token: str = "token-1", **more: Any) -> LaunchOrder:
    bids = tuple(PoolBid(pool, None) for pool in pools or (aws_pool(),))
    given: dict[str, Any] = {
        "client_token": token,
        "count": count,
        "min_count": count,
        "market": bids[0].pool.market,
        "bids": bids,
        "user_data": {"LOWTIDE_LAUNCH_TOKEN": "one-time"},
        "tags": {"lowtide:job": "j-1", "lowtide:launch": "l-1"},
    }
    return LaunchOrder(**{**given, **more})


def a_volume(fake: AwsFake, deployment: str = DEPLOYMENT, region: str = "us-east-1") -> str:
    """A volume of 200 GB that no machine uses; returns its id."""
    records = fake.records(region)
    volume = records.create_volume(size=200, zone_name=f"{region}a", volume_type="gp3")
    volume.add_tags({"lowtide:deployment": deployment})
    return str(volume.id)
