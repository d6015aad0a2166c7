"""Is AWS set up: one result for each thing that a first launch would stumble over.

Reads, and tries what changes something as a dry run. Not here: how results are shown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from app.adapters.providers.aws.client.aws_errors import code_of
from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.region_facts import RegionFacts
from app.adapters.providers.aws.diagnosing.permission_checks import (
    POLICY_FILE,
    check_launch_rights,
    check_other_rights,
    missing_right,
    remedy_for,
)
from app.adapters.providers.aws.interruption_queues import queue_place
from app.adapters.providers.aws.machines.quotas import GpuQuota, read_quotas
from app.adapters.providers.aws.prices.on_demand_prices import PRICE_LIST_REGION
from app.adapters.providers.aws.prices.placement_scores import placement_scores
from app.adapters.providers.machine_images import images_in_use
from app.domain.market.machine_catalog import MachineCatalog, MachineType
from app.domain.market.offer import Market
from app.ports.cloud_provider import ProviderError
from app.ports.provider_diagnosis import CheckResult, clock_check, warning

_POLICY: Final = f"give the worker's role {POLICY_FILE}"
_NETWORK: Final = "see docs/aws.md, Network"
_MORE_QUOTA: Final = "ask for more under Service Quotas, Amazon EC2; a new account has 0 for these"
_SCORED_TYPES_MAX: Final = 10
# How EC2 and STS answer in a region that the account has not enabled.
_NOT_ENABLED: Final = (
    "OptInRequired",
    "AuthFailure",
    "UnrecognizedClientException",
    "InvalidClientTokenId",
)
UNKNOWN_DEPLOYMENT: Final = "doctor"
"""Stands for the deployment's id where the database does not tell it."""
_NOT_A_HANDLE: Final = "doctor"
_MARKETS: Final = ((Market.SPOT, "spot"), (Market.ON_DEMAND, "on-demand"))


def diagnose(
    settings: AwsSettings,
    clients: AwsClients,
    facts: RegionFacts,
    catalog: MachineCatalog,
    deployment_id: str,
) -> tuple[CheckResult, ...]:
    """Clock and credentials; network, image, rights and quotas by region; queue and prices."""
    found = list(_credentials(clients, sorted(settings.regions)))
    if not found[-1].ok:
        return tuple(found)
    for region in sorted(settings.regions):
        found += _region(settings, clients, facts, catalog, deployment_id, region)
    queues = [queue_place(entry, settings.regions[0]) for entry in settings.queue_urls]
    if not queues:
        text = "not set: only the machines' own watchers report interruptions"
        found.append(CheckResult("interruption queue", True, text))
    for region, url in queues:
        name = f"interruption queue {region}" if len(queues) > 1 else "interruption queue"
        ask = functools.partial(_queue, name, clients, region, url)
        found.append(_try(name, ask, _POLICY))
    found.append(_try("price list", lambda: _prices(clients), _POLICY))
    scores = functools.partial(_scores, settings, clients, catalog)
    found.append(_try("placement scores", scores, _POLICY))
    return tuple(found)


def unknown_deployment(error: ProviderError) -> CheckResult:
    """What is checked without the deployment's id: rights to what carries it are not."""
    text = f"not known ({error}): rights to what is tagged as ours are tried under another name"
    return CheckResult(
        "deployment", False, text, "let the worker reach its database, then try again"
    )


def _credentials(clients: AwsClients, regions: Sequence[str]) -> Iterator[CheckResult]:
    """Who we are, and how far the clock is from AWS's: 300 s off, nothing that we sign counts.

    One region that answers is enough: STS refuses good keys where the account has not enabled it.
    """
    name = "credentials"
    refused: list[ProviderError] = []
    for region in regions:
        try:
            told = clients.ask("sts", region, "get_caller_identity")
            break
        except ProviderError as error:
            refused.append(error)
    else:
        clock = _clock(getattr(refused[0].__cause__, "response", {}))
        if clock is not None and not clock.ok:
            yield clock
        yield CheckResult(name, False, str(refused[0]), "see docs/aws.md, Credentials")
        return
    clock = _clock(told)
    if clock is not None:
        yield clock
    yield CheckResult(name, True, f"account {told['Account']} as {told['Arn']}")


