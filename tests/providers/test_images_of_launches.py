"""Machines are launched with the image whose driver knows their GPU, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.adapters.providers.aws.opening import open_aws
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.offer import Pool
from app.ports.cloud_provider import LaunchOrder, PoolBid, ProviderError, RefusalKind
from tests.providers.gcp.gcp_under_test import a_pool, open_provider
from tests.support.aws_fake import AwsFake, open_aws_fake
from tests.support.aws_parts import aws_order, aws_pool, provider_for, settings_for, shared_session
from tests.support.aws_world import IMAGE
from tests.support.gce_fake import open_fake_gce

VOLTA = "p3.2xlarge"


@pytest.fixture
def fake() -> Iterator[AwsFake]:
    with open_aws_fake() as running:
        for zone in ("us-east-1a", "us-east-1b"):
            running.world.offered.add((VOLTA, zone))
        yield running


def test_a_gpu_without_an_image_is_neither_offered_nor_launched_on_aws(fake: AwsFake):
    def offered(**changes: object) -> set[str]:
        _, prices = open_aws(
            settings_for(fake, regions=("us-east-1",), **changes),
            shipped_catalog("aws"),
            deployment_id=lambda: "d",
            render=lambda user_data: "",
            session=shared_session(),
        )
        return {one.name for one in prices._catalog.types}

    assert VOLTA not in offered()
    assert VOLTA in offered(images=(("V100", IMAGE),))
    result = provider_for(fake).launch(aws_order(aws_pool(instance_type=VOLTA)))
    assert [one.kind for one in result.refused] == [RefusalKind.UNSUPPORTED]
    assert "no image knows the GPU of p3.2xlarge" in result.refused[0].message
    assert fake.world.launches == {}


def test_each_gpu_s_machines_boot_their_own_image_on_aws(fake: AwsFake):
    provider = provider_for(fake, images=(("H100", "ami-00000000000000000"),))
    provider.launch(aws_order(aws_pool()))
    (template,) = fake.records("us-east-1").describe_launch_templates()
    assert template.latest_version().data["ImageId"] == IMAGE
    # The other image is asked for, and is not there.
    with pytest.raises(ProviderError, match="ami-00000000000000000"):
        provider.launch(aws_order(aws_pool(instance_type="p5.48xlarge"), token="token-2"))


def _order(pool: Pool) -> LaunchOrder:
    return LaunchOrder("lowtide-1", 1, 1, pool.market, (PoolBid(pool, None),))


def test_each_gpu_s_machines_boot_their_own_image_on_gcp():
    with open_fake_gce() as gce:
        own = "projects/p/global/images/family/own"
        provider = open_provider(gce, images=(("A100", own),))
        assert provider.launch(_order(a_pool())).accepted
        (vm,) = gce.engine.live.values()
        assert vm.body["disks"][0]["initializeParams"]["sourceImage"] == own
