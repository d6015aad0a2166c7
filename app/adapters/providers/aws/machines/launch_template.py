"""Our own launch template: everything about a machine that is the same for every launch.

A template is named after its content, so that a change of settings makes a new one and a repeated
launch finds the one it used. What differs per launch (user data, tags, types, subnets) goes into
the call itself. Not here: that call (`launching`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.adapters.providers.aws.client.attachment_prices import FREE_MBPS
from app.adapters.providers.aws.client.aws_errors import code_of
from app.adapters.providers.aws.client.aws_settings import DEPLOYMENT_TAG, AwsSettings, own_prefix
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.region_facts import Image, RegionFacts
from app.ports.cloud_provider import ProviderError, RefusalKind

log = logging.getLogger(__name__)

VERSION: Final = "1"
_EXISTS: Final = "InvalidLaunchTemplateName.AlreadyExistsException"
_KEPT_AFTER_USE: Final = timedelta(days=7)
_DELETED_AT_ONCE: Final = 20


class LaunchTemplates:
    """The templates of one deployment; safe for threads."""

    def __init__(
        self, settings: AwsSettings, clients: AwsClients, facts: RegionFacts, deployment_id: str
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._facts = facts
        self._deployment_id = deployment_id
        self._lock = threading.Lock()
        self._made: set[tuple[str, str]] = set()

    def name_for(
        self,
        region: str,
        efa_cards: tuple[int, ...],
        disk_gb: int | None = None,
        instance_type: str = "",
    ) -> str:
        """The template for machines with EFA on these network cards, made when it is not there.

        disk_gb: of the root volume, None: as large as is set. instance_type: whose GPU the image
        must know. Raises ProviderError.
        """
        data = template_data(
            self._settings,
            self._facts.image(region, instance_type),
            self._facts.security_groups(region),
            efa_cards,
            disk_gb,
        )
        digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
        name = f"{own_prefix(self._deployment_id)}{digest[:16]}"
        with self._lock:
            known = (region, name) in self._made
        if not known:
            self._make(region, name, data)
            with self._lock:
                self._made.add((region, name))
        return name

    def forget(self, region: str) -> None:
        """Somebody deleted a template: the next launch makes it anew."""
        with self._lock:
            self._made = {one for one in self._made if one[0] != region}

    def _make(self, region: str, name: str, data: dict[str, Any]) -> None:
        tags = [{"Key": DEPLOYMENT_TAG, "Value": self._deployment_id}]
        try:
            self._clients.change(
                "ec2",
                region,
                "create_launch_template",
                LaunchTemplateName=name,
                LaunchTemplateData=data,
                TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
            )
        except ProviderError as error:
            if error.__cause__ is None or code_of(error.__cause__) != _EXISTS:
                raise
            return
        self._delete_old(region, name)

    def _delete_old(self, region: str, kept: str) -> None:
        """Templates of earlier settings; a failure is no reason not to launch."""
        wanted = [{"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [self._deployment_id]}]
        latest = datetime.now(UTC) - _KEPT_AFTER_USE
        try:
            found = self._facts.pages(
                region, "describe_launch_templates", "LaunchTemplates", Filters=wanted
            )
            old = [
                one["LaunchTemplateId"]
                for one in found
                if one["LaunchTemplateName"] != kept and one["CreateTime"] < latest
            ]
            for template_id in old[:_DELETED_AT_ONCE]:
                self._clients.change(
                    "ec2", region, "delete_launch_template", LaunchTemplateId=template_id
                )
            if old:
                self.forget(region)
        except ProviderError as error:
            log.warning("old launch templates stay in %s: %s", region, error)


def template_data(
    settings: AwsSettings,
    image: Image,
    groups: tuple[str, ...],
    efa_cards: tuple[int, ...],
    disk_gb: int | None = None,
) -> dict[str, Any]:
    """LaunchTemplateData as CreateLaunchTemplate takes it.

    IMDSv2 is required; its answer may travel one hop more, for a trainer in a container's network.
    A shutdown from inside terminates: EC2's own default would stop, and go on billing the disk.

    Raises ProviderError `rejected` for a disk that is smaller than the image's own.
    """
    if disk_gb is not None and disk_gb < image.root_gb:
        raise ProviderError(
            RefusalKind.REJECTED,
            f"resources.disk: {disk_gb}GB is less than the {image.root_gb}GB of the machine image "
            f"{image.image_id}; ask for that much at least",
        )
    volume: dict[str, Any] = {
        "VolumeSize": disk_gb or max(settings.root_volume_gb, image.root_gb),
        "VolumeType": "gp3",
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    if settings.volume_throughput_mbps > FREE_MBPS:
        volume["Throughput"] = settings.volume_throughput_mbps
    if settings.kms_key_id is not None:
        volume["KmsKeyId"] = settings.kms_key_id
    data: dict[str, Any] = {
        "ImageId": image.image_id,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 2,
            "HttpEndpoint": "enabled",
            "InstanceMetadataTags": "disabled",
        },
        "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": volume}],
        "NetworkInterfaces": _interfaces(groups, settings.public_ip, efa_cards),
    }
    if settings.instance_profile is not None:
        data["IamInstanceProfile"] = {"Name": settings.instance_profile}
    return data


def has_one_interface(efa_cards: tuple[int, ...]) -> bool:
    """Whether EC2 can give the machine a public address: not to one with several interfaces."""
    return efa_cards in ((), (0,))


def _interfaces(
    groups: tuple[str, ...], public_ip: bool, efa_cards: tuple[int, ...]
) -> list[dict[str, Any]]:
    """One interface, or the layout that EC2's EFA guide gives for several network cards.

    The first interface carries IP on card 0, and EFA joins it there where that card takes it.
    """

    def card(index: int, device: int, kind: str) -> dict[str, Any]:
        return {
            "NetworkCardIndex": index,
            "DeviceIndex": device,
            "InterfaceType": kind,
            "Groups": list(groups),
            "DeleteOnTermination": True,
        }

    if has_one_interface(efa_cards):
        only = card(0, 0, "efa" if efa_cards else "interface")
        return [{**only, "AssociatePublicIpAddress": public_ip}]
    fast = [card(index, 1 if index == 0 else 0, "efa-only") for index in efa_cards]
    return [card(0, 0, "interface"), *fast]
