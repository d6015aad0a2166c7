"""Machines are launched with the image whose driver knows their GPU, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from moto.backends import get_backend

from app.adapters.providers.aws.client.aws_settings import DEFAULT_IMAGE
from app.adapters.providers.aws.opening import open_aws
from app.adapters.providers.gcp.opening import open_gcp
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.offer import Pool
from app.ports.cloud_provider import LaunchOrder, PoolBid, ProviderError, RefusalKind
from tests.providers.gcp.gcp_under_test import a_pool, gcp_settings, open_provider
from tests.support.aws.aws_fake import IMAGE_PARAMETER, AwsFake, open_aws_fake
from tests.support.aws.aws_parts import (
    aws_order,
    aws_pool,
    provider_for,
    settings_for,
    shared_session,
)
from tests.support.aws.aws_world import ACCOUNT, IMAGE
from tests.support.gce.gce_fake import open_fake_gce

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
    said = result.refused[0].message
    assert said.startswith("p3.2xlarge (V100) has no image, for the open driver")
    assert said.endswith(
        "does not know Volta, and the last image with the proprietary one is "
        "Amazon Linux 2 with Python 3.10: name one in LOWTIDE_AWS_IMAGES"
    )
    assert fake.world.launches == {}


def test_each_gpu_s_machines_boot_their_own_image_on_aws(fake: AwsFake):
    provider = provider_for(fake, images=(("H100", "ami-00000000000000000"),))
    provider.launch(aws_order(aws_pool()))
    (template,) = fake.records("us-east-1").describe_launch_templates()
    assert template.latest_version().data["ImageId"] == IMAGE
    # The other image is asked for, and is not there.
    with pytest.raises(ProviderError, match="ami-00000000000000000"):
        provider.launch(aws_order(aws_pool(instance_type="p5.48xlarge"), token="token-2"))


def test_the_default_image_is_read_from_amazon_s_public_parameter(fake: AwsFake):
    """`ssm get-parameter` on DEFAULT_IMAGE, as the DLAMI guide has it; the fake's own elsewhere."""
    provider = provider_for(fake, image=DEFAULT_IMAGE)
    with pytest.raises(ProviderError, match="base-oss-nvidia-driver-gpu-ubuntu"):
        provider.launch(aws_order(aws_pool()))
    # Only Amazon makes parameters of such a name, and so the fake's own store refuses to.
    kept = get_backend("ssm")[ACCOUNT]["us-east-1"]._parameters
    kept[DEFAULT_IMAGE] = kept[IMAGE_PARAMETER]
    provider = provider_for(fake, image=DEFAULT_IMAGE)
    assert provider.launch(aws_order(aws_pool())).accepted


def _order(pool: Pool) -> LaunchOrder:
    return LaunchOrder("lowtide-1", 1, 1, pool.market, (PoolBid(pool, None),))


def test_each_gpu_s_machines_boot_their_own_image_on_gcp():
    with open_fake_gce() as gce:
        own = "projects/p/global/images/family/own"
        provider = open_provider(gce, images=(("A100", own),))
        assert provider.launch(_order(a_pool())).accepted
        (vm,) = gce.engine.live.values()
        assert vm.body["disks"][0]["initializeParams"]["sourceImage"] == own


def test_a_gpu_without_an_image_is_neither_offered_nor_launched_on_gcp():
    with open_fake_gce() as gce:
        volta = replace(a_pool(), instance_type="n1-standard-8-v100x1")
        (refused,) = open_provider(gce).launch(_order(volta)).refused
        assert (refused.pool, refused.kind) == (volta, RefusalKind.UNSUPPORTED)
        assert "name one in LOWTIDE_GCP_IMAGES" in refused.message
        assert gce.engine.all == []
        settings = gcp_settings(gce)
        _, prices = open_gcp(
            settings, shipped_catalog("gcp"), deployment_id=lambda: "d", render=lambda data: ""
        )
        assert {one.gpu for one in prices._catalog.types}.isdisjoint({"V100", "P100"})


def test_a_gpu_without_an_image_spares_the_other_types_of_an_order_on_gcp():
    with open_fake_gce() as gce:
        gce.engine.world.room = 0
        full, volta = a_pool(), replace(a_pool(), instance_type="n1-standard-8-v100x1")
        other = a_pool(kind="g2-standard-8")
        wanted = replace(_order(full), bids=tuple(PoolBid(one, None) for one in (full, volta)))
        result = open_provider(gce).launch(wanted)
        assert [(one.pool, one.kind) for one in result.refused] == [
            (full, RefusalKind.NO_CAPACITY),
            (volta, RefusalKind.UNSUPPORTED),
        ]
        gce.engine.world.room = 1
        wanted = replace(_order(volta), bids=tuple(PoolBid(one, None) for one in (volta, other)))
        result = open_provider(gce).launch(replace(wanted, client_token="lowtide-2"))
        assert [one.pool for one in result.accepted] == [other]
        assert [one.pool for one in result.refused] == [volta]
