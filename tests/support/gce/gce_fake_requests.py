"""What Compute Engine refuses in a request: the types of its client, and the rules they lack.

Each rule names the document that it is from. [SDK] is the reference text that google-cloud-compute
1.56.0 carries in its types. Stricter than the cloud where a document leaves two readings.
Not here: what a good request does (`gce_fake_engine`).
"""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

from google.cloud import compute_v1
from google.protobuf.json_format import ParseError

from tests.support.gce.gce_fake_families import family_of, nic_limits
from tests.support.gce.gce_fake_state import last

IMAGE_GB = 50
"""The image of every boot disk."""

# [SDK] Instance.name, ResourcePolicy.name: RFC 1035, 1-63 characters. Tags.items likewise.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
# "Organize resources using labels", requirements; at most 64 on a resource.
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_LABELS_MAX = 64
# [SDK] Items.key, Items.value; "About VM metadata", limits: 512 KB for all of a VM.
_METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,127}")
_METADATA_VALUE_MAX, _METADATA_MAX = 262_144, 512 * 1024
# "Limit the run time of a VM": 30 seconds to 120 days.
_RUN_SECONDS = range(30, 120 * 86_400 + 1)
# [SDK] Scheduling.preemption_notice_duration; release notes: 0 or 120 s, Spot VMs only.
_NOTICE_SECONDS = (0, 120)
_BULK_MAX = 5_000


