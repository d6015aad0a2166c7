"""Launches on the fake account: what is asked of EC2, and what its answers become."""

from __future__ import annotations

import gzip
import random
import threading
from base64 import b64decode
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.adapters.providers.aws.machines import launching
from app.adapters.providers.aws.provider import AwsProvider
from app.adapters.providers.boot_script import EC2, USER_DATA_BYTES_MAX, render
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.offer import Market
from app.ports.cloud_provider import (
    LaunchOutcomeUnknown,
    PoolBid,
    ProviderError,
    RefusalKind,
    RefusalScope,
)
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import (
    DEPLOYMENT,
    aws_order,
    aws_pool,
    provider_for,
    settings_for,
    shared_session,
)

ZONES = ("us-east-1a", "us-east-1b")


def only_id(result: Any) -> str:
    (machine,) = result.accepted
    return str(machine.provider_instance_id)


def tags_of(thing: Any) -> dict[str, str]:
    return {one["key"]: one["value"] for one in thing.get_tags()}


def test_a_machine_is_as_safe_as_we_say(fake: AwsFake) -> None:
    provider = provider_for(fake, instance_profile="lowtide-machine", kms_key_id="alias/disks")
    machine = fake.instance(only_id(provider.launch(aws_order())))
    assert machine.instance_initiated_shutdown_behavior == "terminate"
    assert machine.metadata_options.http_tokens == "required"
    assert machine.metadata_options.http_put_response_hop_limit == 2
    assert machine.public_ip is None
    ((_, volume),) = machine.get_block_device_mapping
    assert volume.delete_on_termination
    records = fake.records("us-east-1")
    (disk,) = [one for one in records.describe_volumes() if one.id == volume.volume_id]
    assert disk.encrypted
    assert disk.size == 100
    (template,) = records.describe_launch_templates()
    data = template.get_version(1).data
    assert data["IamInstanceProfile"] == {"Name": "lowtide-machine"}
    assert data["BlockDeviceMappings"][0]["Ebs"]["KmsKeyId"] == "alias/disks"
    assert tags_of(template)["lowtide:deployment"] == DEPLOYMENT


def test_everything_carries_the_tags_from_its_first_moment(fake: AwsFake) -> None:
    machine = fake.instance(only_id(provider_for(fake).launch(aws_order())))
    wanted = {
        "lowtide:deployment": DEPLOYMENT,
        "lowtide:job": "j-1",
        "lowtide:launch": "l-1",
        "lowtide:token": "token-1",
    }

    volumes = {one.id: one for one in fake.records("us-east-1").describe_volumes()}
    ((_, volume),) = machine.get_block_device_mapping
    (card,) = machine.nics.values()
    for thing in (machine, volumes[volume.volume_id], card):
        assert wanted.items() <= tags_of(thing).items()


def test_user_data_goes_into_the_call_and_one_template_serves_all(fake: AwsFake) -> None:
    provider = provider_for(fake)
    first = only_id(provider.launch(aws_order(user_data={"LOWTIDE_LAUNCH_TOKEN": "a"})))
    second = only_id(
        provider.launch(aws_order(token="token-2", user_data={"LOWTIDE_LAUNCH_TOKEN": "b"}))
    )
    scripts = [b64decode(fake.instance(one).user_data).decode() for one in (first, second)]
    assert ["LOWTIDE_LAUNCH_TOKEN=a" in scripts[0], "LOWTIDE_LAUNCH_TOKEN=b" in scripts[1]] == [
        True,
        True,
    ]
    assert len(fake.records("us-east-1").describe_launch_templates()) == 1
    provider_for(fake).launch(aws_order(token="token-3"))  # another process finds it
    assert len(fake.records("us-east-1").describe_launch_templates()) == 1
    provider_for(fake, root_volume_gb=300).launch(aws_order(token="token-4"))
    assert len(fake.records("us-east-1").describe_launch_templates()) == 2


def test_a_job_says_how_large_its_disk_is(fake: AwsFake) -> None:
    provider = provider_for(fake)
    order = aws_order(disk_gb=500)
    machine = fake.instance(only_id(provider.launch(order)))
    ((_, volume),) = machine.get_block_device_mapping
    records = fake.records("us-east-1")
    (disk,) = [one for one in records.describe_volumes() if one.id == volume.volume_id]
    assert disk.size == 500
    # Equal disks share a template; another size has its own.
    provider.launch(replace(order, client_token="token-2"))
    assert len(records.describe_launch_templates()) == 1
    provider.launch(aws_order(token="token-3"))
    assert len(records.describe_launch_templates()) == 2
    with pytest.raises(ProviderError, match="another order"):
        provider.launch(replace(order, disk_gb=600))
    with pytest.raises(ProviderError, match=r"resources\.disk: 2GB is less than the") as caught:
        provider.launch(aws_order(token="token-4", disk_gb=2))
    assert caught.value.kind is RefusalKind.REJECTED


