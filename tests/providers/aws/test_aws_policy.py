"""The shipped policy allows what the provider calls, and hardly more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.adapters.providers.aws.opening import open_aws
from app.adapters.providers.machine_catalog import shipped_catalog
from app.ports.cloud_provider import ProviderError
from tests.support.aws_fake import AwsFake
from tests.support.aws_parts import (
    DEPLOYMENT,
    a_script,
    a_volume,
    aws_order,
    aws_pool,
    settings_for,
    shared_session,
)
from tests.support.aws_world import now

_FOLDER = Path(__file__).parents[3] / "deploy" / "aws"
_OTHERS = {
    "GetProducts": "pricing:GetProducts",
    "ListServiceQuotas": "servicequotas:ListServiceQuotas",
    "GetParameter": "ssm:GetParameter",
    "ReceiveMessage": "sqs:ReceiveMessage",
    "DeleteMessageBatch": "sqs:DeleteMessage",
    "GetQueueAttributes": "sqs:GetQueueAttributes",
    "GetCallerIdentity": "sts:GetCallerIdentity",
    "GetBucketLocation": "s3:GetBucketLocation",
}
# What EC2 asks for on behalf of a call.
_NOT_CALLED = {
    "ec2:CreateTags",
    "iam:PassRole",
    "iam:CreateServiceLinkedRole",
}


def statements(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((_FOLDER / name).read_text("utf-8"))["Statement"]
    return found


def actions(statement: dict[str, Any]) -> list[str]:
    told = statement["Action"]
    return [told] if isinstance(told, str) else list(told)


def test_the_policy_is_what_is_called(fake: AwsFake) -> None:
    provider, prices = open_aws(
        settings_for(fake),
        shipped_catalog("aws"),
        deployment_id=lambda: DEPLOYMENT,
        render=a_script,
        session=shared_session(),
    )
    (machine,) = provider.launch(
        aws_order(aws_pool(instance_type="p4d.24xlarge"), in_gang=True)
    ).accepted
    provider.list_deployment("us-east-1")
    provider.terminate((machine.provider_instance_id,))
    a_volume(fake)
    assert provider.remove_remains(provider.list_remains("us-east-1")) == ()
    prices.offers()
    prices.changes_since(now())
    provider.diagnose()
    provider.machine_types()
    with pytest.raises(ProviderError):
        provider.locate_bucket("nobodys")
    fake.publish("EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"})
    provider.forget_announcements(one.receipt for one in provider.receive_announcements())
    called = {_OTHERS.get(name, f"ec2:{name}") for name in fake.world.calls}
    allowed = {one for each in statements("control-plane-policy.json") for one in actions(each)}
    assert called - allowed == set()
    assert allowed - called == _NOT_CALLED


def test_what_ends_or_starts_machines_is_bound_to_our_tag() -> None:
    for one in statements("control-plane-policy.json"):
        ends = {"ec2:TerminateInstances", "ec2:DeleteLaunchTemplate", "ec2:DeleteVolume"}
        if ends & set(actions(one)):
            assert "aws:ResourceTag/lowtide:deployment" in one["Condition"]["Null"]
        assert not any(action.endswith("*") for action in actions(one))


def test_machines_reach_the_bucket_alone() -> None:
    for one in statements("machine-policy.json"):
        assert one["Resource"].startswith("arn:aws:s3:::BUCKET")
        assert all(action.startswith("s3:") for action in actions(one))
