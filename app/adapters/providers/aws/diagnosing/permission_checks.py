"""Which rights the worker's role lacks, by dry runs of what a launch and its clearing away call.

EC2 checks a dry run as it would the call, and does nothing ("DryRun" in its API reference). Each
right that is missing is named with the statement of the shipped policy that holds it. Not here:
what else is checked of an account (`diagnosis`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.adapters.providers.aws.client.aws_errors import code_of, kind_of
from app.adapters.providers.aws.client.aws_settings import DEPLOYMENT_TAG, AwsSettings, own_prefix
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.region_facts import RegionFacts
from app.domain.market.machine_catalog import MachineCatalog
from app.domain.market.offer import Market
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.ports.provider_diagnosis import CheckResult

POLICY_FILE: Final = "deploy/aws/control-plane-policy.json"
_LOOK, _INTO, _OURS = "Look", "LaunchIntoTheNetwork", "LaunchOnlyWhatCarriesOurTag"
_NETWORK_NOUNS: Final = frozenset({
    "image", "snapshot", "launch-template", "placement-group", "security-group", "subnet",
    "spot-instances-request",
})  # fmt: skip
STATEMENTS: Final[Mapping[str, str]] = {
    "ec2:CreateLaunchTemplate": "MakeOwnTemplates",
    "ec2:CreatePlacementGroup": "MakeAndDeleteOwnPlacementGroups",
    "ec2:CreateTags": "TagAtLaunchOnly",
    "ec2:DeleteLaunchTemplate": "DeleteOwnTemplates",
    "ec2:DeletePlacementGroup": "MakeAndDeleteOwnPlacementGroups",
    "ec2:DeleteVolume": "DeleteOwnVolumes",
    "ec2:TerminateInstances": "EndOnlyOwnMachines",
    "iam:PassRole": "GiveMachinesTheirRole",
    "pricing:GetProducts": _LOOK,
    "servicequotas:ListServiceQuotas": _LOOK,
    "sqs:DeleteMessage": "ReadInterruptions",
    "sqs:GetQueueAttributes": "ReadInterruptions",
    "sqs:ReceiveMessage": "ReadInterruptions",
    "ssm:GetParameter": "ReadThePublishedImageId",
}
"""The policy's statement for a right; reads of EC2 are in `Look`, launches in two by resource."""

_SERVICES: Final[Mapping[str, str]] = {
    "DescribeKey": "kms",
    **{right.partition(":")[2]: right.partition(":")[0] for right in STATEMENTS},
}
"""Which service an action is of, where it is not EC2."""

READS: Final = (
    "describe_images",
    "describe_instance_type_offerings",
    "describe_instance_types",
    "describe_instances",
    "describe_launch_templates",
    "describe_placement_groups",
    "describe_security_groups",
    "describe_spot_price_history",
    "describe_subnets",
    "describe_volumes",
)
_TYPE: Final = "g4dn.xlarge"
# The call was found allowed, and would have failed for a reason that is no right.
_ALLOWED: Final = ("DryRunOperation", "InvalidLaunchTemplate", "InvalidPlacementGroup")
_ALLOWED_KINDS: Final = (RefusalKind.QUOTA, RefusalKind.NO_CAPACITY, RefusalKind.UNSUPPORTED)
_DENIED: Final = re.compile(r"not authorized to perform: (\S+) on resource: (\S+)")


@dataclass(frozen=True)
class MissingRight:
    """A right that a call was refused for, as AWS named it, and what it said."""

    right: str
    resource: str
    said: str

    def __str__(self) -> str:
        noun = self.resource.rpartition(":")[2].partition("/")[0]
        if self.right == "iam:PassRole":
            return f"{self.right} on {self.resource}"
        return f"{self.right} on {noun}" if noun not in ("", "*") else self.right

    @property
    def statement(self) -> str:
        """The statement of the shipped policy that holds it."""
        if self.right in ("ec2:RunInstances", "ec2:CreateFleet"):
            noun = self.resource.rpartition(":")[2].partition("/")[0]
            return _INTO if noun in _NETWORK_NOUNS else _OURS
        return STATEMENTS.get(self.right, _LOOK)


