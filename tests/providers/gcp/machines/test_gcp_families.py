"""What each series of machines needs: its disk, its interfaces, its policy; and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.machines.machine_fittings import as_wired
from app.adapters.providers.gcp.prices.price_source import GcpPriceSource
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.lifecycle.launch_errors import covers, rule_of
from app.domain.market.machine_catalog import MachineType
from app.domain.market.offer import Market
from app.ports.cloud_provider import RefusalKind, RefusalScope
from tests.providers.gcp.gcp_under_test import a_pool, an_order, gcp_settings, open_provider
from tests.support.gce.gce_fake import FakeGce, LineFault
from tests.support.gce.gce_fake_families import family_of, nic_limits

TYPES = shipped_catalog("gcp").types
WIRED = {
    "gpu_subnetworks": tuple(f"regions/{{region}}/subnetworks/gpu-{n}" for n in range(8)),
    "rdma_subnetworks": tuple(f"regions/{{region}}/subnetworks/rdma-{n}" for n in range(8)),
}


def sell(gce: FakeGce, *kinds: MachineType) -> None:
    """The fake has these types, and room for them."""
    gce.engine.world.machine_types = tuple(one.base_type or one.name for one in kinds)


def a_type(name: str) -> MachineType:
    found = shipped_catalog("gcp").get(name)
    assert found is not None
    return found


@pytest.mark.full
@pytest.mark.parametrize(
    ("wired", "external_ip"),
    [
        (True, True),
        (False, False),
        (False, True),
        (True, False),
    ],
)
def test_every_type_starts_alone_and_in_a_gang(
    gce: FakeGce, wired: bool, external_ip: bool
) -> None:
    sell(gce, *TYPES)
    gce.engine.world.room = 1_000
    changes: dict[str, Any] = WIRED if wired else {}
    # No shipped image has a driver for these; whoever wants them names one.
    images = tuple((gpu, "projects/p/global/images/family/volta") for gpu in ("V100", "P100"))
    provider = open_provider(gce, external_ip=external_ip, images=images, **changes)
    for number, kind in enumerate(TYPES):
        for count in (1, 2):
            order = an_order(a_pool(kind=kind.name), count=count, token=f"t{number}-{count}")
            result = provider.launch(order)
            assert len(result.accepted) == count, (kind.name, result.refused)
            assert [one.note for one in result.accepted] == [""] * count, kind.name
        vm = gce.engine.all[-1]
        assert ("resourcePolicies" in vm.body) is family_of(kind.base_type or kind.name).compact
        first, *others = vm.body["networkInterfaces"]
        assert ("accessConfigs" in first) is external_ip
        assert not any("accessConfigs" in one for one in others)
        assert len(others) == (kind.extra_nics + kind.rdma_nics if wired else 0), kind.name


def test_the_catalogue_and_the_documents_agree() -> None:
    metrics = {metric.name for metric in compute_v1.Quota.Metric}
    for kind in TYPES:
        family, most = family_of(kind.base_type or kind.name), nic_limits(kind.name)
        assert set(kind.boot_disks) <= family.disks, kind.name
        assert kind.nic == "GVNIC" or not family.gvnic_only, kind.name
        assert 1 + kind.extra_nics <= most["GVNIC"], kind.name
        assert kind.rdma_nics <= most.get("MRDMA", 0), kind.name
        assert kind.compact_placement is family.compact, kind.name
        if kind.gpu_quota:
            assert f"PREEMPTIBLE_{kind.gpu_quota}" in metrics, kind.name
    untold = {kind.gpu for kind in TYPES if not kind.gpu_quota}
    assert untold == {"H100", "H200", "B200", "RTX-PRO-6000"}, "counted by family elsewhere"


def test_a_quota_rests_the_types_whose_gpus_it_counts_and_no_others() -> None:
    """T4, V100 and P100 of N1 are counted apart, as are the two A100s, and Mega and Ultra of A3."""
    quotas = {a_pool(kind=kind.name): kind.hardware.quota for kind in TYPES}
    counted = {kind.name: (kind.gpu_quota or kind.name.rsplit("-", 1)[0]) for kind in TYPES}
    for one in TYPES:
        refused = a_pool(kind=one.name)
        rested = {
            other.name
            for other in TYPES
            if covers(
                refused,
                RefusalScope.FAMILY,
                a_pool(kind=other.name),
                both_markets=False,
                quotas=quotas,
            )
        }
        alike = {name for name, quota in counted.items() if quota == counted[one.name]}
        assert rested == alike, one.name


@pytest.mark.parametrize(
    ("name", "set_to", "gets"),
    [
        ("a4-highgpu-8g", "pd-balanced", "hyperdisk-balanced"),
        ("a3-ultragpu-8g", "pd-ssd", "hyperdisk-balanced"),
        ("g4-standard-48", "pd-standard", "hyperdisk-balanced"),
        ("g2-standard-8", "pd-standard", "pd-balanced"),
        ("g2-standard-8", "pd-ssd", "pd-ssd"),
        ("a2-highgpu-1g", "hyperdisk-balanced", "pd-balanced"),
        ("n1-standard-8-t4x1", "hyperdisk-balanced", "pd-balanced"),
    ],
)
def test_a_machine_boots_from_a_disk_that_its_type_takes(
    gce: FakeGce, name: str, set_to: str, gets: str
) -> None:
    sell(gce, a_type(name))
    (machine,) = open_provider(gce, disk_type=set_to).launch(an_order(a_pool(kind=name))).accepted
    (vm,) = gce.engine.all
    assert machine.pool.instance_type == name
    assert vm.body["disks"][0]["initializeParams"]["diskType"].endswith(f"/{gets}")


def test_the_price_of_the_disk_is_that_of_the_disk_it_gets(gce: FakeGce) -> None:
    sell(gce, a_type("a2-highgpu-1g"), a_type("a3-ultragpu-8g"))
    api = ComputeApi(gcp_settings(gce, disk_type="pd-ssd"), AnonymousCredentials())
    found = {offer.pool: offer for offer in GcpPriceSource(api, shipped_catalog("gcp")).offers()}
    prices = []
    for name in ("a2-highgpu-1g", "a3-ultragpu-8g"):
        attached = found[a_pool(kind=name, market=Market.ON_DEMAND)].attachments
        assert attached is not None
        prices.append(attached.disk_microusd_per_gb_month)
    assert prices == [170_000, 80_000]


@pytest.mark.parametrize(
    ("name", "alone", "together", "network"),
    [
        ("a3-highgpu-8g", 200, 1_000, "tcpx"),
        ("a3-megagpu-8g", 200, 1_800, "tcpxo"),
        ("a3-ultragpu-8g", 200, 3_600, "rdma"),
        ("a4-highgpu-8g", 200, 3_600, "rdma"),
        ("a2-highgpu-8g", 100, 100, ""),
    ],
)
def test_a_fast_network_is_promised_only_where_its_networks_are_set(
    gce: FakeGce, name: str, alone: float, together: float, network: str
) -> None:
    kind, plain, wired = a_type(name), gcp_settings(gce), gcp_settings(gce, **WIRED)
    assert as_wired(plain, kind).network_gbps == alone
    assert as_wired(plain, kind).hardware.fast_network == ""
    assert as_wired(wired, kind).network_gbps == together
    assert as_wired(wired, kind).hardware.fast_network == network
    short = gcp_settings(gce, **{**WIRED, "gpu_subnetworks": ()})
    assert as_wired(short, kind).hardware.fast_network == ""
    sell(gce, kind)
    for settings, expected in ((plain, ""), (wired, network)):
        api = ComputeApi(settings, AnonymousCredentials())
        offers = GcpPriceSource(api, shipped_catalog("gcp")).offers()
        assert {one.hardware.fast_network for one in offers} <= {expected}


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (400, "badRequest", "pd-balanced disk type cannot be used by a2-highgpu-1g machine type."),
        (
            400,
            "badRequest",
            "[VIRTIO_NET, a2-highgpu-1g] features are not compatible for creating instance.",
        ),
        (400, "invalid", "IPv6 is not supported by the machine type a2-highgpu-1g."),
        (400, "invalid", "Machine type a2-highgpu-1g does not support this, unsupported"),
    ],
)
def test_a_feature_that_a_type_cannot_have_leaves_that_type_alone_and_nothing_else(
    gce: FakeGce, status: int, reason: str, message: str
) -> None:
    other = a_pool(kind="g2-standard-8")
    gce.faults.append(LineFault(r"POST .*/instances", 1, status, reason, message))
    result = open_provider(gce).launch(an_order(a_pool(), other))
    assert [one.pool for one in result.accepted] == [other]
    (refused,) = result.refused
    assert (refused.kind, refused.scope) == (RefusalKind.UNSUPPORTED, RefusalScope.POOL)
    assert refused.pool == a_pool()
    rule = rule_of(refused.kind)
    assert not covers(a_pool(), RefusalScope.POOL, other, both_markets=rule.both_markets)


@pytest.mark.parametrize("code", ["UNSUPPORTED_OPERATION", "ZONE_RESOURCE_POOL_EXHAUSTED"])
def test_an_operation_that_names_an_incompatible_feature_is_no_lack_of_capacity(
    gce: FakeGce, code: str
) -> None:
    text = "[pd-balanced, a2-highgpu-1g] features are not compatible for creating instance."
    gce.engine.creation_errors.append((code, text))
    (refused,) = open_provider(gce).launch(an_order()).refused
    assert (refused.kind, refused.scope) == (RefusalKind.UNSUPPORTED, RefusalScope.POOL)


def test_a_wrong_image_is_still_rejected_for_the_region(gce: FakeGce) -> None:
    text = "Invalid value for field 'resource.disks[0].initializeParams.sourceImage': 'none'."
    gce.faults.append(LineFault(r"POST .*/instances", 1, 400, "invalid", text))
    (refused,) = open_provider(gce).launch(an_order()).refused
    assert (refused.kind, refused.scope) == (RefusalKind.REJECTED, RefusalScope.REGION)
