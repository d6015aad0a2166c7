"""Network cards, EFA and placement groups: asked for as each type has them, and only by gangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.adapters.providers.aws.client.aws_settings import own_prefix
from app.adapters.providers.aws.client.region_facts import Image
from app.adapters.providers.aws.machines.launch_template import template_data
from app.adapters.providers.aws.opening import open_aws
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.machine_catalog import MachineType
from app.domain.market.offer import Market
from app.ports.cloud_provider import ProviderError, RefusalKind
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_fake_network import network_problem
from tests.support.aws.aws_parts import (
    DEPLOYMENT,
    a_script,
    aws_order,
    aws_pool,
    provider_for,
    settings_for,
    shared_session,
)

ZONES = ("us-east-1a", "us-east-1b")
CATALOG = shipped_catalog("aws")
_IMAGE = Image("ami-0a1b2c3d4e5f60718", "/dev/sda1", 30)


def cards_of(fake: AwsFake) -> list[tuple[int, int, str]]:
    """(card, device, type) of the only template's interfaces."""
    (template,) = fake.records("us-east-1").describe_launch_templates()
    cards = template.get_version(1).data["NetworkInterfaces"]
    return [
        (int(one["NetworkCardIndex"]), int(one["DeviceIndex"]), one["InterfaceType"])
        for one in cards
    ]


def gang(*pools: Any, count: int = 2, **more: Any) -> Any:
    return aws_order(*pools, count=count, in_gang=True, **more)


def test_a_gang_gets_every_card_of_its_type_and_stands_together(fake: AwsFake) -> None:
    provider = provider_for(fake)
    pools = [aws_pool(zone, "p4d.24xlarge") for zone in ZONES]
    first, _ = provider.launch(gang(*pools)).accepted
    machine = fake.instance(first.provider_instance_id)
    assert machine.placement.group_name == f"{own_prefix(DEPLOYMENT)}{machine.placement.zone}"
    assert cards_of(fake) == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
        (3, 0, "efa-only"),
    ]
    provider_for(fake).launch(gang(*pools, token="token-2"))  # finds the groups in place
    assert len(fake.world.placement_groups) == 2


def test_a_first_card_without_efa_gets_none(fake: AwsFake) -> None:
    """p6-b300: 17 network cards, of which the first takes no EFA."""
    pool = aws_pool(instance_type="p6-b300.48xlarge", market=Market.ON_DEMAND)
    result = provider_for(fake).launch(gang(pool))
    assert len(result.accepted) == 2, result.refused
    assert cards_of(fake) == [
        (0, 0, "interface"),
        *((index, 0, "efa-only") for index in range(1, 17)),
    ]


@pytest.mark.parametrize("efa", [True, False], ids=["gang", "alone"])
def test_ec2_takes_the_interfaces_of_every_type_in_the_catalog(efa: bool, fake: AwsFake) -> None:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    for one in CATALOG.types:
        if one.name not in INSTANCE_TYPES:  # p3.2xlarge to p3.16xlarge: one card, no EFA
            assert (one.network_cards, one.efa_cards) == (1, ()), one.name
            continue
        cards = one.efa_cards if efa else ()
        asked = template_data(settings_for(fake), _IMAGE, ("sg-1",), cards)["NetworkInterfaces"]
        assert network_problem(one.name, asked) is None
        recorded = INSTANCE_TYPES[one.name]["NetworkInfo"].get("EfaInfo", {})
        wanted = recorded.get("MaximumEfaInterfaces", 0) if efa else 0
        assert sum(card["InterfaceType"] != "interface" for card in asked) == wanted


@pytest.mark.parametrize("instance_type", ["p4d.24xlarge", "p5.48xlarge", "p6-b300.48xlarge"])
def test_a_lone_machine_asks_for_no_efa_and_no_group(fake: AwsFake, instance_type: str) -> None:
    pool = aws_pool(instance_type=instance_type, market=Market.ON_DEMAND)
    (machine,) = provider_for(fake).launch(aws_order(pool)).accepted
    assert cards_of(fake) == [(0, 0, "interface")]
    assert fake.instance(machine.provider_instance_id).placement.group_name == ""
    assert fake.world.calls["CreatePlacementGroup"] == 0


def test_one_machine_that_joins_a_gang_is_launched_as_the_others(fake: AwsFake) -> None:
    """A replacement without EFA could not talk to the machines that have it."""
    pool = aws_pool(instance_type="p4d.24xlarge")
    (machine,) = provider_for(fake).launch(gang(pool, count=1)).accepted
    assert len(cards_of(fake)) == 5
    assert fake.instance(machine.provider_instance_id).placement.group_name


def test_a_public_address_and_several_cards_are_refused_without_a_call(fake: AwsFake) -> None:
    """EC2 gives a machine with several interfaces no public address: it could reach nobody."""
    provider = provider_for(fake, public_ip=True)
    many, one = aws_pool(instance_type="p4d.24xlarge"), aws_pool()
    result = provider.launch(gang(many))
    assert result.accepted == ()
    (refusal,) = result.refused
    assert (refusal.pool, refusal.kind) == (many, RefusalKind.UNSUPPORTED)
    assert "LOWTIDE_AWS_PUBLIC_IP" in refusal.message
    assert fake.world.calls["CreateFleet"] == 0
    mixed = provider.launch(gang(many, one, token="token-2"))
    assert {machine.pool for machine in mixed.accepted} == {one}
    alone = provider.launch(aws_order(many, token="token-3"))
    assert len(alone.accepted) == 1  # one card has one address
    assert fake.world.machines[alone.accepted[0].provider_instance_id].public_ip