def missing_right(error: ProviderError) -> MissingRight | None:
    """The right in a refusal of AWS; None for any other error.

    AWS names it in most refusals; else it is that of the call.
    """
    cause = error.__cause__
    if cause is None or not code_of(cause).startswith(("UnauthorizedOperation", "AccessDenied")):
        return None
    found = _DENIED.search(str(cause))
    if found is not None:
        return MissingRight(found[1], found[2].rstrip(",;"), str(error))
    called = str(getattr(cause, "operation_name", "")).removesuffix("Batch")
    return MissingRight(f"{_SERVICES.get(called, 'ec2')}:{called}", "", str(error))


def remedy_for(missing: tuple[MissingRight, ...]) -> str:
    """What to add to the worker's role."""
    by_statement: dict[str, list[str]] = {}
    for one in missing:
        by_statement.setdefault(one.statement, []).append(str(one))
    parts = [f"{', '.join(rights)} (statement {sid})" for sid, rights in by_statement.items()]
    return f"allow the worker's role {'; '.join(parts)}, as {POLICY_FILE} does"


def check_launch_rights(
    name: str,
    settings: AwsSettings,
    clients: AwsClients,
    facts: RegionFacts,
    catalog: MachineCatalog,
    deployment_id: str,
    region: str,
    market: Market,
) -> CheckResult:
    """A dry run of one machine in one market, by RunInstances and by CreateFleet.

    With the machines' role, network and disk as they will be launched: iam:PassRole is checked
    with it. Raises ProviderError where the network or the image cannot be read.
    """
    for operation, asked in (
        ("run_instances", _run_instances(settings, facts, catalog, deployment_id, region, market)),
        ("create_fleet", _create_fleet(deployment_id, market)),
    ):
        refused = _try(clients, region, operation, asked)
        if refused is None:
            continue
        missing = missing_right(refused)
        if missing is None:
            return CheckResult(name, False, str(refused), "fix what AWS names; docs/aws.md")
        told = f"a dry run is refused: {missing} is not allowed"
        return CheckResult(name, False, told, remedy_for((missing,)))
    profile = settings.instance_profile
    role = f", with the role of {profile} (iam:PassRole)" if profile else ""
    return CheckResult(name, True, f"dry runs of RunInstances and CreateFleet are allowed{role}")


def check_other_rights(
    name: str, clients: AwsClients, deployment_id: str, region: str
) -> CheckResult:
    """Dry runs of all else that is called: every right that is missing, in one result."""
    missing: list[MissingRight] = []
    untried: list[str] = []
    for operation, asked in _others(clients, deployment_id, region):
        if asked is None:
            untried.append("".join(word.capitalize() for word in operation.split("_")))
            continue
        refused = _try(clients, region, operation, asked)
        if refused is None:
            continue
        found = missing_right(refused)
        if found is None:
            return CheckResult(name, False, str(refused), "fix what AWS names; docs/aws.md")
        missing.append(found)
    if missing:
        told = f"missing: {', '.join(str(one) for one in missing)}"
        return CheckResult(name, False, told, remedy_for(tuple(missing)))
    told = "allowed, as dry runs say: reads, launch templates, placement groups, what is ours"
    if untried:
        told = (
            "allowed, as dry runs say: reads, launch templates, placement groups; nothing of ours "
            f"is here to try {', '.join(untried)} on: `lowtide doctor --launch` does"
        )
    return CheckResult(name, True, told)


