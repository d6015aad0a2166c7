"""Every call of AWS in these tests is checked against botocore's models; here, that it is."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.market.offer import Market
from app.ports.cloud_provider import ProviderError
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_parts import a_volume, aws_order, aws_pool, provider_for, shared_session
from tests.support.aws.aws_requests import SEEN, problems_of


def model_of(service: str, operation: str) -> Any:
    client = shared_session().client(service, region_name="us-east-1")
    return client.meta.service_model.operation_model(operation)


@pytest.mark.parametrize(
    ("service", "operation", "params", "said"),
    [
        ("ec2", "CreateFleet", {"Type": "at-once"}, "Type"),
        ("ec2", "CreateFleet", {"ClientToken": "x" * 65}, "ClientToken"),
        (
            "ec2",
            "CreateLaunchTemplate",
            {
                "LaunchTemplateName": "a b",
                "LaunchTemplateData": {"NetworkInterfaces": [{"InterfaceType": "ena"}]},
            },
            "InterfaceType",
        ),
        ("ec2", "CreateLaunchTemplate", {"LaunchTemplateName": "a b"}, "name of a template"),
        ("ec2", "CreatePlacementGroup", {"Strategy": "close"}, "Strategy"),
        ("ec2", "GetSpotPlacementScores", {"TargetCapacity": 0}, "TargetCapacity"),
        ("ec2", "DescribeInstances", {"MaxResult": 5}, "MaxResult"),
        ("service-quotas", "ListServiceQuotas", {"ServiceCode": "e c 2"}, "does not fit"),
        ("service-quotas", "ListServiceQuotas", {"ServiceCode": "ec2", "MaxResults": 900}, "900"),
    ],
)
def test_a_call_that_its_model_does_not_take_is_told(
    service: str, operation: str, params: dict[str, Any], said: str
) -> None:
    assert any(said in one for one in problems_of(params, model_of(service, operation)))


def test_a_whole_story_of_calls_is_checked_and_fits_the_models(fake: AwsFake) -> None:
    SEEN.clear()
    provider = provider_for(fake, instance_profile="lowtide-machine", kms_key_id="alias/disks")
    gang = aws_order(aws_pool(instance_type="p4d.24xlarge"), count=2, in_gang=True)
    ids = [one.provider_instance_id for one in provider.launch(gang).accepted]
    provider.launch(aws_order(aws_pool(market=Market.ON_DEMAND), token="token-2"))
    provider.find_by_token("token-2")
    provider.list_deployment("us-east-1")
    provider.describe(tuple(ids))
    provider.terminate(tuple(ids))
    a_volume(fake)
    provider.remove_leftovers(provider.list_leftovers("us-east-1"))
    provider.machine_types()
    provider.diagnose()
    with pytest.raises(ProviderError):
        provider.locate_bucket("nobodys")
    fake.publish("EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"})
    provider.forget_announcements(one.receipt for one in provider.receive_announcements())
    called = {name.rpartition(".")[2] for name in SEEN}
    assert set(fake.world.calls) - called <= {"HeadBucket"}
    assert len(called) > 20
