"""AWS's error codes as kinds: each code that EC2 documents for launches, and what nobody knows."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from app.adapters.providers.aws.client.aws_errors import kind_of, scope_of, sentence
from app.adapters.providers.aws.client.clients import AwsClients
from app.ports.cloud_provider import (
    LaunchOutcomeUnknown,
    ProviderError,
    RefusalKind,
    RefusalScope,
)
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import aws_order, provider_for, settings_for

KINDS = {
    "InsufficientInstanceCapacity": RefusalKind.NO_CAPACITY,
    "UnfulfillableCapacity": RefusalKind.NO_CAPACITY,
    "InsufficientCapacity": RefusalKind.NO_CAPACITY,
    "InsufficientFreeAddressesInSubnet": RefusalKind.NO_CAPACITY,
    "Unsupported": RefusalKind.UNSUPPORTED,
    "SpotMaxPriceTooLow": RefusalKind.PRICE_TOO_LOW,
    "MaxSpotInstanceCountExceeded": RefusalKind.QUOTA,
    "VcpuLimitExceeded": RefusalKind.QUOTA,
    "InstanceLimitExceeded": RefusalKind.QUOTA,
    "MaxIOPSLimitExceeded": RefusalKind.QUOTA,
    "VolumeLimitExceeded": RefusalKind.QUOTA,
    "RequestLimitExceeded": RefusalKind.THROTTLED,
    "Throttling": RefusalKind.THROTTLED,
    "ThrottlingException": RefusalKind.THROTTLED,
    "ThrottledException": RefusalKind.THROTTLED,
    "InternalError": RefusalKind.UNAVAILABLE,
    "Unavailable": RefusalKind.UNAVAILABLE,
    "ServiceUnavailable": RefusalKind.UNAVAILABLE,
    "UnauthorizedOperation": RefusalKind.DENIED,
    "AuthFailure": RefusalKind.DENIED,
    "OptInRequired": RefusalKind.DENIED,
    "PendingVerification": RefusalKind.DENIED,
    "Blocked": RefusalKind.DENIED,
    "ExpiredToken": RefusalKind.DENIED,
    "RequestExpired": RefusalKind.DENIED,
    "InvalidClientTokenId": RefusalKind.DENIED,
    "InvalidAMIID.NotFound": RefusalKind.REJECTED,
    "InvalidAMIID.Unavailable": RefusalKind.REJECTED,
    "InvalidSubnetID.NotFound": RefusalKind.REJECTED,
    "InvalidParameterValue": RefusalKind.REJECTED,
    "InvalidLaunchTemplateId.NotFound": RefusalKind.REJECTED,
    "IdempotentParameterMismatch": RefusalKind.REJECTED,
}


@pytest.mark.parametrize(("code", "kind"), KINDS.items())
def test_every_documented_code_has_its_kind_whatever_the_status(
    code: str, kind: RefusalKind
) -> None:
    assert {kind_of(code, status) for status in (400, 403, 500, 503, None)} == {kind}


def test_a_code_that_nobody_knows_goes_by_its_class() -> None:
    assert kind_of("SomethingNew", 503) is RefusalKind.UNAVAILABLE
    assert kind_of("SomethingNew", 400) is RefusalKind.REJECTED
    assert kind_of("SomethingNew") is RefusalKind.REJECTED
    assert kind_of("ShinyThingLimitExceeded", 400) is RefusalKind.QUOTA
    assert kind_of("InsufficientShinyCapacity", 500) is RefusalKind.NO_CAPACITY


def test_what_reaches_further_than_its_kind_says_so() -> None:
    assert scope_of("VolumeLimitExceeded") is RefusalScope.REGION
    assert scope_of("OptInRequired") is RefusalScope.REGION
    assert scope_of("InsufficientInstanceCapacity") is None


def test_a_sentence_says_what_to_change() -> None:
    told = sentence("UnauthorizedOperation", "You are not authorized.")
    assert told.startswith("UnauthorizedOperation: You are not authorized; ")
    assert "control-plane-policy.json" in told
    assert sentence("SomethingNew", "") == "SomethingNew"


@pytest.mark.parametrize(
    ("code", "status", "wanted"),
    [
        ("ExpiredToken", 400, "renew the credentials"),
        ("AuthFailure", 401, "enabled for the account"),
        ("UnauthorizedOperation", 403, "control-plane-policy.json"),
    ],
)
def test_refused_credentials_are_typed_with_a_sentence(
    fake: AwsFake, code: str, status: int, wanted: str
) -> None:
    fake.fail("CreateFleet", code, status)
    with pytest.raises(ProviderError) as refused:
        provider_for(fake).launch(aws_order())
    assert refused.value.kind is RefusalKind.DENIED
    assert wanted in str(refused.value)


def test_no_credentials_at_all_are_typed(fake: AwsFake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    clients = AwsClients(settings_for(fake), boto3.Session())
    with pytest.raises(ProviderError) as refused:
        clients.ask("ec2", "us-east-1", "describe_instances")
    assert refused.value.kind is RefusalKind.DENIED
    assert "no usable AWS credentials" in str(refused.value)


def test_a_profile_that_does_not_exist_is_typed(
    fake: AwsFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ProviderError) as refused:
        AwsClients(settings_for(fake)).ask("ec2", "us-east-1", "describe_instances")
    assert refused.value.kind is RefusalKind.DENIED


def test_a_region_that_does_not_exist_is_typed(fake: AwsFake) -> None:
    with pytest.raises(ProviderError) as refused:
        provider_for(fake, regions=("us-moon-1",)).list_deployment("us-moon-1")
    assert refused.value.kind is RefusalKind.REJECTED
    assert "LOWTIDE_AWS_REGIONS" in str(refused.value)


def test_a_region_that_is_not_enabled_is_typed(fake: AwsFake) -> None:
    with pytest.raises(ProviderError) as refused:
        provider_for(fake, regions=("ap-east-1",)).list_deployment("ap-east-1")
    assert (refused.value.kind, refused.value.scope) == (
        RefusalKind.DENIED,
        RefusalScope.REGION,
    )
    assert "LOWTIDE_AWS_REGIONS" in str(refused.value)


def test_nobody_at_the_endpoint_is_unavailable_and_started_nothing(fake: AwsFake) -> None:
    clients = AwsClients(settings_for(fake, endpoint_url="http://127.0.0.1:1"))
    with pytest.raises(ProviderError) as refused:
        clients.change("ec2", "us-east-1", "create_fleet", starts_machines=True, **_a_fleet())
    assert refused.value.kind is RefusalKind.UNAVAILABLE
    assert not isinstance(refused.value, LaunchOutcomeUnknown)


def test_an_answer_nobody_can_read_leaves_a_launch_open(fake: AwsFake) -> None:
    fake.world.spot_room = 6
    provider = provider_for(fake)
    fake.fail("CreateFleet", "NobodyKnows", 500)
    with pytest.raises(LaunchOutcomeUnknown):
        provider.launch(aws_order())


def test_a_question_is_asked_twice_and_a_change_once(fake: AwsFake) -> None:
    provider = provider_for(fake, regions=("us-east-1",))
    fake.fail("DescribeInstances", "InternalError", 500)
    assert provider.list_deployment("us-east-1").complete
    assert fake.world.calls["DescribeInstances"] == 2
    fake.fail("TerminateInstances", "InternalError", 500)
    with pytest.raises(ProviderError) as refused:
        provider.terminate(("i-00000000000000001",))
    assert refused.value.kind is RefusalKind.UNAVAILABLE
    assert fake.world.calls["TerminateInstances"] == 1


@pytest.mark.parametrize("noun", ["subnet", "security_group"])
def test_a_network_that_nobody_tagged_is_told(fake: AwsFake, noun: str) -> None:
    given = {"subnet": {"subnet_ids": ("subnet-00000000",)}}.get(
        noun, {"security_group_ids": ("sg-00000000",)}
    )
    with pytest.raises(ProviderError) as refused:
        provider_for(fake, **given).launch(aws_order())
    assert refused.value.kind is RefusalKind.REJECTED
    assert f"LOWTIDE_AWS_{noun.upper()}S" in str(refused.value)


def _a_fleet() -> dict[str, Any]:
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1},
    }