class ApiError(Exception):
    """An HTTP error of the API; `reason` as in `error.errors[].reason`."""

    def __init__(
        self, status: int, reason: str, message: str, details: tuple[Any, ...] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.details = details


def refuse(field: str, value: Any, why: str) -> ApiError:
    """A 400 as the API words it."""
    return ApiError(400, "invalid", f"Invalid value for field '{field}': '{value}'. {why}")


def check_request_id(request_id: str) -> None:
    """[SDK] InsertInstanceRequest.request_id: a valid UUID that is not zero."""
    if request_id:
        try:
            good = UUID(request_id).int != 0
        except ValueError:
            good = False
        if not good:
            raise refuse("requestId", request_id, "Must be a valid, nonzero UUID")


def check_insert(zone: str, body: dict[str, Any]) -> None:
    """The body of `instances.insert`."""
    check_types(compute_v1.Instance, body, "resource")
    check_name("resource.name", body.get("name", ""))
    machine_type = body.get("machineType", "")
    _check_url("resource.machineType", machine_type, f"zones/{zone}/machineTypes/")
    _check_instance("resource", body, last(machine_type), zone)


def check_bulk_insert(body: dict[str, Any]) -> None:
    """The body of `regionInstances.bulkInsert`."""
    check_types(compute_v1.BulkInsertInstanceResource, body, "resource")
    count = int(body.get("count", 0))
    if not 1 <= count <= _BULK_MAX:
        raise refuse("resource.count", count, f"Must be between 1 and {_BULK_MAX}")
    if not 0 <= int(body.get("minCount", count)) <= count:
        raise refuse("resource.minCount", body["minCount"], "Must be at most count")
    names = body.get("perInstanceProperties", {})
    if len(names) != count:
        raise refuse("resource.perInstanceProperties", len(names), "Must name each instance")
    for name in names:
        check_name("resource.perInstanceProperties", name)
    policy = body.get("locationPolicy", {})
    _check_enum(compute_v1.LocationPolicy.TargetShape, policy.get("targetShape"), "targetShape")
    for place, rule in policy.get("locations", {}).items():
        # [SDK] LocationPolicy.locations: keys are URLs of zones, full or partial.
        _check_url("resource.locationPolicy.locations", place, "zones/")
        _check_enum(
            compute_v1.LocationPolicyLocation.Preference, rule.get("preference"), "preference"
        )
    properties = body.get("instanceProperties", {})
    machine_type = properties.get("machineType", "")
    # [SDK] InstanceProperties.machine_type: a URL results in an INTERNAL_ERROR.
    _check_bare("resource.instanceProperties.machineType", machine_type)
    _check_instance("resource.instanceProperties", properties, machine_type, "")


def check_policy(body: dict[str, Any]) -> None:
    """The body of `resourcePolicies.insert`."""
    check_types(compute_v1.ResourcePolicy, body, "resource")
    check_name("resource.name", body.get("name", ""))
    if not compute_v1.ResourcePolicyGroupPlacementPolicy.Collocation.__members__.get(
        body.get("groupPlacementPolicy", {}).get("collocation", "")
    ):
        raise refuse("resource.groupPlacementPolicy.collocation", "", "Must be COLLOCATED")


def check_name(field: str, name: str) -> None:
    """RFC 1035."""
    if _NAME.fullmatch(name) is None:
        why = "Must be a match of regex '[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?'"
        raise refuse(field, name, why)


def _check_instance(field: str, body: dict[str, Any], machine_type: str, zone: str) -> None:
    """zone: of an insert; "" for `InstanceProperties`, which takes names where that takes URLs."""
    check_labels(f"{field}.labels", body.get("labels", {}))
    _check_metadata(field, body.get("metadata", {}).get("items", []))
    for tag in body.get("tags", {}).get("items", []):
        check_name(f"{field}.tags.items", tag)
    accounts = body.get("serviceAccounts", [])
    if len(accounts) > 1:
        raise refuse(f"{field}.serviceAccounts", len(accounts), "Only one account is supported")
    _check_scheduling(f"{field}.scheduling", body.get("scheduling", {}))
    for number, disk in enumerate(body.get("disks", [])):
        _check_disk(f"{field}.disks[{number}]", disk, machine_type, zone)
    if sum(bool(disk.get("boot")) for disk in body.get("disks", [])) != 1:
        raise refuse(f"{field}.disks", "", "A boot disk must be specified, and only one")
    _check_accelerators(field, body.get("guestAccelerators", []), machine_type, zone)
    _check_interfaces(f"{field}.networkInterfaces", body.get("networkInterfaces", []), machine_type)
    for policy in body.get("resourcePolicies", []):
        # [SDK] InstanceProperties.resource_policies: "names, not URLs".
        if zone:
            _check_url(f"{field}.resourcePolicies[0]", policy, "/resourcePolicies/")
        else:
            _check_bare(f"{field}.resourcePolicies[0]", policy)
        if not family_of(machine_type).compact:
            # "Placement policies overview", supported machine series.
            why = f"The compact placement policy does not support machine type {machine_type}."
            raise refuse(f"{field}.resourcePolicies[0]", policy, why)


def check_labels(field: str, labels: dict[str, str]) -> None:
    """Keys, values and how many."""
    if len(labels) > _LABELS_MAX:
        raise refuse(field, len(labels), f"At most {_LABELS_MAX} labels are allowed")
    for key, value in labels.items():
        if _LABEL_KEY.fullmatch(key) is None or _LABEL_VALUE.fullmatch(value) is None:
            raise refuse(field, f"{key}={value}", "The label is invalid")


def _check_metadata(field: str, items: list[dict[str, str]]) -> None:
    total = 0
    for item in items:
        key, size = item.get("key", ""), len(item.get("value", "").encode())
        total += size
        if _METADATA_KEY.fullmatch(key) is None:
            raise refuse(f"{field}.metadata.items.key", key, "Must match [a-zA-Z0-9-_]{1,127}")
        if size > _METADATA_VALUE_MAX:
            why = f"The value of {key} is longer than {_METADATA_VALUE_MAX} bytes"
            raise refuse(f"{field}.metadata.items.value", size, why)
    if total > _METADATA_MAX:
        raise refuse(f"{field}.metadata", total, f"Larger than {_METADATA_MAX} bytes")


def _check_scheduling(field: str, scheduling: dict[str, Any]) -> None:
    """ "Create and use Spot VMs", "Limit the run time of a VM", "GPU VMs": no live migration."""
    types = compute_v1.Scheduling
    model = scheduling.get("provisioningModel", "STANDARD")
    _check_enum(types.ProvisioningModel, model, "provisioningModel")
    _check_enum(types.OnHostMaintenance, scheduling.get("onHostMaintenance"), "onHostMaintenance")
    action = scheduling.get("instanceTerminationAction")
    _check_enum(types.InstanceTerminationAction, action, "instanceTerminationAction")
    if scheduling.get("onHostMaintenance") != "TERMINATE":
        raise refuse(f"{field}.onHostMaintenance", "MIGRATE", "Instances with GPUs must TERMINATE")
    if model == "SPOT" and scheduling.get("automaticRestart", True):
        raise refuse(f"{field}.automaticRestart", True, "Spot VMs cannot be restarted")
    limited = "maxRunDuration" in scheduling
    if action and model == "STANDARD" and not limited:
        why = "Standard VMs take an action only with maxRunDuration or terminationTime"
        raise refuse(f"{field}.instanceTerminationAction", action, why)
    if limited and not action:
        raise refuse(f"{field}.maxRunDuration", "", "instanceTerminationAction is required")
    if limited and int(scheduling["maxRunDuration"]["seconds"]) not in _RUN_SECONDS:
        seconds = scheduling["maxRunDuration"]["seconds"]
        raise refuse(f"{field}.maxRunDuration", seconds, "Must be 30 seconds to 120 days")
    notice = scheduling.get("preemptionNoticeDuration")
    if notice is not None and (model != "SPOT" or int(notice["seconds"]) not in _NOTICE_SECONDS):
        raise refuse(f"{field}.preemptionNoticeDuration", notice, "0 or 120 s, for Spot VMs")


def _check_disk(field: str, disk: dict[str, Any], machine_type: str, zone: str) -> None:
    """[SDK] AttachedDiskInitializeParams.disk_type: a URL for one instance, else without."""
    parameters = disk.get("initializeParams", {})
    field = f"{field}.initializeParams"
    check_labels(f"{field}.labels", parameters.get("labels", {}))
    _check_url(f"{field}.sourceImage", parameters.get("sourceImage", ""), "global/images/")
    size = int(parameters.get("diskSizeGb", IMAGE_GB))
    if size < IMAGE_GB:
        why = f"Requested disk size cannot be smaller than the image size ({IMAGE_GB} GB)"
        raise refuse(f"{field}.diskSizeGb", size, why)
    kind = parameters.get("diskType", "")
    if zone:
        _check_url(f"{field}.diskType", kind, f"zones/{zone}/diskTypes/")
    elif kind:
        _check_bare(f"{field}.diskType", kind)
    if last(kind) not in family_of(machine_type).disks:
        # As public reports quote it (hashicorp/terraform-provider-google and others).
        text = f"{last(kind)} disk type cannot be used by {machine_type} machine type."
        raise ApiError(400, "badRequest", text)
    if last(kind) == "hyperdisk-balanced":
        # "About Hyperdisk", limits of Hyperdisk Balanced: at least 3,000 IOPS and 140 MiB/s.
        iops, speed = (
            int(parameters.get(f"provisioned{one}", 0)) for one in ("Iops", "Throughput")
        )
        if iops < 3_000 or speed < 140 or speed > iops / 4:
            raise refuse(f"{field}.provisionedIops", iops, "Not within the limits of the disk type")


def _check_accelerators(field: str, asked: list[dict[str, Any]], machine: str, zone: str) -> None:
    for one in asked:
        kind = one.get("acceleratorType", "")
        if zone:
            _check_url(f"{field}.guestAccelerators", kind, f"zones/{zone}/acceleratorTypes/")
        else:
            _check_bare(f"{field}.guestAccelerators", kind)
        if last(kind) not in family_of(machine).attachable:
            text = f"[{machine}, {last(kind)}] features are not compatible for creating instance."
            raise ApiError(400, "badRequest", text)


def _check_interfaces(field: str, interfaces: list[dict[str, Any]], machine_type: str) -> None:
    """ "Networking and GPU machines": how many of which type each machine has."""
    family, most = family_of(machine_type), nic_limits(machine_type)
    if not interfaces:
        raise refuse(field, "", "At least one network interface is required.")
    seen: dict[str, int] = {}
    places = set()
    for number, one in enumerate(interfaces):
        kind = one.get("nicType", "")
        _check_enum(compute_v1.NetworkInterface.NicType, kind or None, "nicType")
        if family.gvnic_only and kind not in ("GVNIC", "MRDMA"):
            # "Using Google Virtual NIC": third generation and later have no VirtIO.
            text = (
                f"[{machine_type}, VIRTIO_NET] features are not compatible for creating instance."
            )
            raise ApiError(400, "badRequest", text)
        for part in ("network", "subnetwork"):
            if one.get(part):
                _check_url(f"{field}[{number}].{part}", one[part], f"/{part}s/")
        for config in one.get("accessConfigs", []):
            # [SDK] NetworkInterface.access_configs: only ONE_TO_ONE_NAT, at most one.
            if config.get("type") != "ONE_TO_ONE_NAT" or kind == "MRDMA":
                raise refuse(f"{field}[{number}].accessConfigs", config, "Not supported")
        seen[kind or "VIRTIO_NET"] = seen.get(kind or "VIRTIO_NET", 0) + 1
        place = one.get("subnetwork") or one.get("network")
        if place in places:
            # "Multiple network interfaces": each in a network of its own.
            raise refuse(f"{field}[{number}]", place, "Interfaces must be in unique networks")
        places.add(place)
    for kind, count in seen.items():
        if count > most.get("MRDMA" if kind == "MRDMA" else "GVNIC", 0):
            raise refuse(field, count, f"Too many {kind} interfaces for {machine_type}.")


def check_types(kind: Any, body: dict[str, Any], field: str) -> None:
    """As the client's own types have it: unknown fields and wrong kinds are refused."""
    try:
        kind.from_json(json.dumps(body), ignore_unknown_fields=False)
    except (ParseError, TypeError, ValueError) as error:
        raise ApiError(400, "badRequest", f"Invalid JSON payload in '{field}': {error}") from error


def _check_enum(kind: Any, value: str | None, field: str) -> None:
    if value is not None and value not in kind.__members__:
        raise refuse(field, value, "No such value of the enumeration")


def _check_bare(field: str, value: str) -> None:
    if not value or "/" in value:
        raise refuse(field, value, "Must be a name, not a URL")


def _check_url(field: str, value: str, within: str) -> None:
    if within not in value or not last(value):
        raise refuse(field, value, "The URL is malformed.")
