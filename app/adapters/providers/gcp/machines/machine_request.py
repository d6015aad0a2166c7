"""What Compute Engine is asked for: the body of an insert or of a regional bulk insert.

Every VM deletes itself: after its longest run, and when it is preempted. Not here: the calls
(`launching`), names and labels (`vm_names`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.adapters.providers.gcp.client.attachment_prices import DISK_PERFORMANCE
from app.adapters.providers.gcp.client.gcp_settings import PROVIDER, GcpSettings
from app.adapters.providers.gcp.machines.machine_fittings import boot_disk_type
from app.adapters.providers.gcp.zones.vm_names import (
    DEPLOYMENT_LABEL,
    NOTICE_LABEL,
    ORDER_LABEL,
    TOKEN_LABEL,
    label_value,
    order_digest,
    to_label_key,
)
from app.adapters.providers.machine_images import shipped_images
from app.domain.market.machine_catalog import MachineType
from app.domain.market.offer import Market
from app.ports.cloud_provider import LaunchOrder, ProviderError, RefusalKind

STARTUP_SCRIPT: Final = "startup-script"
"""The metadata key whose script Google's guest agent runs as root at each boot."""


def labels_of(order: LaunchOrder, deployment_id: str, notice_seconds: int) -> dict[str, str]:
    """The VM's labels, its disk's too: the order's tags and ours. Raises ProviderError."""
    labels = {to_label_key(tag): label_value(value) for tag, value in order.tags.items()}
    labels.setdefault(DEPLOYMENT_LABEL, label_value(deployment_id))
    labels[TOKEN_LABEL] = label_value(order.client_token)
    labels[ORDER_LABEL] = order_digest(order)
    if order.market is Market.SPOT:
        labels[NOTICE_LABEL] = str(notice_seconds)
    return labels


def properties(
    settings: GcpSettings,
    order: LaunchOrder,
    kind: MachineType | None,
    *,
    place: str,
    labels: Mapping[str, str],
    script: str,
    notice_seconds: int,
    policy: str | None,
) -> dict[str, Any]:
    """All but the type, as an `Instance` or `InstanceProperties` takes it.

    place: the zone of an insert, "" for a bulk insert, whose properties take bare names.
    policy: the name of a placement policy, which only a bulk insert is given.
    """
    body: dict[str, Any] = {
        "labels": dict(labels),
        "scheduling": _scheduling(settings, order.market, notice_seconds),
        "disks": [_boot_disk(settings, order, boot_disk_type(settings, kind), place, labels)],
        "metadata": {"items": [{"key": STARTUP_SCRIPT, "value": script}]},
        "tags": {"items": list(settings.network_tags)},
        "shielded_instance_config": {
            "enable_secure_boot": False,  # NVIDIA's driver module is signed by no vendor key
            "enable_vtpm": True,
            "enable_integrity_monitoring": True,
        },
    }
    if settings.service_account is not None:
        account = {"email": settings.service_account, "scopes": list(settings.scopes)}
        body["service_accounts"] = [account]
    if policy is not None:
        body["resource_policies"] = [policy]
    return body


def with_type(
    settings: GcpSettings, body: dict[str, Any], kind: MachineType | None, name: str, place: str
) -> dict[str, Any]:
    """The body with its machine type, its attached GPUs where they are asked for apart, its image.

    Raises ProviderError where no image is named whose driver knows the type's GPU.
    """
    gpu = "" if kind is None else kind.gpu
    image = settings.image_for(gpu)
    if image is None:
        why = shipped_images(PROVIDER).why_not(gpu)
        text = f"{name} ({gpu}) has no image, for {why}: name one in LOWTIDE_GCP_IMAGES"
        raise ProviderError(RefusalKind.UNSUPPORTED, text)
    body["disks"][0]["initialize_params"]["source_image"] = image
    machine_type = kind.base_type if kind is not None and kind.base_type else name
    body["machine_type"] = f"zones/{place}/machineTypes/{machine_type}" if place else machine_type
    if kind is not None and kind.accelerator:
        accelerator = (
            f"zones/{place}/acceleratorTypes/{kind.accelerator}" if place else (kind.accelerator)
        )
        body["guest_accelerators"] = [
            {"accelerator_type": accelerator, "accelerator_count": kind.gpu_count}
        ]
    return body


def bulk_resource(
    order: LaunchOrder, body: dict[str, Any], names: tuple[str, ...], zones: tuple[str, ...]
) -> dict[str, Any]:
    """A bulk insert of `names` into one of `zones`."""
    return {
        "count": order.count,
        "min_count": order.min_count,
        "instance_properties": body,
        "per_instance_properties": {name: {} for name in names},
        "location_policy": {
            "locations": {f"zones/{zone}": {"preference": "ALLOW"} for zone in zones},
            "target_shape": "ANY_SINGLE_ZONE",
        },
    }


def _scheduling(settings: GcpSettings, market: Market, notice_seconds: int) -> dict[str, Any]:
    spot = market is Market.SPOT
    scheduling: dict[str, Any] = {
        "provisioning_model": "SPOT" if spot else "STANDARD",
        "instance_termination_action": "DELETE",
        "on_host_maintenance": "TERMINATE",
        "automatic_restart": False,
        "max_run_duration": {"seconds": settings.max_run_seconds},
    }
    if spot and notice_seconds:
        scheduling["preemption_notice_duration"] = {"seconds": notice_seconds}
    return scheduling


def _boot_disk(
    settings: GcpSettings, order: LaunchOrder, kind: str, place: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    disk: dict[str, Any] = {
        "boot": True,
        "auto_delete": True,
        "initialize_params": {
            "disk_size_gb": order.disk_gb or settings.disk_gb,
            "disk_type": f"zones/{place}/diskTypes/{kind}" if place else kind,
            "labels": dict(labels),
            **DISK_PERFORMANCE.get(kind, {}),
        },
    }
    if settings.kms_key is not None:
        disk["disk_encryption_key"] = {"kms_key_name": settings.kms_key}
    return disk