def _clock(reply: dict[str, Any]) -> CheckResult | None:
    """By the date of an answer of AWS, whatever else it says; None where it has none."""
    stated = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if not stated:
        return None
    ours = datetime.now(UTC).replace(microsecond=0)
    return clock_check("clock", ours, parsedate_to_datetime(stated))


def _region(
    settings: AwsSettings,
    clients: AwsClients,
    facts: RegionFacts,
    catalog: MachineCatalog,
    deployment_id: str,
    region: str,
) -> Iterator[CheckResult]:
    """One result alone where the account has not enabled the region."""
    try:
        facts.subnets(region)
    except ProviderError as error:
        if error.__cause__ is not None and code_of(error.__cause__) in _NOT_ENABLED:
            remedy = (
                "enable it (AWS console, Account, AWS Regions), or take it out of "
                "LOWTIDE_AWS_REGIONS"
            )
            yield CheckResult(f"region {region}", False, f"not enabled here: {error}", remedy)
            return
    sound = True
    for name, look, remedy in (
        ("subnets", _subnets, _NETWORK),
        ("security groups", _groups, _NETWORK),
    ):
        ask = functools.partial(look, f"{name} {region}", clients, facts, region)
        found = _try(f"{name} {region}", ask, remedy)
        sound = sound and found.ok
        yield found
    for image, gpus in images_in_use(settings.image_for).items():
        found = _image(facts, region, image, gpus)
        sound = sound and (found.ok or bool(gpus[0]))
        yield found
    for market, word in _MARKETS if sound else ():
        name = f"launch {word} {region}"
        asked = (name, settings, clients, facts, catalog, deployment_id, region, market)
        yield _try(name, functools.partial(check_launch_rights, *asked), _POLICY)
    name = f"permissions {region}"
    yield _try(
        name, functools.partial(check_other_rights, name, clients, deployment_id, region), _POLICY
    )
    if settings.kms_key_id is not None:
        yield _key(f"key {region}", clients, region, settings.kms_key_id)
    yield from _quotas(clients, region)


def _try(name: str, look: Callable[[], CheckResult], remedy: str) -> CheckResult:
    try:
        return look()
    except ProviderError as error:
        missing = missing_right(error)
        if missing is None:
            return CheckResult(name, False, str(error), remedy)
        return CheckResult(name, False, f"missing: {missing}", remedy_for((missing,)))


def _subnets(name: str, _clients: AwsClients, facts: RegionFacts, region: str) -> CheckResult:
    subnets = facts.subnets(region)
    return CheckResult(name, True, f"{len(subnets)} zones: {', '.join(sorted(subnets))}")


def _groups(name: str, clients: AwsClients, facts: RegionFacts, region: str) -> CheckResult:
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
        return CheckResult(name, True, f"{', '.join(ids)}; machines of a gang reach each other")
    text = f"{', '.join(ids)}; one machine is fine, those of a gang cannot reach each other"
    return warning(name, text, "for jobs with several machines: allow all traffic from the group")


def _image(facts: RegionFacts, region: str, image: str, gpus: tuple[str, ...]) -> CheckResult:
    """One of a few GPUs alone is named after the first."""
    name = f"image {gpus[0]} {region}" if gpus[0] else f"image {region}"

    def look() -> CheckResult:
        found = facts.image_named(region, image)
        used = f", for {', '.join(gpus)}" if gpus[0] else ""
        text = f"{found.image_id}, root volume {found.root_gb} GB at least{used}"
        return CheckResult(name, True, text)

    return _try(name, look, f"set LOWTIDE_AWS_IMAGE{'S' if gpus[0] else ''}")


