"""What the deployment leaves in the account besides machines: volumes, templates, groups.

Implements the two calls of `app.ports.cloud_leftovers`. Not here: when they are made
(`app.orchestration.deployment.clear_leftovers`), or what a launch needs of them (`launching`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from app.adapters.providers.aws.client.attachment_prices import VOLUME_PRICES
from app.adapters.providers.aws.client.aws_errors import code_of
from app.adapters.providers.aws.client.aws_settings import DEPLOYMENT_TAG, own_prefix
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.region_facts import RegionFacts
from app.ports.cloud_leftovers import Leftover
from app.ports.cloud_provider import MachineList, MachineState, ProviderError

VOLUME, TEMPLATE, GROUP = "volume", "launch template", "placement group"
_REMOVED_AT_ONCE: Final = 50
_HOURS_OF_A_MONTH: Final = 730
_GONE: Final = ("NotFound", "Unknown", "DoesNotExist")
_ENDED: Final = (MachineState.TERMINATED, MachineState.STOPPED)
UNSEEN: Final = "unseen"
"""Stands for every zone of a region whose machines were not all listed."""


class AwsLeftovers:
    """The deployment's volumes, launch templates and placement groups.

    machines: the deployment's machines in a region. forget: called with a region whose templates
    or groups were removed, so that the next launch makes them anew.
    """

    def __init__(
        self,
        clients: AwsClients,
        facts: RegionFacts,
        deployment_id: str,
        machines: Callable[[str], MachineList],
        forget: Callable[[str], None],
    ) -> None:
        self._clients = clients
        self._facts = facts
        self._deployment_id = deployment_id
        self._machines = machines
        self._forget = forget

    def list_leftovers(self, region: str) -> tuple[Leftover, ...]:
        """Volumes without a machine, and all templates and groups, by kind and id.

        A template is idle while the region shows no machine at all: EC2 does not tell which ones a
        launch will name. A group is idle while its zone shows none: it costs nothing, but an
        account may have only so many. Raises ProviderError.
        """
        ours = [{"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [self._deployment_id]}]
        free = [*ours, {"Name": "status", "Values": ["available"]}]
        volumes = self._facts.pages(region, "describe_volumes", "Volumes", Filters=free)
        templates = self._facts.pages(
            region, "describe_launch_templates", "LaunchTemplates", Filters=ours
        )
        groups = self._groups(region)
        used = self._used_zones(region) if templates or groups else frozenset()
        found = [_volume(one, region) for one in volumes]
        found += [
            Leftover(TEMPLATE, one["LaunchTemplateId"], region, one["LaunchTemplateName"], not used)
            for one in templates
        ]
        found += [
            Leftover(
                GROUP, name, region, "keeps machines of a zone close", not {zone, UNSEEN} & used
            )
            for name, zone in groups.items()
        ]
        return tuple(sorted(found, key=lambda one: (one.kind, one.id)))

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> tuple[Leftover, ...]:
        """Delete at most 50 of them; returns what is left, with the reason."""
        left = [replace(one, note="its turn comes later") for one in leftovers[_REMOVED_AT_ONCE:]]
        for one in leftovers[:_REMOVED_AT_ONCE]:
            try:
                self._delete(one)
            except ProviderError as error:
                code = "" if error.__cause__ is None else code_of(error.__cause__)
                if not any(word in code for word in _GONE):
                    left.append(replace(one, note=str(error)))
        for region in sorted({one.region for one in leftovers if one.kind != VOLUME}):
            self._forget(region)
        return tuple(left)

    def _used_zones(self, region: str) -> frozenset[str]:
        """Zones that show machines of ours; every zone when not all machines were listed."""
        listed = self._machines(region)
        living = {one.pool.zone for one in listed.machines if one.state not in _ENDED}
        return frozenset(living) if listed.complete else frozenset(living | {UNSEEN})

    def _groups(self, region: str) -> dict[str, str]:
        """Groups with their zone, by name: they carry no tag."""
        prefix = own_prefix(self._deployment_id)
        wanted = [{"Name": "group-name", "Values": [f"{prefix}*"]}]
        # One answer holds all groups of a region.
        reply = self._clients.ask("ec2", region, "describe_placement_groups", Filters=wanted)
        return {
            one["GroupName"]: one["GroupName"].removeprefix(prefix)
            for one in reply.get("PlacementGroups", [])
            if one.get("State") not in ("deleting", "deleted")
        }

    def _delete(self, one: Leftover) -> None:
        operation, field = {
            VOLUME: ("delete_volume", "VolumeId"),
            TEMPLATE: ("delete_launch_template", "LaunchTemplateId"),
            GROUP: ("delete_placement_group", "GroupName"),
        }[one.kind]
        named: dict[str, Any] = {field: one.id}
        self._clients.change("ec2", one.region, operation, **named)


def _volume(told: dict[str, Any], region: str) -> Leftover:
    kind, size = str(told.get("VolumeType", "")), int(told.get("Size", 0))
    price = VOLUME_PRICES.get(kind)  # to tell about what it costs, never to bill
    daily = None if price is None else size * price * 24 // _HOURS_OF_A_MONTH
    note = f"{size} GB {kind}, without a machine"
    return Leftover(VOLUME, told["VolumeId"], region, note, True, daily)