def test_templates_of_earlier_settings_go_after_a_week(fake: AwsFake) -> None:
    provider_for(fake).launch(aws_order())
    provider_for(fake, root_volume_gb=300).launch(aws_order(token="token-2"))
    records = fake.records("us-east-1")
    old, recent = records.describe_launch_templates()
    old.create_time -= timedelta(days=8)
    provider_for(fake, root_volume_gb=400).launch(aws_order(token="token-3"))
    left = {one.id for one in records.describe_launch_templates()}
    assert old.id not in left
    assert recent.id in left
    assert len(left) == 2
    assert len(provider_for(fake).launch(aws_order(token="token-4")).accepted) == 1  # made again


def test_a_large_script_is_packed_and_one_too_large_refused(fake: AwsFake) -> None:
    provider = provider_for(fake)
    large = aws_order(user_data={"LOWTIDE_LONG": "x" * 20_000})
    packed = b64decode(fake.instance(only_id(provider.launch(large))).user_data)
    assert "x" * 20_000 in gzip.decompress(packed).decode()
    noise = random.Random(1).randbytes(40_000).hex()
    with pytest.raises(ProviderError) as refused:
        provider.launch(aws_order(token="token-2", user_data={"LOWTIDE_LONG": noise}))
    assert refused.value.kind is RefusalKind.REJECTED
    assert "16,384" in str(refused.value)


def test_the_real_boot_script_is_larger_than_ec2_takes_and_goes_packed(fake: AwsFake) -> None:
    """What cloud-init unpacks is the script to the letter, its variables in it."""
    variables = {"LOWTIDE_CONTROL_URL": "https://lowtide.example", "LOWTIDE_LAUNCH_TOKEN": "once"}
    script = render(variables, EC2)
    assert len(script) > USER_DATA_BYTES_MAX
    provider = AwsProvider(
        settings_for(fake),
        deployment_id=lambda: DEPLOYMENT,
        render=partial(render, cloud=EC2),
        catalog=shipped_catalog("aws"),
        session=shared_session(),
    )
    sent = b64decode(
        fake.instance(only_id(provider.launch(aws_order(user_data=variables)))).user_data
    )
    assert len(sent) <= USER_DATA_BYTES_MAX
    assert gzip.decompress(sent).decode() == script
    # The account itself refuses what is not packed.
    provider = provider_for(fake)
    provider._launching._user_data = lambda order: script.encode()  # type: ignore[method-assign]
    with pytest.raises(ProviderError, match="User data is limited to 16384 bytes"):
        provider.launch(aws_order(token="token-2", user_data=variables))


def test_mixed_types_use_a_template_each_and_one_is_taken(fake: AwsFake) -> None:
    pools = [
        aws_pool(),
        aws_pool(instance_type="p4d.24xlarge"),
        aws_pool(instance_type="g6.xlarge"),
    ]
    result = provider_for(fake).launch(aws_order(*pools, count=3))
    assert len({machine.pool for machine in result.accepted}) == 1
    assert len(fake.records("us-east-1").describe_launch_templates()) == 2


def test_spot_goes_to_the_cheapest_pool_with_room_and_on_demand_to_our_first(
    fake: AwsFake,
) -> None:
    provider = provider_for(fake)
    dear, cheap = aws_pool("us-east-1c"), aws_pool("us-east-1a")
    result = provider.launch(aws_order(dear, cheap))
    assert [machine.pool for machine in result.accepted] == [cheap]
    wanted = [replace(pool, market=Market.ON_DEMAND) for pool in (dear, cheap)]
    result = provider.launch(aws_order(*wanted, token="token-2"))
    assert [machine.pool for machine in result.accepted] == [wanted[0]]


@pytest.mark.parametrize(
    ("code", "kind", "scope"),
    [
        ("InsufficientInstanceCapacity", RefusalKind.NO_CAPACITY, None),
        ("UnfulfillableCapacity", RefusalKind.NO_CAPACITY, None),
        ("MaxSpotInstanceCountExceeded", RefusalKind.QUOTA, None),
        ("SpotMaxPriceTooLow", RefusalKind.PRICE_TOO_LOW, None),
        ("InsufficientFreeAddressesInSubnet", RefusalKind.NO_CAPACITY, RefusalScope.ZONE),
        ("Unsupported", RefusalKind.UNSUPPORTED, None),
    ],
)
def test_a_pool_that_refuses_is_told_while_another_gives(
    fake: AwsFake, code: str, kind: RefusalKind, scope: RefusalScope | None
) -> None:
    first, second = (aws_pool(zone) for zone in ZONES)
    fake.fail("CreateFleet", code, where=first.zone)
    result = provider_for(fake).launch(aws_order(first, second))
    assert [machine.pool for machine in result.accepted] == [second]
    (refusal,) = result.refused
    assert (refusal.pool, refusal.kind, refusal.scope) == (first, kind, scope)
    assert code in refusal.message


