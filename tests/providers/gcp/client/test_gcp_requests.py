"""The fake refuses what Compute Engine refuses: one request for each rule that it knows.

Each is a good request of the product's with one thing changed, so that it is that thing alone
which is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import requests

from app.domain.market.offer import Market
from app.ports.cloud_provider import RefusalKind
from tests.providers.gcp.gcp_under_test import a_pool, an_order, open_provider
from tests.support.gce.gce_fake import FakeGce

ONE, MANY = "instances", "bulkInsert"
Change = Callable[[Any], Any]


def good_request(gce: FakeGce, noun: str) -> tuple[str, Any]:
    """What the product asks for: one machine, or a gang; its VMs are forgotten again."""
    gce.engine.world.machine_types = ("a2-highgpu-1g", "a3-highgpu-8g", "n1-standard-8")
    order = an_order(count=1 if noun == ONE else 2)
    assert open_provider(gce).launch(order).refused == ()
    path, body = next(one for one in gce.bodies if one[0].endswith(noun))
    gce.engine.live.clear()
    gce.engine.disks.clear()
    return path, copy.deepcopy(body)


def asked(gce: FakeGce, path: str, body: Any, request_id: str = "") -> requests.Response:
    query = {"requestId": request_id} if request_id else {}
    return requests.post(f"{gce.endpoint}{path}", json=body, params=query, timeout=30)


def at(*keys: Any, to: Any) -> Change:
    """Sets a value deep in the body."""

    def change(body: Any) -> None:
        for key in keys[:-1]:
            body = body[key]
        body[keys[-1]] = to

    return change


def without(*keys: Any) -> Change:
    """Takes a value away."""

    def change(body: Any) -> None:
        for key in keys[:-1]:
            body = body[key]
        del body[keys[-1]]

    return change


DISK = ("disks", 0, "initializeParams")
FULL = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a/"
BAD_INSERTS: dict[str, tuple[Change, str]] = {
    "unknown field": (at("colour", to="red"), "colour"),
    "wrong type": (at("scheduling", "automaticRestart", to="perhaps"), "automaticRestart"),
    "name with capitals": (at("name", to="Lt-1"), "resource.name"),
    "name of 64": (at("name", to="a" * 64), "resource.name"),
    "name that ends in a dash": (at("name", to="lt-"), "resource.name"),
    "machine type by name": (at("machineType", to="a2-highgpu-1g"), "machineType"),
    "disk type by name": (at(*DISK, "diskType", to="pd-balanced"), "diskType"),
    "disk that the series lacks": (
        at(*DISK, "diskType", to="zones/us-central1-a/diskTypes/hyperdisk-balanced"),
        "hyperdisk-balanced disk type cannot be used by a2-highgpu-1g machine type.",
    ),
    "disk smaller than its image": (at(*DISK, "diskSizeGb", to="20"), "image size"),
    "no boot disk": (at("disks", 0, "boot", to=False), "boot disk"),
    "image by name": (at(*DISK, "sourceImage", to="ubuntu"), "sourceImage"),
    "label key with a colon": (at("labels", "lowtide:job", to="x"), "labels"),
    "label value with capitals": (at("labels", "lowtide_job", to="Job"), "labels"),
    "label value of 64": (at("labels", "lowtide_job", to="x" * 64), "labels"),
    "65 labels": (at("labels", to={f"k{n}": "v" for n in range(65)}), "64 labels"),
    "disk label": (at(*DISK, "labels", to={"A": "b"}), "labels"),
    "metadata above 256 KiB": (
        at("metadata", "items", 0, "value", to="x" * 262_145),
        "longer than 262144",
    ),
    "metadata key": (at("metadata", "items", 0, "key", to="start up"), "metadata"),
    "metadata above 512 KB": (
        at("metadata", "items", to=[{"key": f"k{n}", "value": "x" * 262_144} for n in range(3)]),
        "Larger",
    ),
    "network tag": (at("tags", "items", to=["Low_tide"]), "tags"),
    "two accounts": (at("serviceAccounts", to=[{"email": "a"}, {"email": "b"}]), "one account"),
    "run of 29 s": (at("scheduling", "maxRunDuration", "seconds", to="29"), "maxRunDuration"),
    "run of 121 days": (
        at("scheduling", "maxRunDuration", "seconds", to=str(121 * 86_400)),
        "maxRunDuration",
    ),
    "run limit without action": (
        without("scheduling", "instanceTerminationAction"),
        "instanceTerminationAction is required",
    ),
    "unknown model": (at("scheduling", "provisioningModel", to="CHEAP"), "provisioningModel"),
    "spot that restarts": (at("scheduling", "automaticRestart", to=True), "automaticRestart"),
    "GPU that migrates": (
        at("scheduling", "onHostMaintenance", to="MIGRATE"),
        "onHostMaintenance",
    ),
    "notice of 60 s": (
        at("scheduling", "preemptionNoticeDuration", to={"seconds": "60"}),
        "preemptionNoticeDuration",
    ),
    "notice without spot": (
        at("scheduling", "provisioningModel", to="STANDARD"),
        "preemptionNoticeDuration",
    ),
    "no interface": (at("networkInterfaces", to=[]), "network interface"),
    "network by name": (at("networkInterfaces", 0, "network", to="default"), "network"),
    "unknown interface": (at("networkInterfaces", 0, "nicType", to="E1000"), "nicType"),
    "two in one network": (
        at("networkInterfaces", to=[{"network": "global/networks/default"}] * 2),
        "unique networks",
    ),
    "too many interfaces": (
        at("networkInterfaces", to=[{"network": f"global/networks/n{n}"} for n in range(2)]),
        "Too many",
    ),
    "VirtIO on A3": (
        lambda body: (
            at("machineType", to="zones/us-central1-a/machineTypes/a3-highgpu-8g")(body),
            without("networkInterfaces", 0, "nicType")(body),
        ),
        "[a3-highgpu-8g, VIRTIO_NET] features are not compatible for creating instance.",
    ),
    "GPU beside GPUs": (
        at(
            "guestAccelerators",
            to=[{"acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4"}],
        ),
        "[a2-highgpu-1g, nvidia-tesla-t4] features are not compatible",
    ),
}
PROPERTIES = "instanceProperties"
BAD_BULKS: dict[str, tuple[Change, str]] = {
    "policy by URL": (
        at(PROPERTIES, "resourcePolicies", 0, to="projects/p/regions/r/resourcePolicies/x"),
        "name, not a URL",
    ),
    "machine type by URL": (
        at(PROPERTIES, "machineType", to=f"{FULL}machineTypes/a2-highgpu-1g"),
        "machineType",
    ),
    "disk type by URL": (
        at(PROPERTIES, *DISK, "diskType", to=f"{FULL}diskTypes/pd-balanced"),
        "diskType",
    ),
    "policy on N1": (
        at(PROPERTIES, "machineType", to="n1-standard-8"),
        "compact placement policy does not support",
    ),
    "fewer names than machines": (at("count", to="3"), "name each instance"),
    "more at least than at most": (at("minCount", to="3"), "minCount"),
    "no machine": (at("count", to="0"), "count"),
    "name of a machine": (at("perInstanceProperties", to={"A": {}, "b": {}}), "regex"),
    "zone by name": (at("locationPolicy", "locations", to={"us-central1-a": {}}), "locations"),
    "unknown shape": (at("locationPolicy", "targetShape", to="NEAR"), "targetShape"),
    "unknown preference": (
        at("locationPolicy", "locations", to={"zones/us-central1-a": {"preference": "MAYBE"}}),
        "preference",
    ),
}


@pytest.mark.parametrize("rule", BAD_INSERTS)
def test_a_bad_insert_is_refused(gce: FakeGce, rule: str) -> None:
    refused_for(gce, ONE, *BAD_INSERTS[rule])


@pytest.mark.parametrize("rule", BAD_BULKS)
def test_a_bad_bulk_insert_is_refused(gce: FakeGce, rule: str) -> None:
    refused_for(gce, MANY, *BAD_BULKS[rule])


def refused_for(gce: FakeGce, noun: str, change: Change, said: str) -> None:
    path, body = good_request(gce, noun)
    change(body)
    answer = asked(gce, path, body)
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["error"]["message"]
    assert gce.engine.live == {}


@pytest.mark.parametrize("noun", [ONE, MANY])
def test_the_same_request_is_good_where_nothing_is_changed(gce: FakeGce, noun: str) -> None:
    path, body = good_request(gce, noun)
    assert asked(gce, path, body).status_code == 200


@pytest.mark.parametrize("bad", ["1", "00000000-0000-0000-0000-000000000000"])
def test_a_request_id_is_a_uuid_and_not_zero(gce: FakeGce, bad: str) -> None:
    path, body = good_request(gce, ONE)
    assert "requestId" in asked(gce, path, body, bad).json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "Lt"}, "resource.name"),
        ({"name": "lt", "groupPlacementPolicy": {"collocation": "NEAR"}}, "collocation"),
        ({"name": "lt", "labels": {"a": "b"}}, "labels"),
    ],
)
def test_a_bad_policy_is_refused(gce: FakeGce, body: Any, said: str) -> None:
    answer = asked(
        gce, "/compute/v1/projects/test-project/regions/us-central1/resourcePolicies", body
    )
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_the_longest_script_that_metadata_holds_is_taken_and_a_longer_one_rejected(
    gce: FakeGce,
) -> None:
    """Compute Engine's limit is 262,144 bytes a value; what is longer is the job's fault."""
    for size, accepted in ((200_000, 1), (262_144, 0)):
        order = an_order(token=f"t{size}", user_data={"BIG": "x" * size})
        result = open_provider(gce).launch(order)
        assert len(result.accepted) == accepted
        assert {one.kind for one in result.refused} <= {RefusalKind.REJECTED}


def test_every_body_that_the_product_sends_has_been_checked(gce: FakeGce) -> None:
    for market in Market:
        pools = tuple(a_pool(f"us-central1-{letter}", market) for letter in "ab")
        for count in (1, 2):
            order = an_order(*pools, count=count, token=f"{market.value}-{count}")
            assert open_provider(gce).launch(order).refused == ()
    nouns = {path.rpartition("/")[2] for path, _ in gce.bodies}
    assert nouns == {MANY, "resourcePolicies"}