def test_types_with_several_cards_are_not_offered_where_machines_have_public_addresses(
    fake: AwsFake, caplog: pytest.LogCaptureFixture
) -> None:
    several = {"p4d.24xlarge", "p5.48xlarge", "p6-b300.48xlarge"}
    types = tuple(one for one in CATALOG.types if one.name in {*several, "g5.xlarge"})

    def offered(public_ip: bool, types: tuple[MachineType, ...] = types) -> set[str]:
        _, prices = open_aws(
            settings_for(fake, public_ip=public_ip, regions=("us-east-1",)),
            replace(CATALOG, types=types),
            deployment_id=lambda: DEPLOYMENT,
            render=a_script,
            session=shared_session(),
        )
        return {offer.pool.instance_type for offer in prices.offers()}

    assert offered(False) - offered(True) == several
    told = [one.getMessage() for one in caplog.records]
    assert all(any(name in text and "PUBLIC_IP" in text for text in told) for name in several)
    # Cards that no launch uses are none: the rule is that of launches.
    plain = tuple(replace(one, fast_network="") for one in types)
    assert offered(True, plain) == offered(False) == {*several, "g5.xlarge"}


def test_the_fake_refuses_what_ec2_refuses_of_network_interfaces() -> None:
    def card(index: int, device: int, kind: str = "interface", **more: Any) -> dict[str, Any]:
        return {
            "NetworkCardIndex": index, "DeviceIndex": device, "InterfaceType": kind, **more,
        }  # fmt: skip

    public: dict[str, Any] = {"AssociatePublicIpAddress": True}
    refused = {
        "p6-b300.48xlarge": [card(0, 0), card(0, 1, "efa-only")],
        "p4d.24xlarge": [card(0, 0, **public), card(1, 0, "efa-only")],
        "p5.48xlarge": [card(0, 0), card(32, 0, "efa-only")],
        "g5.xlarge": [card(0, 0, "efa")],
        "p4de.24xlarge": [card(0, 0, "efa-only")],
        "p5e.48xlarge": [card(0, 0), card(1, 0, "efa"), card(1, 1, "efa")],
        "p5en.48xlarge": [card(1, 0)],
    }
    for name, asked in refused.items():
        assert network_problem(name, asked) is not None, name
    assert network_problem("g5.xlarge", [card(0, 0, **public)]) is None


def test_what_a_fleet_says_of_a_types_feature_rests_that_type_alone(fake: AwsFake) -> None:
    first, second = aws_pool(ZONES[0]), aws_pool(ZONES[1])
    for code, message in (
        ("InvalidParameterCombination", "Interface type 'efa' is not supported on network card 0"),
        ("InvalidNetworkInterface.Unsupported", "instance type g5.xlarge takes no such interface"),
        ("InvalidParameterValue", "The architecture of the specified instance type does not match"),
        ("Unsupported", "The requested configuration is currently not supported."),
    ):
        for zone in ZONES:
            fake.fail("CreateFleet", code, where=zone, message=message)
        result = provider_for(fake).launch(aws_order(first, second, token=code))
        assert {(one.pool, one.kind, one.scope) for one in result.refused} == {
            (pool, RefusalKind.UNSUPPORTED, None) for pool in (first, second)
        }


def test_a_wrong_group_or_subnet_is_no_limit_of_a_type(fake: AwsFake) -> None:
    for code, message in (
        (
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on "
            "the same request",
        ),
        ("InvalidGroup.NotFound", "The group 'sg-1' of network interface 0 does not exist"),
        ("InvalidSubnetID.NotFound", "The subnet 'subnet-1' for instance type x does not exist"),
    ):
        fake.fail("CreateFleet", code, message=message)
        with pytest.raises(ProviderError) as refused:
            provider_for(fake).launch(aws_order(token=code))
        assert refused.value.kind is RefusalKind.REJECTED
        assert message in str(refused.value)


@pytest.mark.parametrize("named", [True, False])
def test_a_call_refused_for_a_types_feature_rests_the_types_it_names(
    fake: AwsFake, named: bool
) -> None:
    plain, special = aws_pool(), aws_pool(instance_type="g6.xlarge")
    told = "instance type g6.xlarge" if named else "the requested instance type"
    message = f"The network card index of {told} is not supported"
    fake.fail("CreateFleet", "InvalidParameterCombination", message=message)
    result = provider_for(fake).launch(aws_order(plain, special))
    assert result.accepted == ()
    assert {one.kind for one in result.refused} == {RefusalKind.UNSUPPORTED}
    assert {one.pool for one in result.refused} == ({special} if named else {plain, special})


def test_a_call_refused_for_another_reason_is_our_configuration(fake: AwsFake) -> None:
    fake.fail("CreateFleet", "InvalidParameterValue", message="Value () for ImageId is invalid")
    with pytest.raises(ProviderError) as refused:
        provider_for(fake).launch(aws_order())
    assert refused.value.kind is RefusalKind.REJECTED
