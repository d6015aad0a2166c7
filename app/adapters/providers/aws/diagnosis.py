"""Is AWS set up: one finding for each thing that a first launch would stumble over.

Reads, and tries what changes something as a dry run. Not here: how findings are shown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from app.adapters.providers.aws.aws_settings import DEPLOYMENT_TAG, AwsSettings
from app.adapters.providers.aws.clients import AwsClients
from app.adapters.providers.aws.errors import code_of
from app.adapters.providers.aws.on_demand_prices import PRICE_LIST_REGION
from app.adapters.providers.aws.placement_scores import placement_scores
from app.adapters.providers.aws.quotas import read_quotas
from app.adapters.providers.aws.region_facts import RegionFacts
from app.domain.machine_catalog import MachineCatalog, MachineType
from app.domain.offer import Market
from app.ports.cloud_provider import ProviderError
from app.ports.provider_diagnosis import Finding

_POLICY: Final = "give the worker's role deploy/aws/control-plane-policy.json"
_NETWORK: Final = "see docs/aws.md, Network"
_MORE_QUOTA: Final = "ask for more under Service Quotas, Amazon EC2; a new account has 0 for these"
_SCORED_TYPES_MAX: Final = 10
_TYPE: Final = "g5.xlarge"
# The policy allows only what carries the deployment's tag.
_TAG: Final = [{"Key": DEPLOYMENT_TAG, "Value": "doctor"}]
_TEMPLATE: Final = "lowtide-try"
# EC2 looks for the template of a fleet only once it has found the call allowed.
_ALLOWED: Final = ("DryRunOperation", "InvalidLaunchTemplate")


def _tags(*nouns: str) -> list[dict[str, Any]]:
    return [{"ResourceType": noun, "Tags": _TAG} for noun in nouns]


# What is tried without being done, with the least that each needs to be understood.
_TRIED: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (
        "run_instances",
        {
            "MinCount": 1,
            "MaxCount": 1,
            "InstanceType": _TYPE,
            "TagSpecifications": _tags("instance", "volume", "network-interface"),
        },
    ),
    (
        "create_launch_template",
        {
            "LaunchTemplateName": _TEMPLATE,
            "LaunchTemplateData": {"InstanceType": _TYPE},
            "TagSpecifications": _tags("launch-template"),
        },
    ),
    (
        "create_fleet",
        {
            "Type": "instant",
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": "spot",
            },
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateName": _TEMPLATE,
                        "Version": "1",
                    },
                    "Overrides": [{"InstanceType": _TYPE}],
                }
            ],
            "TagSpecifications": _tags("fleet", "instance", "volume", "network-interface"),
        },
    ),
)


def diagnose(
    settings: AwsSettings, clients: AwsClients, facts: RegionFacts, catalog: MachineCatalog
) -> tuple[Finding, ...]:
    """Credentials; network, image, permissions and quotas by region; queue, prices and scores."""
    home = sorted(settings.regions)[0]
    found = [
        _try(
            "credentials",
            lambda: _credentials(clients, home),
            "see docs/aws.md, Credentials",
        )
    ]
    if not found[0].ok:
        return tuple(found)
    for region in sorted(settings.regions):
        for name, look, remedy in (
            ("subnets", _subnets, _NETWORK),
            ("security groups", _groups, _NETWORK),
            ("image", _image, "set LOWTIDE_AWS_IMAGE"),
            ("permissions", _permissions, _POLICY),
            ("quota spot", functools.partial(_quota, Market.SPOT), _MORE_QUOTA),
            ("quota on-demand", functools.partial(_quota, Market.ON_DEMAND), _MORE_QUOTA),
        ):
            ask = functools.partial(look, f"{name} {region}", clients, facts, region)
            found.append(_try(f"{name} {region}", ask, remedy))
    found.append(_try("interruption queue", lambda: _queue(settings, clients, home), _POLICY))
    found.append(_try("price list", lambda: _prices(clients), _POLICY))
    scores = functools.partial(_scores, settings, clients, catalog)
    found.append(_try("placement scores", scores, _POLICY))
    return tuple(found)


def _try(name: str, look: Callable[[], Finding], remedy: str) -> Finding:
    try:
        return look()
    except ProviderError as error:
        return Finding(name, False, str(error), remedy)


def _credentials(clients: AwsClients, region: str) -> Finding:
    told = clients.ask("sts", region, "get_caller_identity")
    return Finding("credentials", True, f"account {told['Account']} as {told['Arn']}")


def _subnets(name: str, clients: AwsClients, facts: RegionFacts, region: str) -> Finding:
    subnets = facts.subnets(region)
    return Finding(name, True, f"{len(subnets)} zones: {', '.join(sorted(subnets))}")


def _groups(name: str, clients: AwsClients, facts: RegionFacts, region: str) -> Finding:
    ids = list(facts.security_groups(region))
    groups = clients.ask("ec2", region, "describe_security_groups", GroupIds=ids)["SecurityGroups"]
    open_inside = [
        group["GroupId"]
        for group in groups
        for rule in group.get("IpPermissions", [])
        for pair in rule.get("UserIdGroupPairs", [])
        if pair.get("GroupId") == group["GroupId"] and rule.get("IpProtocol") == "-1"
    ]
    if open_inside:
        return Finding(name, True, f"{', '.join(ids)}; machines of a gang reach each other")
    text = f"{', '.join(ids)}; machines of a gang cannot reach each other"
    return Finding(name, False, text, "allow all traffic from the group itself")


def _image(name: str, clients: AwsClients, facts: RegionFacts, region: str) -> Finding:
    image = facts.image(region)
    return Finding(name, True, f"{image.image_id}, root volume {image.root_gb} GB at least")


def _permissions(name: str, clients: AwsClients, facts: RegionFacts, region: str) -> Finding:
    image = facts.image(region).image_id
    subnet = facts.subnets(region)[min(facts.subnets(region))]
    for operation, given in _TRIED:
        asked = dict(given)
        if operation == "run_instances":
            asked |= {"ImageId": image, "SubnetId": subnet}
        try:
            clients.change("ec2", region, operation, DryRun=True, **asked)
        except ProviderError as error:
            code = "" if error.__cause__ is None else code_of(error.__cause__)
            if not code.startswith(_ALLOWED):
                return Finding(name, False, str(error), _POLICY)
    tried = ", ".join(operation for operation, _ in _TRIED)
    return Finding(name, True, f"allowed, as dry runs say: {tried}")


def _quota(
    market: Market, name: str, clients: AwsClients, facts: RegionFacts, region: str
) -> Finding:
    quotas = [one for one in read_quotas(clients, region) if one.market is market]
    told = ", ".join(f"{one.name}: {one.vcpus} vCPUs" for one in quotas) or "none is told"
    if any(one.vcpus > 0 for one in quotas):
        return Finding(name, True, told)
    return Finding(name, False, f"every launch would be refused ({told})", _MORE_QUOTA)


def _queue(settings: AwsSettings, clients: AwsClients, region: str) -> Finding:
    if settings.queue_url is None:
        text = "not set: interruptions are told by the machines' own watchers only"
        return Finding("interruption queue", True, text)
    clients.ask(
        "sqs",
        region,
        "get_queue_attributes",
        QueueUrl=settings.queue_url,
        AttributeNames=["ApproximateNumberOfMessages"],
    )
    return Finding("interruption queue", True, f"{settings.queue_url} can be read")


def _prices(clients: AwsClients) -> Finding:
    asked = {"ServiceCode": "AmazonEC2", "MaxResults": 1}
    clients.ask("pricing", PRICE_LIST_REGION, "get_products", **asked)
    return Finding("price list", True, "on-demand prices can be read")


def _scores(settings: AwsSettings, clients: AwsClients, catalog: MachineCatalog) -> Finding:
    """For one machine of any of the smallest types of each family."""
    smallest: dict[str, MachineType] = {}
    for one in sorted(catalog.types, key=lambda each: (each.gpu_count, each.vcpus)):
        smallest.setdefault(one.name.partition(".")[0], one)
    types = tuple(one.name for one in smallest.values() if one.spot)[:_SCORED_TYPES_MAX]
    found = placement_scores(clients, tuple(sorted(settings.regions)), types, 1)
    told = ", ".join(f"{region} {score}" for region, score in sorted(found.items())) or "none"
    text = f"{told} of 10 for one spot machine; shown, never used to choose"
    return Finding("placement scores", True, text)
