"""Disks and policies that outlive their machines: found by whose they are, removed when asked."""

from __future__ import annotations

import pytest

from app.ports.cloud_leftovers import CloudLeftovers, Leftover
from app.ports.cloud_provider import ProviderError
from tests.providers.gcp.gcp_under_test import DEPLOYMENT, TYPE, a_pool, an_order, open_provider
from tests.support.gce.gce_fake import FakeGce, LineFault
from tests.support.gce.gce_fake_engine import World

OURS = {"lowtide_deployment": DEPLOYMENT}
OTHERS = {"lowtide_deployment": "0190f000-0000-7000-8000-0000000000ff"}


def ids(remains: tuple[Leftover, ...]) -> list[str]:
    return [one.id for one in remains]


def test_only_our_disks_without_a_machine_are_found_and_removed(gce: FakeGce) -> None:
    provider = open_provider(gce)
    assert isinstance(provider, CloudLeftovers)
    provider.launch(an_order())
    gce.engine.add_disk("us-central1-a", "left", OURS)
    gce.engine.add_disk("us-central1-b", "of-others", OTHERS)
    gce.engine.add_disk("europe-west4-a", "elsewhere", OURS)
    (found,) = provider.list_leftovers("us-central1")
    assert (found.kind, found.id, found.idle) == ("disk", "us-central1-a/left", True)
    # 200 GB at $0.10 a month of 730 hours.
    assert found.microusd_per_day == 657_534
    assert provider.remove_leftovers((found,)) == ()
    assert provider.list_leftovers("us-central1") == ()
    assert {name for _, name in gce.engine.disks} >= {"of-others", "elsewhere"}
    assert len(gce.engine.live) == 1
    assert provider.remove_leftovers((found,)) == (), "one that is gone is no error"


def test_a_machines_own_disk_goes_with_it(gce: FakeGce) -> None:
    provider = open_provider(gce)
    (machine,) = provider.launch(an_order()).accepted
    assert len(gce.engine.disks) == 1
    provider.terminate((machine.provider_instance_id,))
    gce.engine.advance(1)
    assert gce.engine.disks == {}


def test_what_cannot_be_removed_is_told_with_its_reason(gce: FakeGce) -> None:
    provider = open_provider(gce)
    gce.engine.add_disk("us-central1-a", "left", OURS)
    found = provider.list_leftovers("us-central1")
    gce.faults.append(LineFault("DELETE .*/disks/", status=403, reason="forbidden", message="no"))
    (left,) = provider.remove_leftovers(found)
    assert left.id == "us-central1-a/left"
    assert "forbidden" in left.note
    assert ids(provider.list_leftovers("us-central1")) == ["us-central1-a/left"]


def test_a_removal_that_takes_long_is_left_for_now() -> None:
    world = World({"us-central1": ("us-central1-a",)}, (TYPE,), operation_seconds=60)
    gce = FakeGce(world)
    try:
        provider = open_provider(gce, operation_wait_seconds=0.1, regions=("us-central1",))
        gce.engine.add_disk("us-central1-a", "left", OURS)
        (left,) = provider.remove_leftovers(provider.list_leftovers("us-central1"))
        assert left.note == "is being removed"
        gce.engine.advance(61)
        assert provider.list_leftovers("us-central1") == ()
    finally:
        gce.stop()


def test_a_silent_zone_makes_the_list_unknown(gce: FakeGce) -> None:
    provider = open_provider(gce)
    gce.unreachable_zones.add("us-central1-b")
    with pytest.raises(ProviderError):
        provider.list_leftovers("us-central1")
    assert provider.list_leftovers("europe-west4") == ()


def test_a_gangs_policy_is_idle_once_its_machines_are_gone(gce: FakeGce) -> None:
    provider = open_provider(gce)
    gang = provider.launch(an_order(a_pool(kind="a3-highgpu-8g"), count=2)).accepted
    (used,) = provider.list_leftovers("us-central1")
    assert (used.kind, used.idle) == ("placement policy", False)
    # The API keeps it as long as a machine uses it.
    (kept,) = provider.remove_leftovers((used,))
    assert "being used" in kept.note
    provider.terminate(tuple(one.provider_instance_id for one in gang))
    gce.engine.advance(1)
    (idle,) = provider.list_leftovers("us-central1")
    assert idle.idle
    assert provider.remove_leftovers((idle,)) == ()
    assert gce.engine.policies == {}


def test_another_deployments_policy_is_not_ours(gce: FakeGce) -> None:
    provider = open_provider(gce)
    body = {"name": "lt-other", "description": "A gang of lowtide of somebody else"}
    gce.engine.policies["us-central1", "lt-other"] = body
    assert provider.list_leftovers("us-central1") == ()
