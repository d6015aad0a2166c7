"""Volumes, templates and groups that outlive their machines: found and removed."""

from __future__ import annotations

import pytest

from app.ports.cloud_leftovers import CloudLeftovers, Leftover
from app.ports.cloud_provider import ProviderError, RefusalKind
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import a_volume, aws_order, aws_pool, provider_for

REGION = "us-east-1"


def by_kind(remains: tuple[Leftover, ...]) -> dict[str, Leftover]:
    return {one.kind: one for one in remains}


def test_only_our_volumes_without_a_machine_are_found_and_removed(fake: AwsFake) -> None:
    provider = provider_for(fake)
    assert isinstance(provider, CloudLeftovers)
    left = a_volume(fake)
    others = a_volume(fake, deployment="another")
    a_volume(fake, region="us-west-2")
    (found,) = provider.list_leftovers(REGION)
    assert (found.kind, found.id, found.idle) == ("volume", left, True)
    # 200 GB at $0.08 a month of 730 hours.
    assert found.microusd_per_day == 526_027
    assert provider.remove_leftovers((found,)) == ()
    assert provider.list_leftovers(REGION) == ()
    assert others in fake.records(REGION).volumes
    assert len(provider.list_leftovers("us-west-2")) == 1
    assert provider.remove_leftovers((found,)) == (), "one that is gone is no error"


def test_a_running_machines_volume_is_not_among_them(fake: AwsFake) -> None:
    provider = provider_for(fake)
    provider.launch(aws_order())
    assert set(by_kind(provider.list_leftovers(REGION))) == {"launch template"}


def test_a_template_is_idle_once_the_region_shows_no_machine(fake: AwsFake) -> None:
    provider = provider_for(fake)
    (machine,) = provider.launch(aws_order()).accepted
    assert not by_kind(provider.list_leftovers(REGION))["launch template"].idle
    provider.terminate((machine.provider_instance_id,))
    template = by_kind(provider.list_leftovers(REGION))["launch template"]
    assert template.idle
    assert provider.remove_leftovers((template,)) == ()
    assert provider.list_leftovers(REGION) == ()
    # The same process launches again: the template is made anew.
    assert provider.launch(aws_order(token="token-2")).accepted


def test_a_template_that_another_process_removed_is_made_anew(fake: AwsFake) -> None:
    launching, clearing = provider_for(fake), provider_for(fake)
    (machine,) = launching.launch(aws_order()).accepted
    launching.terminate((machine.provider_instance_id,))
    assert clearing.remove_leftovers(clearing.list_leftovers(REGION)) == ()
    with pytest.raises(ProviderError) as refused:
        launching.launch(aws_order(token="token-2"))
    assert refused.value.kind is RefusalKind.UNAVAILABLE
    assert launching.launch(aws_order(token="token-2")).accepted


def test_a_placement_group_stays_while_its_zone_trains(fake: AwsFake) -> None:
    provider = provider_for(fake)
    (machine,) = provider.launch(
        aws_order(aws_pool(instance_type="p4d.24xlarge"), in_gang=True)
    ).accepted
    fake.world.placement_groups.add((REGION, "lowtide-ffffffff-us-east-1a"))
    group = by_kind(provider.list_leftovers(REGION))["placement group"]
    assert not group.idle
    (left,) = provider.remove_leftovers((group,))
    assert "in use" in left.note
    provider.launch(aws_order(aws_pool("us-east-1b"), token="token-elsewhere"))
    provider.terminate((machine.provider_instance_id,))
    assert by_kind(provider.list_leftovers(REGION))["placement group"].idle, "nothing in its zone"
    assert provider.remove_leftovers((group,)) == ()
    assert fake.world.placement_groups == {(REGION, "lowtide-ffffffff-us-east-1a")}
    again = aws_order(aws_pool(instance_type="p4d.24xlarge"), token="token-2", in_gang=True)
    assert provider.launch(again).accepted


def test_a_group_that_another_process_removed_is_made_anew(fake: AwsFake) -> None:
    launching, clearing = provider_for(fake), provider_for(fake)
    pool = aws_pool(instance_type="p4d.24xlarge")
    (machine,) = launching.launch(aws_order(pool, in_gang=True)).accepted
    launching.terminate((machine.provider_instance_id,))
    groups = [one for one in clearing.list_leftovers(REGION) if one.kind == "placement group"]
    assert clearing.remove_leftovers(groups) == ()
    missed = launching.launch(aws_order(pool, token="token-2", in_gang=True))
    assert [one.kind for one in missed.refused] == [RefusalKind.UNAVAILABLE], "it comes again soon"
    assert launching.launch(aws_order(pool, token="token-3", in_gang=True)).accepted


def test_what_cannot_be_removed_is_told_with_its_reason(fake: AwsFake) -> None:
    provider = provider_for(fake)
    left = a_volume(fake)
    found = provider.list_leftovers(REGION)
    fake.fail("DeleteVolume", "UnauthorizedOperation", 403)
    (kept,) = provider.remove_leftovers(found)
    assert kept.id == left
    assert "control-plane-policy.json" in kept.note
