"""What the deployment leaves in the project besides VMs: disks without a VM, placement policies.

Implements the two calls of `app.ports.cloud_leftovers`. Not here: when they are made
(`app.orchestration.deployment.clear_leftovers`), or policies before a launch
(`placement_policies`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from google.cloud import compute_v1

from app.adapters.providers.gcp.client.attachment_prices import DISK_PRICES
from app.adapters.providers.gcp.client.compute_api import (
    ApiRefusal,
    ComputeApi,
    Deadline,
    translated,
)
from app.adapters.providers.gcp.client.gcp_settings import region_of
from app.adapters.providers.gcp.client.parallel_calls import in_parallel
from app.adapters.providers.gcp.machines.machines import Machines
from app.adapters.providers.gcp.machines.placement_policies import description_of
from app.adapters.providers.gcp.zones.machine_view import last_part
from app.adapters.providers.gcp.zones.vm_names import DEPLOYMENT_LABEL, read_name
from app.adapters.providers.gcp.zones.zone_lists import DISKS, ZoneLists
from app.ports.cloud_leftovers import Leftover
from app.ports.cloud_provider import ProviderError, RefusalKind

DISK, POLICY = "disk", "placement policy"
_REMOVED_AT_ONCE: Final = 50
_NOT_FOUND: Final = 404
_HOURS_OF_A_MONTH: Final = 730


class GcpLeftovers:
    """The deployment's disks and policies."""

    def __init__(
        self,
        api: ComputeApi,
        machines: Machines,
        lists: ZoneLists,
        deployment_id: Callable[[], str],
    ) -> None:
        self._api = api
        self._lists = lists
        self._machines = machines
        self._deployment_id = deployment_id

    def list_leftovers(self, region: str) -> tuple[Leftover, ...]:
        """Disks without a VM and all policies, by kind and name.

        Raises ProviderError, also when a zone of the region did not answer.
        """
        deadline = self._api.deadline()
        found = [*self._disks(deadline, region), *self._policies(deadline, region)]
        return tuple(sorted(found, key=lambda one: (one.kind, one.id)))

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> tuple[Leftover, ...]:
        """Delete at most 50 of them; returns what is left, with the reason."""
        deadline = self._api.deadline()
        left = [replace(one, note="its turn comes later") for one in leftovers[_REMOVED_AT_ONCE:]]
        reasons = in_parallel(
            lambda one: self._removed(deadline, one), leftovers[:_REMOVED_AT_ONCE]
        )
        for one, reason in zip(leftovers, reasons, strict=False):
            if reason is not None:
                left.append(replace(one, note=reason))
        return tuple(left)

    def _removed(self, deadline: Deadline, one: Leftover) -> str | None:
        """Why it is not removed yet; None when it is, or is gone."""
        try:
            operation = self._delete(deadline, one)
        except ApiRefusal as error:
            return None if error.http_status == _NOT_FOUND else str(error)
        except ProviderError as error:
            return str(error)
        return self._unfinished(deadline, one, operation)

    def _disks(self, deadline: Deadline, region: str) -> list[Leftover]:
        wanted = f'labels.{DEPLOYMENT_LABEL} = "{self._deployment_id()}"'
        listing = self._lists.read(deadline, DISKS, wanted, (region,))
        if not listing.heard(region):
            raise ProviderError(RefusalKind.UNAVAILABLE, f"a zone of {region} did not answer")
        return [
            _disk(one, zone)
            for zone, one in listing.items
            if region_of(zone) == region and not one.users
        ]

    def _policies(self, deadline: Deadline, region: str) -> list[Leftover]:
        wanted = f'description = "{description_of(self._deployment_id())}"'
        listed = self._api.read(
            "ResourcePoliciesClient", "list", deadline, region=region, filter=wanted
        )
        with translated("list of ResourcePoliciesClient"):
            names = [one.name for one in listed]
        if not names:
            return []
        # A launch's VMs are named after its policy; a list with holes shows none as idle.
        machines = self._machines.in_region(deadline, self._deployment_id(), region)
        launches = {
            told.launch_prefix
            for one in machines.machines
            if (told := read_name(one.provider_instance_id)) is not None
        }
        note = "compact placement of a gang"
        return [
            Leftover(POLICY, name, region, note, machines.complete and name not in launches)
            for name in names
        ]

    def _delete(self, deadline: Deadline, one: Leftover) -> str:
        """The name of the operation that removes it."""
        if one.kind == POLICY:
            operation = self._api.change(
                "ResourcePoliciesClient",
                "delete_unary",
                deadline,
                region=one.region,
                resource_policy=one.id,
            )
        else:
            zone, _, name = one.id.partition("/")
            operation = self._api.change(
                "DisksClient", "delete_unary", deadline, zone=zone, disk=name
            )
        return str(operation.name)

    def _unfinished(self, deadline: Deadline, one: Leftover, operation: str) -> str | None:
        """Why it is not removed yet; None when it is."""
        scope = f"regions/{one.region}"
        if one.kind == DISK:
            scope = f"zones/{one.id.partition('/')[0]}"
        try:
            found = self._api.wait(deadline, scope, operation)
        except ProviderError as error:
            return str(error)
        if found.status != compute_v1.Operation.Status.DONE:
            return "is being removed"
        return next((f"{told.code}: {told.message}" for told in found.error.errors), None)


def _disk(one: Any, zone: str) -> Leftover:
    kind = last_part(one.type_)
    price = DISK_PRICES.get(kind)  # to tell about what it costs, never to bill
    daily = None if price is None else int(one.size_gb) * price * 24 // _HOURS_OF_A_MONTH
    note = f"{one.size_gb} GB {kind}, without a machine"
    return Leftover(DISK, f"{zone}/{one.name}", region_of(zone), note, True, daily)
