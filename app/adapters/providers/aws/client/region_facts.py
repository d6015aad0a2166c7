"""What the provider must know of a region before it can launch there, asked seldom.

Lives here: subnets, security groups, the image, what is offered where. Not here: prices, and
machines that run.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from app.adapters.providers.aws.client.aws_settings import PROVIDER, AwsSettings
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.machine_images import shipped_images
from app.domain.market.machine_catalog import MachineCatalog
from app.ports.cloud_provider import ProviderError, RefusalKind

T = TypeVar("T")

_NETWORK_SECONDS: Final = 300.0
_IMAGE_SECONDS: Final = 3_600.0
_PAGES_MAX: Final = 50


@dataclass(frozen=True)
class Image:
    """The machine image with what its root volume needs."""

    image_id: str
    root_device: str
    root_gb: int


class RegionFacts:
    """Answers kept for a while; safe for threads. Every method raises ProviderError."""

    def __init__(self, settings: AwsSettings, clients: AwsClients, catalog: MachineCatalog) -> None:
        self._settings = settings
        self._clients = clients
        self._catalog = catalog
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[float, Any]] = {}

    def subnets(self, region: str) -> dict[str, str]:
        """Zone -> the subnet used there: the first by id, so that a repeated launch is the same."""
        return self._keep("subnets", region, _NETWORK_SECONDS, self._ask_subnets)

    def security_groups(self, region: str) -> tuple[str, ...]:
        """Groups that machines are put into."""
        return self._keep("groups", region, _NETWORK_SECONDS, self._ask_groups)

    def image_problem(self, instance_type: str) -> str | None:
        """Why machines of the type have no image to boot; None where they have one."""
        gpu = self._gpu(instance_type)
        if self._settings.image_for(gpu) is not None:
            return None
        why = shipped_images(PROVIDER).why_not(gpu)
        return f"{instance_type} ({gpu}) has no image, for {why}: name one in LOWTIDE_AWS_IMAGES"

    def image(self, region: str, instance_type: str = "") -> Image:
        """The image that machines of the type boot; "": that of machines without a GPU."""
        name = self._settings.image_for(self._gpu(instance_type))
        if name is None:
            raise ProviderError(RefusalKind.UNSUPPORTED, self.image_problem(instance_type) or "")
        return self.image_named(region, name)

    def image_named(self, region: str, name: str) -> Image:
        """An image by its id, or by the SSM parameter that holds it."""
        ask = functools.partial(self._ask_image, name)
        return self._keep(f"image {name}", region, _IMAGE_SECONDS, ask)

    def _gpu(self, instance_type: str) -> str:
        found = self._catalog.get(instance_type)
        return "" if found is None else found.gpu

    def offered(self, region: str) -> frozenset[tuple[str, str]]:
        """(type, zone) pairs that are offered, of the catalog's families."""
        return self._keep("offered", region, _IMAGE_SECONDS, self._ask_offered)

    def _keep(self, what: str, region: str, seconds: float, ask: Callable[[str], T]) -> T:
        with self._lock:
            kept = self._kept.get((what, region))
        if kept is not None and time.monotonic() < kept[0]:
            known: T = kept[1]
            return known
        found = ask(region)
        with self._lock:
            self._kept[what, region] = (time.monotonic() + seconds, found)
        return found

    def pages(self, region: str, operation: str, field: str, **asked: object) -> list[Any]:
        """All items of a paged answer; raises ProviderError when there are too many pages."""
        items: list[Any] = []
        for _ in range(_PAGES_MAX):
            page = self._clients.ask("ec2", region, operation, **asked)
            items += page.get(field, [])
            if not page.get("NextToken"):
                return items
            asked["NextToken"] = page["NextToken"]
        text = f"{operation} in {region}: more than {_PAGES_MAX} pages"
        raise ProviderError(RefusalKind.UNAVAILABLE, text)

    def _network_filter(self, given: tuple[str, ...], name: str) -> list[dict[str, Any]]:
        if given:
            return [{"Name": name, "Values": list(given)}]
        key, value = self._settings.network_tag
        return [{"Name": f"tag:{key}", "Values": [value]}]

    def _ask_subnets(self, region: str) -> dict[str, str]:
        settings = self._settings
        wanted = self._network_filter(settings.subnet_ids, "subnet-id")
        found = self.pages(region, "describe_subnets", "Subnets", Filters=wanted)
        if not found:
            raise ProviderError(RefusalKind.REJECTED, self._nothing("subnet", "SUBNETS", region))
        by_zone: dict[str, str] = {}
        for subnet in sorted(found, key=lambda one: str(one["SubnetId"])):
            by_zone.setdefault(subnet["AvailabilityZone"], subnet["SubnetId"])
        return by_zone

    def _ask_groups(self, region: str) -> tuple[str, ...]:
        wanted = self._network_filter(self._settings.security_group_ids, "group-id")
        found = self.pages(region, "describe_security_groups", "SecurityGroups", Filters=wanted)
        if not found:
            text = self._nothing("security group", "SECURITY_GROUPS", region)
            raise ProviderError(RefusalKind.REJECTED, text)
        return tuple(sorted(group["GroupId"] for group in found))

    def _nothing(self, noun: str, setting: str, region: str) -> str:
        key, value = self._settings.network_tag
        return (
            f"there is no {noun} for machines in {region}: set LOWTIDE_AWS_{setting}, or tag one "
            f"with {key}={value}"
        )

    def _ask_image(self, image_id: str, region: str) -> Image:
        if not image_id.startswith("ami-"):
            reply = self._clients.ask("ssm", region, "get_parameter", Name=image_id)
            image_id = str(reply["Parameter"].get("Value", ""))
            if not image_id:
                text = f"LOWTIDE_AWS_IMAGE: the parameter of this name in {region} holds no value"
                raise ProviderError(RefusalKind.REJECTED, text)
        found = self._clients.ask("ec2", region, "describe_images", ImageIds=[image_id])["Images"]
        if not found:
            text = f"LOWTIDE_AWS_IMAGE: there is no image {image_id} in {region}"
            raise ProviderError(RefusalKind.REJECTED, text)
        root = str(found[0].get("RootDeviceName") or "/dev/sda1")
        sizes = [
            int(mapping.get("Ebs", {}).get("VolumeSize") or 0)
            for mapping in found[0].get("BlockDeviceMappings", [])
            if mapping.get("DeviceName") == root
        ]
        return Image(image_id, root, max(sizes, default=0))

    def _ask_offered(self, region: str) -> frozenset[tuple[str, str]]:
        found = self.pages(
            region,
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=_types_filter(one.name for one in self._catalog.types),
        )
        return frozenset((one["InstanceType"], one["Location"]) for one in found)


def _types_filter(names: Iterable[str]) -> list[dict[str, Any]]:
    """A filter takes 200 values; the families' patterns are always fewer than their types."""
    families = sorted({name.partition(".")[0] for name in names})
    return [{"Name": "instance-type", "Values": [f"{family}.*" for family in families]}]
