"""IAM in front of the fake AWS: a policy's statements decide, and a dry run goes no further.

Sources: Service Authorization Reference, "Actions, resources, and condition keys for Amazon EC2"
(which resources RunInstances asks for, and that tags at creation ask for ec2:CreateTags); IAM User
Guide, "Granting a user permissions to pass a role"; AWS re:Post, "not authorized" launch errors
(the sentence of a refusal). Not here: what allowed calls do (`aws_fake_ec2`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from moto.backends import get_backend

from tests.support.aws.aws_world import ACCOUNT
from tests.support.aws.iam_policy import IamRequest, Policy

Statement = Mapping[str, Any]
_CALLER = f"arn:aws:sts::{ACCOUNT}:assumed-role/worker/i-1"
_SERVICES = {
    "ListServiceQuotas": "servicequotas",
    "GetProducts": "pricing",
    "GetParameter": "ssm",
    "DescribeKey": "kms",
}
_QUEUE = ("ReceiveMessage", "DeleteMessageBatch", "DeleteMessage", "GetQueueAttributes")


class Authority:
    """What one policy allows. Nothing else is allowed: there is no other policy."""

    def __init__(self, statements: list[Statement]) -> None:
        self._policy = Policy({"Statement": statements})

    def refusal(self, region: str, service: str, action: str, asked: dict[str, Any]) -> str | None:
        """The sentence of the first right that is missing; None when all are there."""
        for one in _rights(region, service, action, asked):
            if not self._policy.grant_of(one):
                return (
                    f"You are not authorized to perform this operation. User: {_CALLER} is not "
                    f"authorized to perform: {one.action} on resource: {one.resource} because no "
                    f"identity-based policy allows the {one.action} action"
                )
        return None


def _rights(region: str, service: str, action: str, asked: dict[str, Any]) -> Iterator[IamRequest]:
    if action in _QUEUE:
        noun = "DeleteMessage" if action.startswith("Delete") else action
        yield IamRequest(f"sqs:{noun}", f"arn:aws:sqs:{region}:{ACCOUNT}:lowtide-interruptions")
    elif action == "GetParameter":
        yield IamRequest(
            "ssm:GetParameter", f"arn:aws:ssm:{region}::parameter{asked.get('Name', '')}"
        )
    elif service == "ec2":
        yield from _of_ec2(region, action, asked)
    elif action in _SERVICES:
        yield IamRequest(f"{_SERVICES[action]}:{action}")


def _of_ec2(region: str, action: str, asked: dict[str, Any]) -> Iterator[IamRequest]:
    tags = {
        one["ResourceType"]: {pair["Key"]: pair["Value"] for pair in one.get("Tag", [])}
        for one in asked.get("TagSpecification", [])
    }
    for noun, name, labels in _resources(region, action, asked):
        owner = "" if noun in ("image", "snapshot") else ACCOUNT
        arn = f"arn:aws:ec2:{region}:{owner}:{noun}/{name}"
        context = {f"aws:ResourceTag/{key}": value for key, value in labels.items()}
        context |= {f"aws:RequestTag/{key}": value for key, value in tags.get(noun, {}).items()}
        yield IamRequest(f"ec2:{action}", arn, context)
        if noun in tags:
            yield IamRequest("ec2:CreateTags", arn, {**context, "ec2:CreateAction": action})
    if action.startswith(("Describe", "Get")):
        yield IamRequest(f"ec2:{action}")
    profile = asked.get("IamInstanceProfile", {}).get("Name")
    if profile:
        role = f"arn:aws:iam::{ACCOUNT}:role/{profile}"
        yield IamRequest("iam:PassRole", role, {"iam:PassedToService": "ec2.amazonaws.com"})


# One case a call of the cloud.
def _resources(  # noqa: C901
    region: str, action: str, asked: dict[str, Any]
) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(noun, id, tags) of what a call touches."""
    if action == "RunInstances":
        cards = asked.get("NetworkInterface", [])
        yield "image", asked["ImageId"], {}
        for card in cards:
            yield "subnet", card["SubnetId"], {}
            for group in card.get("SecurityGroupId", []):
                yield "security-group", group, {}
        for noun in ("instance", "volume", "network-interface"):
            yield noun, "*", {}
        if asked.get("InstanceMarketOptions", {}).get("MarketType") == "spot":
            yield "spot-instances-request", "*", {}
    elif action == "CreateFleet":
        yield "fleet", "*", {}
        yield "launch-template", "*", {}
    elif action == "CreateLaunchTemplate":
        yield "launch-template", "*", {}
    elif action in ("CreatePlacementGroup", "DeletePlacementGroup"):
        yield "placement-group", asked["GroupName"], {}
    elif action == "TerminateInstances":
        for name in asked["InstanceId"]:
            yield "instance", name, _tags(region, name)
    elif action == "DeleteVolume":
        yield "volume", asked["VolumeId"], _tags(region, asked["VolumeId"])
    elif action == "DeleteLaunchTemplate":
        name = asked["LaunchTemplateId"]
        yield "launch-template", name, _tags(region, name)


def _tags(region: str, resource_id: str) -> dict[str, str]:
    found: Any = get_backend("ec2")[ACCOUNT][region].describe_tags(
        filters={"resource-id": [resource_id]}
    )
    return {one["key"]: one["value"] for one in found}