def test_a_right_that_is_missing_in_one_pool_is_no_limit_of_its_type(fake: AwsFake) -> None:
    first, second = (aws_pool(zone) for zone in ZONES)
    fake.fail("CreateFleet", "UnauthorizedOperation", where=first.zone)
    result = provider_for(fake).launch(aws_order(first, second))
    assert [machine.pool for machine in result.accepted] == [second]
    assert [one.kind for one in result.refused] == [RefusalKind.DENIED]


def test_a_wrong_configuration_is_told_only_where_every_pool_says_so(fake: AwsFake) -> None:
    first, second = (aws_pool(zone) for zone in ZONES)
    provider = provider_for(fake)
    fake.fail("CreateFleet", "InvalidParameterValue", where=first.zone)
    result = provider.launch(aws_order(first, second))
    assert [one.kind for one in result.refused] == [RefusalKind.UNSUPPORTED]
    assert len(result.accepted) == 1
    fake.world.images.clear()
    result = provider.launch(aws_order(first, second, token="token-2"))
    assert result.accepted == ()
    assert {one.kind for one in result.refused} == {RefusalKind.REJECTED}
    assert "LOWTIDE_AWS_IMAGE" in result.refused[0].message


def test_no_capacity_at_http_level_surfaces_after_one_attempt(fake: AwsFake) -> None:
    fake.fail("CreateFleet", "InsufficientInstanceCapacity", 500, times=5)
    with pytest.raises(ProviderError) as refused:
        provider_for(fake).launch(aws_order())
    assert refused.value.kind is RefusalKind.NO_CAPACITY
    assert fake.world.calls["CreateFleet"] == 1


@pytest.mark.parametrize("code", ["InternalError", "ServiceUnavailable"])
def test_an_internal_error_leaves_the_outcome_open_and_the_token_settles_it(
    fake: AwsFake, code: str
) -> None:
    provider = provider_for(fake)
    fake.fail("CreateFleet", code, 503)
    with pytest.raises(LaunchOutcomeUnknown):
        provider.launch(aws_order())
    assert len(provider.launch(aws_order()).accepted) == 1
    assert fake.world.launches["token-1"] == 1


def test_a_lost_reply_and_another_process_start_no_second_gang(fake: AwsFake) -> None:
    wanted = aws_order(*(aws_pool(zone) for zone in ZONES), count=2)
    fake.world.lost["CreateFleet"] += 1
    with pytest.raises(LaunchOutcomeUnknown):
        provider_for(fake).launch(wanted)
    again = provider_for(fake).launch(wanted)
    assert len(again.accepted) == 2
    assert fake.world.launches["token-1"] == 1
    assert len(fake.world.machines) == 2


def test_a_repeat_after_the_account_changed_finds_what_the_first_call_started(
    fake: AwsFake,
) -> None:
    wanted = aws_order(*(aws_pool(zone) for zone in ZONES))
    fake.world.lost["CreateFleet"] += 1
    with pytest.raises(LaunchOutcomeUnknown):
        provider_for(fake).launch(wanted)
    # Another process knows of a larger disk by now: EC2 refuses its parameters for this token.
    later = provider_for(fake, root_volume_gb=999)
    assert len(later.launch(wanted).accepted) == 1
    later_still = provider_for(fake, root_volume_gb=998)
    with pytest.raises(ProviderError) as refused:
        later_still.launch(replace(wanted, count=2, min_count=2))
    assert refused.value.kind is RefusalKind.REJECTED
    assert len(fake.world.machines) == 1


def test_a_template_that_somebody_deleted_is_made_again(fake: AwsFake) -> None:
    provider = provider_for(fake)
    provider.launch(aws_order())
    records = fake.records("us-east-1")
    records.delete_launch_template(records.describe_launch_templates()[0].name, None)
    with pytest.raises(ProviderError) as refused:
        provider.launch(aws_order(token="token-2"))
    assert refused.value.kind is RefusalKind.UNAVAILABLE
    assert len(provider.launch(aws_order(token="token-2")).accepted) == 1


def test_the_spot_quota_of_a_new_account_is_told_with_what_to_do(fake: AwsFake) -> None:
    fake.world.quotas["G and VT", True] = 0
    result = provider_for(fake).launch(aws_order())
    assert result.accepted == ()
    (refusal,) = result.refused
    assert refusal.kind is RefusalKind.QUOTA
    assert "Service Quotas" in refusal.message
    assert refusal.message.endswith("(quota: All G and VT Spot Instance Requests)")


