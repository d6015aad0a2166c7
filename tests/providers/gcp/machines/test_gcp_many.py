"""Two hundred machines at once: as few calls as the API allows, and as many of them at a time.

Compute Engine deletes one machine a call, so its own pace is that of calls side by side. Measured
by how many are under way at once on the fake, not by the clock.
"""

from __future__ import annotations

import pytest

from app.adapters.providers.gcp.client.parallel_calls import CALLS_AT_ONCE
from app.ports.cloud_provider import AcceptedMachine, ProviderError, RefusalKind
from tests.providers.gcp.gcp_under_test import DEPLOYMENT, an_order, open_provider
from tests.support.gce.gce_fake import FakeGce, LineFault

MANY = 200


def a_fleet(gce: FakeGce) -> tuple[str, ...]:
    """The ids of 200 machines of one launch."""
    gce.engine.world.room = MANY
    accepted: tuple[AcceptedMachine, ...] = open_provider(gce).launch(an_order(count=MANY)).accepted
    assert len(accepted) == MANY
    gce.requests.clear()
    return tuple(one.provider_instance_id for one in accepted)


def test_two_hundred_machines_are_deleted_side_by_side(gce: FakeGce) -> None:
    ids = a_fleet(gce)
    provider = open_provider(gce)
    assert len(provider.list_deployment("us-central1").machines) == MANY
    gce.requests.clear()
    meeting = gce.meet(r"DELETE .*/instances/", CALLS_AT_ONCE)
    provider.terminate(ids)
    assert not meeting.broken, "fewer deletions than that were under way at once"
    assert len(gce.calls(r"DELETE .*/instances/")) == MANY
    assert gce.calls("GET ") == [], "a list has told where they are"
    gce.engine.advance(1)
    assert gce.engine.live == {}


def test_a_restarted_worker_looks_for_two_hundred_machines_side_by_side(gce: FakeGce) -> None:
    ids = a_fleet(gce)
    meeting = gce.meet(r"GET .*/aggregated/instances", 5)
    open_provider(gce).terminate(ids)
    assert not meeting.broken
    assert len(gce.calls(r"DELETE .*/instances/")) == MANY
    assert len(gce.calls("GET ")) <= MANY // 20
    gce.engine.advance(1)
    assert gce.engine.live == {}


def test_deletions_that_the_api_finds_too_many_come_again_fewer_at_a_time(gce: FakeGce) -> None:
    ids = a_fleet(gce)
    refusal = LineFault(r"DELETE .*/instances/", 60, 429, "rateLimitExceeded", "slow down")
    gce.faults.append(refusal)
    open_provider(gce).terminate(ids)
    assert refusal.times == 0
    assert len(gce.calls(r"DELETE .*/instances/")) == MANY + 60
    gce.engine.advance(1)
    assert gce.engine.live == {}


def test_what_the_api_refuses_to_the_end_is_told_once_the_rest_is_deleted(gce: FakeGce) -> None:
    ids = a_fleet(gce)
    refused = f"DELETE .*/instances/{ids[7]}"
    gce.faults.append(LineFault(refused, 9, 429, "rateLimitExceeded", "slow down"))
    with pytest.raises(ProviderError, match="slow down") as failed:
        open_provider(gce).terminate(ids)
    assert failed.value.kind is RefusalKind.THROTTLED
    gce.engine.advance(1)
    assert [vm.name for vm in gce.engine.live.values()] == [ids[7]]


def test_two_hundred_disks_are_removed_fifty_at_a_time_side_by_side(gce: FakeGce) -> None:
    for number in range(60):
        gce.engine.add_disk("us-central1-a", f"left-{number}", {"lowtide_deployment": DEPLOYMENT})
    provider = open_provider(gce)
    found = provider.list_leftovers("us-central1")
    meeting = gce.meet(r"DELETE .*/disks/", 10)
    left = provider.remove_leftovers(found)
    assert not meeting.broken
    assert len(left) == 10
    gce.unmeet()
    assert provider.remove_leftovers(provider.list_leftovers("us-central1")) == ()
