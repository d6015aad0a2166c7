"""What IAM is asked for each call that the provider makes, from the calls as boto3 sends them.

Lives here: recording calls, and which actions on which resources each one comes to. Sources: the
Service Authorization Reference of EC2, EC2's guide to fleets ("EC2 Fleet prerequisites"), and IAM's
"Grant a user permissions to pass a role". Not here: whether they are allowed (`iam_policy`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.aws.iam_policy import IamRequest

ACCOUNT = "123456789012"
_PREFIX = {"service-quotas": "servicequotas"}
_ACTIONS = {"sqs:DeleteMessageBatch": "sqs:DeleteMessage"}
_SNAPSHOT = "snap-0123456789abcdef0"


@dataclass(frozen=True)
class AwsCall:
    """One call of boto3. tags: those of the resources that it names, when it was made, by id."""

    service: str
    operation: str
    region: str
    params: dict[str, Any]
    tags: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def tried(self) -> bool:
        """A dry run."""
        return bool(self.params.get("DryRun"))


@contextmanager
def recorded_calls(
    session: Any, tags_of: Callable[[str, str], dict[str, str]]
) -> Iterator[list[AwsCall]]:
    """The calls of every client that the boto3 session makes meanwhile.

    tags_of: (region, id) -> the tags of a resource now.
    """
    calls: list[AwsCall] = []

    def keep(params: dict[str, Any], model: Any, context: Mapping[str, Any], **_: Any) -> None:
        region = str(context["client_region"])
        named = [*params.get("InstanceIds", ()), params.get("VolumeId")]
        named.append(params.get("LaunchTemplateId"))
        tags = {one: tags_of(region, one) for one in named if one}
        service = model.service_model.service_name
        calls.append(AwsCall(service, model.name, region, dict(params), tags))

    # Clients copy the session's handlers when they are made.
    events = session._session
    events.register("provide-client-params.*.*", keep, "lowtide-recorder")
    try:
        yield calls
    finally:
        events.unregister("provide-client-params.*.*", unique_id="lowtide-recorder")


class RequestsOfCalls:
    """The requests to IAM that follow from recorded calls; a template is known from its making."""

    def __init__(self, *, machine_role: str) -> None:
        self._role = machine_role
        self._templates: dict[tuple[str, str], dict[str, Any]] = {}

    def of(self, calls: list[AwsCall]) -> list[IamRequest]:
        """In the order of the calls."""
        found: list[IamRequest] = []
        for call in calls:
            special = getattr(self, f"_{call.service.replace('-', '_')}_{call.operation}", None)
            found += special(call) if special is not None else [self._plain(call)]
        return found

    @staticmethod
    def _plain(call: AwsCall, resource: str = "*") -> IamRequest:
        action = f"{_PREFIX.get(call.service, call.service)}:{call.operation}"
        return IamRequest(_ACTIONS.get(action, action), resource, {}, call.operation)

    def _ssm_GetParameter(self, call: AwsCall) -> list[IamRequest]:  # noqa: N802
        name = str(call.params["Name"]).lstrip("/")
        return [self._plain(call, f"arn:aws:ssm:{call.region}::parameter/{name}")]

    def _sts_AssumeRole(self, call: AwsCall) -> list[IamRequest]:  # noqa: N802
        return [self._plain(call, str(call.params["RoleArn"]))]

    def _of_queue(self, call: AwsCall) -> list[IamRequest]:
        name = str(call.params["QueueUrl"]).rpartition("/")[2]
        return [self._plain(call, f"arn:aws:sqs:{call.region}:{ACCOUNT}:{name}")]

    _sqs_ReceiveMessage = _sqs_DeleteMessageBatch = _sqs_GetQueueAttributes = _of_queue  # noqa: N815

    def _s3_GetBucketLocation(self, call: AwsCall) -> list[IamRequest]:  # noqa: N802
        return [self._plain(call, f"arn:aws:s3:::{call.params['Bucket']}")]

    def _ec2_CreateLaunchTemplate(self, call: AwsCall) -> list[IamRequest]:  # noqa: N802
        name = call.params["LaunchTemplateName"]
        if not call.tried:
            self._templates[call.region, name] = call.params["LaunchTemplateData"]
        return _created(call, "launch-template", "lt-0123456789abcdef0")

    def _ec2_CreatePlacementGroup(self, call: AwsCall) -> list[IamRequest]:  # noqa: N802
        return _created(call, "placement-group", call.params["GroupName"])

    def _ec2_DeletePlacementGroup(self, call: AwsCall) -> list[IamRequest]:  # noqa: N802
        return [self._plain(call, _arn(call.region, "placement-group", call.params["GroupName"]))]

    def _of_tagged(self, call: AwsCall) -> list[IamRequest]:
        noun = {
            "TerminateInstances": "instance",
            "DeleteVolume": "volume",
            "DeleteLaunchTemplate": "launch-template",
        }[call.operation]
        return [
            IamRequest(
                f"ec2:{call.operation}",
                _arn(call.region, noun, name),
                {f"aws:ResourceTag/{key}": value for key, value in tags.items()},
                call.operation,
            )
            for name, tags in call.tags.items()
        ]

    _ec2_TerminateInstances = _ec2_DeleteVolume = _ec2_DeleteLaunchTemplate = _of_tagged  # noqa: N815

    def _ec2_RunInstances(self, call: AwsCall) -> list[IamRequest]:  # noqa: N802
        """Only tried, by the doctor."""
        market = call.params.get("InstanceMarketOptions", {}).get("MarketType")
        data = {"ImageId": call.params["ImageId"]}
        return self._launched(call, data, spot=market == "spot", by_fleet=False)

    def _ec2_CreateFleet(self, call: AwsCall) -> list[IamRequest]:  # noqa: N802
        target = call.params["TargetCapacitySpecification"]
        spot = target["DefaultTargetCapacityType"] == "spot"
        found: list[IamRequest] = []
        for config in call.params["LaunchTemplateConfigs"]:
            name = config["LaunchTemplateSpecification"]["LaunchTemplateName"]
            data = dict(self._templates.get((call.region, name), {}))
            data["Groups"] = sorted(
                {
                    one["Placement"]["GroupName"]
                    for one in config.get("Overrides", ())
                    if "Placement" in one
                }
            )
            found += self._launched(call, data, spot=spot, by_fleet=True)
        used = ["ec2fleet", "spot"] if spot else ["ec2fleet"]
        return found + [_first_use(one) for one in used]

    def _launched(
        self, call: AwsCall, data: Mapping[str, Any], *, spot: bool, by_fleet: bool
    ) -> list[IamRequest]:
        """A fleet is allowed as itself and as the RunInstances that it makes in our name."""
        new = {"instance": "instance/i-0123", "volume": "volume/vol-0123"}
        new["network-interface"] = "network-interface/eni-0123"
        if spot:
            new["spot-instances-request"] = "spot-instances-request/sir-0123"
        if by_fleet:
            new["fleet"] = "fleet/fleet-0123"
        used = [f"subnet/{_subnet(call)}", "security-group/sg-0123"]
        used += [f"placement-group/{one}" for one in data.get("Groups", ())]
        if by_fleet:
            used.append("launch-template/lt-0123456789abcdef0")
        tags = _tags(call)
        public = [f"image/{data.get('ImageId', 'ami-0123')}", f"snapshot/{_SNAPSHOT}"]
        arns = [f"arn:aws:ec2:{call.region}:{ACCOUNT}:{name}" for name in used]
        arns += [f"arn:aws:ec2:{call.region}::{name}" for name in public]
        found = []
        for maker in ("CreateFleet", "RunInstances") if by_fleet else ("RunInstances",):
            made = [noun for noun in new if (noun, maker) != ("fleet", "RunInstances")]
            for noun in made:
                arn = f"arn:aws:ec2:{call.region}:{ACCOUNT}:{new[noun]}"
                context = _requested(tags.get(noun, {}))
                why = f"{call.operation}, {noun}"
                found.append(IamRequest(f"ec2:{maker}", arn, context, why))
            found += [IamRequest(f"ec2:{maker}", arn, {}, call.operation) for arn in arns]
            found += [
                _tagged(call.region, noun, new[noun], tags[noun], maker)
                for noun in made
                if noun in tags
            ]
        if "IamInstanceProfile" in data:
            role = f"arn:aws:iam::{ACCOUNT}:role/{self._role}"
            context = {"iam:PassedToService": "ec2.amazonaws.com"}
            found.append(IamRequest("iam:PassRole", role, context, call.operation))
        return found


def _subnet(call: AwsCall) -> str:
    for config in call.params.get("LaunchTemplateConfigs", ()):
        for one in config.get("Overrides", ()):
            return str(one.get("SubnetId", "subnet-0123"))
    return str(call.params.get("SubnetId", "subnet-0123"))


def _arn(region: str, noun: str, name: str) -> str:
    return f"arn:aws:ec2:{region}:{ACCOUNT}:{noun}/{name}"


def _tags(call: AwsCall) -> dict[str, dict[str, str]]:
    return {
        one["ResourceType"]: {tag["Key"]: tag["Value"] for tag in one["Tags"]}
        for one in call.params.get("TagSpecifications", ())
    }


def _requested(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"aws:RequestTag/{key}": value for key, value in tags.items()}


def _tagged(region: str, noun: str, name: str, tags: Mapping[str, str], maker: str) -> IamRequest:
    context = {**_requested(tags), "ec2:CreateAction": maker}
    resource = f"arn:aws:ec2:{region}:{ACCOUNT}:{name}"
    return IamRequest("ec2:CreateTags", resource, context, f"{maker}, tags of {noun}")


def _created(call: AwsCall, noun: str, name: str) -> list[IamRequest]:
    tags = _tags(call).get(noun)
    arn = _arn(call.region, noun, name)
    found = [IamRequest(f"ec2:{call.operation}", arn, _requested(tags or {}), call.operation)]
    if tags:
        found.append(_tagged(call.region, noun, f"{noun}/{name}", tags, call.operation))
    return found


def _first_use(service: str) -> IamRequest:
    """EC2 makes its own roles at the first use, with the caller's permission."""
    name = {"ec2fleet": "AWSServiceRoleForEC2Fleet", "spot": "AWSServiceRoleForEC2Spot"}[service]
    path = f"role/aws-service-role/{service}.amazonaws.com/{name}"
    context = {"iam:AWSServiceName": f"{service}.amazonaws.com"}
    return IamRequest(
        "iam:CreateServiceLinkedRole", f"arn:aws:iam::{ACCOUNT}:{path}", context, service
    )