def test_a_zone_without_a_subnet_of_ours_is_refused_without_a_call(fake: AwsFake) -> None:
    (subnet,) = [
        one.id
        for one in fake.records("us-east-1").describe_subnets()
        if one.availability_zone == "us-east-1a"
    ]
    provider = provider_for(fake, subnet_ids=(subnet,))
    result = provider.launch(aws_order(aws_pool("us-east-1b")))
    assert [one.kind for one in result.refused] == [RefusalKind.UNSUPPORTED]
    assert fake.world.calls["CreateFleet"] == 0
    assert len(provider.launch(aws_order(aws_pool("us-east-1a"), token="t2")).accepted) == 1


def test_a_price_of_nothing_is_refused_without_a_call(fake: AwsFake) -> None:
    low = replace(aws_order(), bids=(PoolBid(aws_pool(), 1_000),))
    result = provider_for(fake).launch(low)
    assert [one.kind for one in result.refused] == [RefusalKind.PRICE_TOO_LOW]
    assert fake.world.calls["CreateFleet"] == 0


def test_the_highest_price_is_exact_to_the_micro_dollar(fake: AwsFake) -> None:
    price = fake.world.prices["g5.xlarge", "us-east-1a"][0][1]
    provider = provider_for(fake)
    exact = replace(aws_order(), bids=(PoolBid(aws_pool(), price),))
    assert len(provider.launch(exact).accepted) == 1


def test_a_gang_is_never_started_in_part(fake: AwsFake) -> None:
    fake.world.room["g5.xlarge", "us-east-1a", True] = 3
    fake.world.room["g5.xlarge", "us-east-1b", True] = 3
    pools = [aws_pool(zone) for zone in ZONES]
    result = provider_for(fake).launch(aws_order(*pools, count=4))
    assert result.accepted == ()
    assert {(one.pool, one.kind) for one in result.refused} == {
        (pool, RefusalKind.NO_CAPACITY) for pool in pools
    }


def test_an_order_that_cannot_be_one_call_is_rejected(fake: AwsFake) -> None:
    provider = provider_for(fake)
    apart = aws_order(aws_pool("us-east-1a"), aws_pool("us-west-2a"))
    nowhere = aws_order(aws_pool("eu-west-1a"))
    for wrong in (apart, nowhere, aws_order(token="x" * 65), aws_order(token="")):
        with pytest.raises(ProviderError) as refused:
            provider.launch(wrong)
        assert refused.value.kind is RefusalKind.REJECTED
    assert fake.world.calls["CreateFleet"] == 0


def test_should_ec2_start_fewer_than_the_least_they_are_told_to_be_given_back(
    fake: AwsFake,
) -> None:
    fake.world.room["g5.xlarge", "us-east-1a", True] = 3
    fake.world.leasts_broken = 1
    provider = provider_for(fake)
    result = provider.launch(aws_order(count=4))
    assert [one.kind for one in result.refused] == [RefusalKind.NO_CAPACITY]
    ids = {machine.provider_instance_id for machine in result.accepted}
    assert ids == set(fake.world.machines)
    assert len(ids) == 3
    assert all(one.lives for one in fake.world.machines.values())  # the control plane ends them


def test_a_launch_that_took_too_long_to_prepare_is_not_made(
    fake: AwsFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "PREPARE_SECONDS", 0.2)
    fake.world.hang_seconds["DescribeSubnets"] = 0.3
    provider = provider_for(fake)
    with pytest.raises(ProviderError) as refused:
        provider.launch(aws_order())
    assert refused.value.kind is RefusalKind.UNAVAILABLE
    assert fake.world.calls["CreateFleet"] == 0
    monkeypatch.setattr(launching, "PREPARE_SECONDS", 60.0)
    looked = fake.world.calls["DescribeSubnets"]
    assert len(provider.launch(aws_order()).accepted) == 1
    assert fake.world.calls["DescribeSubnets"] == looked, "from memory now"


def test_one_hung_call_holds_up_no_other(fake: AwsFake, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = provider_for(fake)
    provider.launch(aws_order())
    answered, let_go = fake.answer, threading.Event()

    def hangs_on_launches(*asked: Any) -> Any:
        assert b"Action=CreateFleet" not in asked[-1] or let_go.wait(60)
        return answered(*asked)

    monkeypatch.setattr(fake, "answer", hangs_on_launches)
    hung = threading.Thread(target=lambda: provider.launch(aws_order(token="token-2")))
    hung.start()
    assert len(provider.list_deployment("us-east-1").machines) == 1
    assert hung.is_alive()
    let_go.set()
    hung.join(timeout=60)
    assert len(provider.list_deployment("us-east-1").machines) == 2
