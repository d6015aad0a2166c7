"""One region's or zone's trouble touches no other.

A zone that fails makes the whole of an aggregated list fail: its REST reference,
`returnPartialSuccess`, "the default value is false", which the client's version does not send.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from google.auth.credentials import AnonymousCredentials

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.prices.price_source import GcpPriceSource
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.lifecycle.instance import EndedBy
from app.ports.cloud_provider import MachineState, ProviderError, RefusalKind
from tests.providers.gcp.gcp_under_test import (
    DEPLOYMENT,
    a_pool,
    an_order,
    gcp_settings,
    open_provider,
)
from tests.support.gce.gce_fake import FakeGce, LineFault

HERE, THERE = "us-central1-a", "europe-west4-a"


def price_source(gce: FakeGce) -> tuple[GcpPriceSource, list[datetime]]:
    """With a clock that the test moves."""
    now = [datetime(2026, 6, 1, tzinfo=UTC)]
    settings = gcp_settings(gce, request_seconds=0.5)
    api = ComputeApi(settings, AnonymousCredentials())
    return GcpPriceSource(api, shipped_catalog("gcp"), lambda: now[0]), now


def test_a_dead_zone_leaves_the_other_regions_machines_known(gce: FakeGce) -> None:
    provider = open_provider(gce, request_seconds=0.5)
    (here,) = provider.launch(an_order(a_pool(HERE), token="here")).accepted
    (there,) = provider.launch(an_order(a_pool(THERE), token="there")).accepted
    gce.dead_zones.add(THERE)
    whole = provider.list_deployment("us-central1")
    assert ([one.provider_instance_id for one in whole.machines], whole.complete) == (
        [here.provider_instance_id],
        True,
    )
    part = provider.list_deployment("europe-west4")
    assert (part.machines, part.complete) == ((), False)
    (found,) = provider.find_by_token("here", "us-central1")
    assert found.provider_instance_id == here.provider_instance_id
    assert provider.describe((here.provider_instance_id,)) == (found,)
    with pytest.raises(ProviderError) as unknown:
        provider.find_by_token("there", "europe-west4")
    assert unknown.value.kind is RefusalKind.UNAVAILABLE
    with pytest.raises(ProviderError):
        provider.describe((there.provider_instance_id,))


def test_a_list_of_all_zones_that_hangs_is_read_zone_by_zone(gce: FakeGce) -> None:
    provider = open_provider(gce, request_seconds=2.0)
    (here,) = provider.launch(an_order(a_pool(HERE))).accepted
    gce.faults.append(LineFault(r"GET .*/aggregated/instances", 99, hang_seconds=3.0))
    listed = open_provider(gce, request_seconds=1.0).list_deployment("us-central1")
    assert ([one.provider_instance_id for one in listed.machines], listed.complete) == (
        [here.provider_instance_id],
        True,
    )


def test_a_launch_is_recovered_while_another_region_is_dead(gce: FakeGce) -> None:
    gce.faults.append(LineFault(r"POST .*/instances", after=True))
    with pytest.raises(ProviderError):
        open_provider(gce, request_seconds=0.5).launch(an_order())
    gce.dead_zones.add(THERE)
    again = open_provider(gce, request_seconds=0.5)
    assert len(again.find_by_token("lowtide-1", "us-central1")) == 1
    assert len(again.launch(an_order()).accepted) == 1
    assert len(gce.engine.all) == 1


def test_an_unreachable_zone_of_its_region_leaves_a_launch_unknown(gce: FakeGce) -> None:
    provider = open_provider(gce)
    provider.launch(an_order())
    gce.unreachable_zones = {HERE}
    with pytest.raises(ProviderError, match="did not answer"):
        provider.find_by_token("lowtide-1", "us-central1")
    gce.unreachable_zones = {THERE}
    assert len(provider.find_by_token("lowtide-1", "us-central1")) == 1


def test_a_machine_that_ended_is_told_of_while_another_region_is_dead(gce: FakeGce) -> None:
    provider = open_provider(gce, request_seconds=0.5)
    (machine,) = provider.launch(an_order()).accepted
    gce.engine.preempt(machine.provider_instance_id, notice=False)
    gce.dead_zones.add(THERE)
    (gone,) = provider.describe((machine.provider_instance_id,))
    assert (gone.state, gone.ended_by) == (MachineState.TERMINATED, EndedBy.CLOUD_INTERRUPTION)


def test_machines_are_given_back_while_another_region_is_dead(gce: FakeGce) -> None:
    provider = open_provider(gce, request_seconds=0.5)
    (machine,) = provider.launch(an_order()).accepted
    gce.dead_zones.add(THERE)
    provider.terminate((machine.provider_instance_id,))
    gce.engine.advance(1)
    assert gce.engine.live == {}


def test_preemptions_are_heard_while_another_region_is_dead(gce: FakeGce) -> None:
    provider = open_provider(gce, request_seconds=0.5)
    (machine,) = provider.launch(an_order()).accepted
    gce.dead_zones.add(THERE)
    gce.engine.preempt(machine.provider_instance_id)
    (heard,) = provider.receive_announcements()
    assert heard.provider_instance_id == machine.provider_instance_id


def test_offers_of_a_region_stay_while_another_is_dead(gce: FakeGce) -> None:
    prices, now = price_source(gce)
    before = prices.offers()
    assert {one.pool.region for one in before} == {"us-central1", "europe-west4"}
    gce.dead_zones |= {THERE, "europe-west4-b"}
    now[0] += timedelta(hours=2)
    after = prices.offers()
    assert [one.pool for one in after] == [one.pool for one in before], "as last known"
    gce.dead_zones.clear()
    gce.engine.world.zones["europe-west4"] = ()
    now[0] += timedelta(hours=2)
    assert {one.pool.region for one in prices.offers()} == {"us-central1"}


def test_a_region_that_is_dead_from_the_first_has_no_offers_and_stops_none(gce: FakeGce) -> None:
    gce.dead_zones |= {THERE, "europe-west4-b"}
    prices, _ = price_source(gce)
    assert {one.pool.region for one in prices.offers()} == {"us-central1"}


def test_a_region_without_advice_leaves_the_others_theirs(gce: FakeGce) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    gce.prices.history["us-central1", "a2-highgpu-1g"] = [(start, 1_500_000_000)]
    gce.faults.append(LineFault(r"/regions/europe-west4/advice", 99, 403, "forbidden", "no"))
    prices, _ = price_source(gce)
    prices.offers()
    assert len(gce.calls("/regions/europe-west4/advice")) == 1, "one refusal is enough"
    asked = [a_pool(zone) for zone in (HERE, THERE)]
    assert {past.pool.region for past in prices.past_of(asked, start)} == {"us-central1"}


def test_regions_whose_names_begin_alike_are_told_apart(gce: FakeGce) -> None:
    gce.engine.world.zones = {
        "europe-west1": ("europe-west1-b",),
        "europe-west12": ("europe-west12-a",),
    }
    regions = ("europe-west1", "europe-west12")
    provider = open_provider(gce, regions=regions)
    provider.launch(an_order(a_pool("europe-west1-b")))
    gce.unreachable_zones = {"europe-west12-a"}
    assert provider.list_deployment("europe-west1").complete
    assert not provider.list_deployment("europe-west12").complete
    assert provider.list_leftovers("europe-west1") == ()


def test_what_a_region_has_left_is_known_while_another_is_dead(gce: FakeGce) -> None:
    provider = open_provider(gce, request_seconds=0.5)
    gce.engine.add_disk(HERE, "left", {"lowtide_deployment": DEPLOYMENT})
    gce.dead_zones.add(THERE)
    assert [one.id for one in provider.list_leftovers("us-central1")] == [f"{HERE}/left"]
    with pytest.raises(ProviderError):
        provider.list_leftovers("europe-west4")


def test_a_dead_zone_is_passed_over_by_the_launch(gce: FakeGce) -> None:
    gce.dead_zones.add("us-central1-b")
    provider = open_provider(gce, request_seconds=0.5)
    (machine,) = provider.launch(an_order(a_pool("us-central1-a"))).accepted
    assert machine.pool == replace(a_pool(), zone="us-central1-a")
