"""CreateFleet of type instant: which override is taken, what is refused, what is launched.

Not here: idempotency and the wire (`aws_fake_ec2`).
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from xml.sax.saxutils import escape

from moto.backends import get_backend

from tests.support.aws.aws_fake_network import CODE, network_problem, takes_cluster_groups
from tests.support.aws.aws_world import ACCOUNT, GP3_FREE_MBPS, TYPES, AwsWorld, Rented, now

Refused = tuple[str, str, int]
# "User data is limited to 16 KB, in raw form, before it is base64-encoded" (EC2 user guide, "Run
# commands when you launch an EC2 instance with user data input").
_USER_DATA_MAX = 16 * 1024
# "Amazon EBS General Purpose SSD volumes": 0.25 MiB/s for each of a gp3 volume's 3,000 IOPS.
_GP3_MBPS_MAX = 750


@dataclass
class _Choice:
    template: Any
    override: dict[str, Any]
    zone: str
    price: int
    room: int

    @property
    def type(self) -> str:
        return str(self.override["InstanceType"])


@dataclass
class _Failure:
    template: Any
    override: dict[str, Any]
    code: str
    message: str


def create_fleet(world: AwsWorld, region: str, asked: dict[str, Any]) -> tuple[Refused | None, str]:
    """An error of the whole call, or the inside of its answer."""
    if asked.get("Type") != "instant":
        return ("InvalidParameterValue", "only instant fleets are answered here", 400), ""
    target = asked["TargetCapacitySpecification"]
    spot = target["DefaultTargetCapacityType"] == "spot"
    options = asked.get("SpotOptions" if spot else "OnDemandOptions", {})
    least = int(options.get("MinTargetCapacity", 1))
    single = "true" in (options.get("SingleAvailabilityZone"), options.get("SingleInstanceType"))
    if "MinTargetCapacity" in options and not single:
        return ("InvalidParameterValue", "MinTargetCapacity needs a Single flag", 400), ""
    if world.leasts_broken > 0:
        world.leasts_broken, least = world.leasts_broken - 1, 1
    choices: list[_Choice] = []
    failures: list[_Failure] = []
    for config in asked["LaunchTemplateConfigs"]:
        wrong = _look_at_each(world, region, config, spot, choices, failures)
        if wrong is not None:
            return wrong, ""
    if not choices and not failures:
        return ("MissingParameter", "no overrides", 400), ""
    count = int(target["TotalTargetCapacity"])
    if spot:
        choices.sort(key=lambda one: (min(one.room, count) < count, one.price))
    else:
        choices.sort(key=lambda one: float(one.override.get("Priority", 0)))
    taken = next((one for one in choices if one.room >= max(1, least)), None)
    for one in choices:
        if one is not taken and one.room < least:
            failures.append(_short(one))
    if taken is None:
        return None, _inner("", failures, spot)
    given = min(count, taken.room)
    if given < count:
        failures.append(_short(taken))
    ids = _launch(world, region, asked, taken, given, spot)
    items = "".join(f"<item>{one}</item>" for one in ids)
    launched = (
        f"<item>{_about(taken.template, taken.override, taken.zone)}"
        f"<lifecycle>{'spot' if spot else 'on-demand'}</lifecycle>"
        f"<instanceIds>{items}</instanceIds><instanceType>{taken.type}</instanceType>"
        f"<availabilityZone>{taken.zone}</availabilityZone></item>"
    )
    return None, _inner(launched, failures, spot)


def _look_at_each(
    world: AwsWorld,
    region: str,
    config: dict[str, Any],
    spot: bool,
    choices: list[_Choice],
    failures: list[_Failure],
) -> Refused | None:
    """Adds each override of a template to the choices or the failures; an error ends the call."""
    told = config["LaunchTemplateSpecification"]
    templates = get_backend("ec2")[ACCOUNT][region]
    if told.get("LaunchTemplateName") not in templates.launch_template_name_to_ids:
        text = "The specified launch template, with template name, does not exist."
        return "InvalidLaunchTemplateName.NotFoundException", text, 400
    template = templates.get_launch_template_by_name(told["LaunchTemplateName"])
    data = template.get_version(int(told["Version"])).data
    user_data = base64.b64decode(told.get("LaunchTemplateSpecificationUserData", ""))
    if len(user_data) > _USER_DATA_MAX:
        return "InvalidUserData.Malformed", "User data is limited to 16384 bytes", 400
    for override in config.get("Overrides", []):
        wrong = _bad_price(override)
        if wrong is not None:
            return wrong
        found = _look(world, region, template, data, override, spot)
        (choices if isinstance(found, _Choice) else failures).append(found)  # type: ignore[arg-type]
    return None


def _bad_price(override: dict[str, Any]) -> Refused | None:
    if float(override.get("MaxPrice", "1")) <= 0.001:
        return "InvalidParameterValue", "MaxPrice is too low to be valid", 400
    return None


def _look(
    world: AwsWorld, region: str, template: Any, data: Any, override: dict[str, Any], spot: bool
) -> _Choice | _Failure:
    name = override["InstanceType"]

    def no(code: str, message: str) -> _Failure:
        return _Failure(template, override, code, message)

    subnet = get_backend("ec2")[ACCOUNT][region]
    found = [one for one in subnet.describe_subnets() if one.id == override.get("SubnetId")]
    if not found:
        return no("InvalidSubnetID.NotFound", f"The subnet ID {override.get('SubnetId')} is gone")
    zone = found[0].availability_zone
    fault = world.fault("override", name, zone)
    if fault is not None:
        return no(fault.code, fault.message)
    if data["ImageId"] not in world.images:
        return no("InvalidAMIID.NotFound", f"The image id '[{data['ImageId']}]' does not exist")
    if (name, zone) not in world.offered:
        text = f"Your requested instance type ({name}) is not supported in {zone}."
        return no("Unsupported", text)
    mbps = int(data["BlockDeviceMappings"][0]["Ebs"].get("Throughput") or GP3_FREE_MBPS)
    if not GP3_FREE_MBPS <= mbps <= _GP3_MBPS_MAX:
        return no("InvalidParameterValue", f"Throughput {mbps} is too high for 3000 IOPS")
    problem = network_problem(name, data.get("NetworkInterfaces", []))
    if problem is not None:
        return no(CODE, problem)
    group = override.get("Placement", {}).get("GroupName")
    if group is not None and not takes_cluster_groups(name):
        return no(CODE, f"{name} cannot be launched into a cluster placement group")
    if group is not None and (region, group) not in world.placement_groups:
        return no("InvalidPlacementGroup.Unknown", f"The Placement Group '{group}' is unknown.")
    price = world.price_at(name, zone, now()) if spot else TYPES[name][0]
    limit = override.get("MaxPrice")
    if spot and limit is not None and round(float(limit) * 1_000_000) < price:
        return no("SpotMaxPriceTooLow", f"Your Spot request price of {limit} is lower than {price}")
    quota = world.quota_left(name, region, spot)
    if quota is not None and quota < 1:
        code = "MaxSpotInstanceCountExceeded" if spot else "VcpuLimitExceeded"
        return no(code, "The vCPU quota of this family is used up")
    room = world.free(name, zone, spot)
    return _Choice(template, override, zone, price, room if quota is None else min(room, quota))


def _short(one: _Choice) -> _Failure:
    text = f"There is no Spot capacity available that matches your request for {one.type}."
    return _Failure(one.template, one.override, "InsufficientInstanceCapacity", text)


def _about(template: Any, override: dict[str, Any], zone: str = "") -> str:
    parts = "".join(
        f"<{tag}>{escape(str(value))}</{tag}>"
        for tag, value in (
            ("instanceType", override.get("InstanceType")),
            ("subnetId", override.get("SubnetId")),
            ("maxPrice", override.get("MaxPrice")),
            ("availabilityZone", zone),
        )
        if value
    )
    return (
        "<launchTemplateAndOverrides><launchTemplateSpecification>"
        f"<launchTemplateId>{template.id}</launchTemplateId><version>1</version>"
        f"</launchTemplateSpecification><overrides>{parts}</overrides>"
        "</launchTemplateAndOverrides>"
    )


def _inner(launched: str, failures: list[_Failure], spot: bool) -> str:
    errors = "".join(
        f"<item>{_about(one.template, one.override)}"
        f"<lifecycle>{'spot' if spot else 'on-demand'}</lifecycle>"
        f"<errorCode>{one.code}</errorCode><errorMessage>{escape(one.message)}</errorMessage></item>"
        for one in failures
    )
    return (
        f"<fleetId>fleet-{uuid.uuid4()}</fleetId><errorSet>{errors}</errorSet>"
        f"<fleetInstanceSet>{launched}</fleetInstanceSet>"
    )


def _launch(
    world: AwsWorld,
    region: str,
    asked: dict[str, Any],
    taken: _Choice,
    count: int,
    spot: bool,
) -> list[str]:
    """Start them in moto as the template says; moto leaves out half of it by itself."""
    records = get_backend("ec2")[ACCOUNT][region]
    data = taken.template.get_version(1).data
    tags: dict[str, dict[str, str]] = {
        one["ResourceType"]: {tag["Key"]: tag["Value"] for tag in one["Tag"]}
        for one in asked.get("TagSpecification", [])
    }
    cards = data.get("NetworkInterfaces", [])
    groups = cards[0]["Groups"] if cards else data.get("SecurityGroupIds")
    told = asked["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]
    reservation = records.run_instances(
        data["ImageId"],
        count,
        told.get("LaunchTemplateSpecificationUserData"),
        [],
        instance_type=taken.type,
        is_instance_type_default=False,
        region_name=region,
        subnet_id=taken.override["SubnetId"],
        security_group_ids=list(groups or []),
        nics=[],
        tags=tags,
        block_device_mappings=data["BlockDeviceMappings"],
        instance_market_options="spot" if spot else {},
        instance_initiated_shutdown_behavior=data.get("InstanceInitiatedShutdownBehavior"),
        metadata_options=data.get("MetadataOptions", {}),
        associate_public_ip=False,
        client_token=f"fleet-{uuid.uuid4()}-0",
    )
    launched_at = now().replace(microsecond=0)
    for instance in reservation.instances:
        instance.placement.group_name = taken.override.get("Placement", {}).get("GroupName", "")
        for card in instance.nics.values():
            card.add_tags(tags.get("network-interface", {}))
        world.machines[instance.id] = Rented(
            machine_id=instance.id,
            region=region,
            zone=taken.zone,
            instance_type=taken.type,
            spot=spot,
            launched_at=launched_at,
            hidden_looks=world.hidden_looks,
            pending_until=now() + timedelta(seconds=world.pending_seconds),
            volume_gb=int(data["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]),
            volume_mbps=int(
                data["BlockDeviceMappings"][0]["Ebs"].get("Throughput") or GP3_FREE_MBPS
            ),
            public_ip=str(cards[0].get("AssociatePublicIpAddress")).lower() == "true",
        )
    return [instance.id for instance in reservation.instances]