def _quotas(clients: AwsClients, region: str) -> Iterator[CheckResult]:
    """By market. One without quota fails nobody who uses the other."""
    names = {market: f"quota {word} {region}" for market, word in _MARKETS}
    try:
        quotas = read_quotas(clients, region)
    except ProviderError as error:
        missing = missing_right(error)
        if missing is None:
            yield CheckResult(names[Market.SPOT], False, str(error), _POLICY)
        else:
            told = f"missing: {missing}"
            yield CheckResult(names[Market.SPOT], False, told, remedy_for((missing,)))
        return
    granted = {one.market for one in quotas if one.vcpus > 0}
    for market, word in _MARKETS:
        told = _told([one for one in quotas if one.market is market])
        if market in granted:
            yield CheckResult(names[market], True, told)
        elif granted:
            yield warning(names[market], f"no {word} machine can be launched ({told})", _MORE_QUOTA)
        else:
            text = f"every launch would be refused ({told})"
            yield CheckResult(names[market], False, text, _MORE_QUOTA)


def _told(quotas: list[GpuQuota]) -> str:
    return ", ".join(f"{one.name}: {one.vcpus} vCPUs" for one in quotas) or "none is listed"


def _key(name: str, clients: AwsClients, region: str, key_id: str) -> CheckResult:
    """Whether the key for disks can be used; who else may use it only a launch shows."""
    remedy = "correct LOWTIDE_AWS_KMS_KEY, or enable the key; docs/aws.md, Keys of your own"
    try:
        told = clients.ask("kms", region, "describe_key", KeyId=key_id)["KeyMetadata"]
    except ProviderError as error:
        if missing_right(error) is None:
            return CheckResult(name, False, str(error), remedy)
        text = f"{key_id} cannot be looked at: kms:DescribeKey is not allowed"
        return warning(name, text, "allow it in the key's policy; docs/aws.md, Keys of your own")
    if told.get("KeyState") != "Enabled":
        state = told.get("KeyState", "in an unknown state")
        return CheckResult(name, False, f"{key_id} is {state}", remedy)
    return CheckResult(name, True, f"{key_id} is enabled; `lowtide doctor --launch` uses it")


def _queue(name: str, clients: AwsClients, region: str, url: str) -> CheckResult:
    """Ask, receive without hiding what is there, and delete a message that nobody has."""
    queue = {"QueueUrl": url}
    counted = ["ApproximateNumberOfMessages"]
    clients.ask("sqs", region, "get_queue_attributes", AttributeNames=counted, **queue)
    clients.ask("sqs", region, "receive_message", VisibilityTimeout=0, WaitTimeSeconds=0, **queue)
    entries = [{"Id": "0", "ReceiptHandle": _NOT_A_HANDLE}]
    clients.ask("sqs", region, "delete_message_batch", Entries=entries, **queue)
    return CheckResult(name, True, f"{url} can be read and cleared")


def _prices(clients: AwsClients) -> CheckResult:
    asked = {"ServiceCode": "AmazonEC2", "MaxResults": 1}
    clients.ask("pricing", PRICE_LIST_REGION, "get_products", **asked)
    return CheckResult("price list", True, "on-demand prices can be read")


def _scores(settings: AwsSettings, clients: AwsClients, catalog: MachineCatalog) -> CheckResult:
    """For one machine of any of the smallest types of each family."""
    smallest: dict[str, MachineType] = {}
    for one in sorted(catalog.types, key=lambda each: (each.gpu_count, each.vcpus)):
        smallest.setdefault(one.name.partition(".")[0], one)
    types = tuple(one.name for one in smallest.values() if one.spot)[:_SCORED_TYPES_MAX]
    found = placement_scores(clients, tuple(sorted(settings.regions)), types, 1)
    told = ", ".join(f"{region} {score}" for region, score in sorted(found.items())) or "none"
    text = f"{told} of 10 for one spot machine; for information only"
    return CheckResult("placement scores", True, text)