def _others(
    clients: AwsClients, deployment_id: str, region: str
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """(operation, what is asked); None where there is nothing of ours to try it on.

    What ends machines is allowed by their tag alone, so that only one that is there can tell.
    """
    for operation in READS:
        yield operation, {}
    tried = _tried(deployment_id)
    yield (
        "create_launch_template",
        {
            "LaunchTemplateName": tried,
            "LaunchTemplateData": {"InstanceType": _TYPE},
            "TagSpecifications": _tags(deployment_id, "launch-template"),
        },
    )
    yield "create_placement_group", {"GroupName": tried, "Strategy": "cluster"}
    yield "delete_placement_group", {"GroupName": tried}
    machine = _ours(
        clients, deployment_id, region, "describe_instances", ("Reservations", "Instances")
    )
    yield "terminate_instances", machine and {"InstanceIds": [machine["InstanceId"]]}
    volume = _ours(clients, deployment_id, region, "describe_volumes", ("Volumes",))
    yield "delete_volume", volume and {"VolumeId": volume["VolumeId"]}
    template = _ours(
        clients, deployment_id, region, "describe_launch_templates", ("LaunchTemplates",)
    )
    yield (
        "delete_launch_template",
        template and {"LaunchTemplateId": template["LaunchTemplateId"]},
    )


def _ours(
    clients: AwsClients, deployment_id: str, region: str, operation: str, fields: tuple[str, ...]
) -> dict[str, Any] | None:
    """Any one thing with our tag; None without, or where it may not be looked for."""
    ours = {"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [deployment_id]}
    asked: dict[str, Any] = {"Filters": [ours]}
    if operation == "describe_instances":
        live = {"Name": "instance-state-name", "Values": ["pending", "running"]}
        asked["Filters"].append(live)
    try:
        found: list[Any] = [clients.ask("ec2", region, operation, **asked)]
    except ProviderError:
        return None  # the dry run of this very read says so
    for field in fields:
        found = [item for one in found for item in one.get(field, [])]
    return found[0] if found else None


def _try(
    clients: AwsClients, region: str, operation: str, asked: dict[str, Any]
) -> ProviderError | None:
    """The refusal of a dry run; None where it is allowed."""
    try:
        clients.change("ec2", region, operation, DryRun=True, **asked)
    except ProviderError as error:
        code = "" if error.__cause__ is None else code_of(error.__cause__)
        if code.startswith(_ALLOWED) or (code and kind_of(code) in _ALLOWED_KINDS):
            return None
        return error
    return None


def _run_instances(
    settings: AwsSettings,
    facts: RegionFacts,
    catalog: MachineCatalog,
    deployment_id: str,
    region: str,
    market: Market,
) -> dict[str, Any]:
    image, (kind, subnet) = facts.image(region), _place(facts, catalog, region)
    disk: dict[str, Any] = {
        "VolumeSize": max(settings.root_volume_gb, image.root_gb),
        "VolumeType": "gp3",
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    if settings.kms_key_id is not None:
        disk["KmsKeyId"] = settings.kms_key_id
    card = {
        "DeviceIndex": 0,
        "SubnetId": subnet,
        "Groups": list(facts.security_groups(region)),
        "AssociatePublicIpAddress": settings.public_ip,
        "DeleteOnTermination": True,
    }
    asked: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": image.image_id,
        "InstanceType": kind,
        "NetworkInterfaces": [card],
        "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
        # Not the spot request: CreateFleet cannot tag it.
        "TagSpecifications": _tags(deployment_id, "instance", "volume", "network-interface"),
    }
    if market is Market.SPOT:
        asked["InstanceMarketOptions"] = {"MarketType": "spot"}
    if settings.instance_profile is not None:
        asked["IamInstanceProfile"] = {"Name": settings.instance_profile}
    return asked


def _place(facts: RegionFacts, catalog: MachineCatalog, region: str) -> tuple[str, str]:
    """The smallest type that is offered in a zone with a subnet, and that subnet."""
    subnets, offered = facts.subnets(region), facts.offered(region)
    for one in sorted(catalog.types, key=lambda each: (each.gpu_count, each.vcpus, each.name)):
        zone = next((zone for zone in sorted(subnets) if (one.name, zone) in offered), None)
        if zone is not None:
            return one.name, subnets[zone]
    return _TYPE, subnets[min(subnets)]


def _create_fleet(deployment_id: str, market: Market) -> dict[str, Any]:
    """EC2 looks for the template of a fleet only once it has found the call allowed."""
    kind = "spot" if market is Market.SPOT else "on-demand"
    template = {"LaunchTemplateName": _tried(deployment_id), "Version": "1"}
    return {
        "Type": "instant",
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": kind,
        },
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": template,
                "Overrides": [{"InstanceType": _TYPE}],
            }
        ],
        "TagSpecifications": _tags(
            deployment_id, "fleet", "instance", "volume", "network-interface"
        ),
    }


def _tried(deployment_id: str) -> str:
    """The name of a template or group that is never made: ours by its name, as the policy asks."""
    return f"{own_prefix(deployment_id)}try"


def _tags(deployment_id: str, *nouns: str) -> list[dict[str, Any]]:
    tag = {"Key": DEPLOYMENT_TAG, "Value": deployment_id}
    return [{"ResourceType": noun, "Tags": [tag]} for noun in nouns]
