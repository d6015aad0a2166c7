"""Finding and deleting VMs by label, name or region. Not here: starting them (`launching`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.adapters.providers.gcp.compute_api import ApiRefusal, ComputeApi, Deadline
from app.adapters.providers.gcp.ended_machines import gone_machine, read_endings, with_ending
from app.adapters.providers.gcp.machine_names import DEPLOYMENT_LABEL, TOKEN_LABEL
from app.adapters.providers.gcp.machine_view import cloud_machine
from app.adapters.providers.gcp.zone_lists import EVERYWHERE, INSTANCES, ZoneListing, ZoneLists
from app.ports.cloud_provider import (
    CloudMachine,
    MachineList,
    MachineState,
    ProviderError,
    RefusalKind,
)

_NAMES_IN_A_FILTER: Final = 20
_NOT_FOUND: Final = 404


@dataclass(frozen=True)
class Shown:
    """A VM that a list shows, with its labels as they are."""

    machine: CloudMachine
    labels: dict[str, str]


class Machines:
    """The project's VMs."""

    def __init__(self, api: ComputeApi, lists: ZoneLists) -> None:
        self._api = api
        self._lists = lists

    def under_token(
        self, deadline: Deadline, client_token: str, region: str | None, *, sure: bool
    ) -> tuple[Shown, ...]:
        """VMs with a token's label that a list shows, by name.

        sure: no machine is missed where a zone of the region did not answer. Raises ProviderError.
        """
        wanted = f'labels.{TOKEN_LABEL} = "{client_token}"'
        regions = None if region is None else (region,)
        listing = self._lists.read(deadline, INSTANCES, wanted, regions)
        unread = EVERYWHERE in listing.silent
        if unread or (sure and region is not None and not listing.heard(region)):
            place = "" if region is None or unread else f" of {region}"
            text = f"a zone{place} of Google Cloud did not answer: machines unknown"
            raise ProviderError(RefusalKind.UNAVAILABLE, text)
        found = _shown(listing)
        return tuple(sorted(found, key=lambda one: one.machine.provider_instance_id))

    def in_region(self, deadline: Deadline, deployment_id: str, region: str) -> MachineList:
        """The deployment's VMs in a region, by name; complete when every zone has answered."""
        wanted = f'labels.{DEPLOYMENT_LABEL} = "{deployment_id}"'
        listing = self._lists.read(deadline, INSTANCES, wanted, (region,))
        here = [one.machine for one in _shown(listing) if one.machine.pool.region == region]
        return MachineList(_by_name(here), complete=listing.heard(region))

    def described(self, deadline: Deadline, names: tuple[str, ...]) -> MachineList:
        """These VMs, by name: shown by a list, or told of by the operations that ended them."""
        found = self.shown(deadline, names)
        shown = found.machines
        unsettled = [one.provider_instance_id for one in shown if not _lives(one)]
        listed = {one.provider_instance_id for one in shown}
        missing = [name for name in names if name not in listed]
        endings, heard_all = read_endings(
            self._lists, deadline, [*unsettled, *missing], self._api.settings.max_run_seconds
        )
        machines = [
            one if _lives(one) else with_ending(one, endings.get(one.provider_instance_id))
            for one in shown
        ]
        gone = (gone_machine(endings[name]) for name in missing if name in endings)
        machines += [one for one in gone if one is not None]
        return MachineList(_by_name(machines), complete=found.complete and heard_all)

    def shown(self, deadline: Deadline, names: tuple[str, ...]) -> MachineList:
        """Those of these VMs that a list shows, by name."""
        shown: list[CloudMachine] = []
        complete = True
        for start in range(0, len(names), _NAMES_IN_A_FILTER):
            wanted = "|".join(re.escape(name) for name in names[start : start + _NAMES_IN_A_FILTER])
            listing = self._lists.read(deadline, INSTANCES, f'name eq "({wanted})"')
            shown += [one.machine for one in _shown(listing)]
            complete = complete and not listing.silent
        return MachineList(_by_name(shown), complete)

    def delete(self, deadline: Deadline, machines: Iterable[CloudMachine]) -> None:
        """Delete VMs; one that is gone is no error. Every one is tried before an error is told."""
        failed: ProviderError | None = None
        for machine in machines:
            try:
                self._api.change(
                    "InstancesClient",
                    "delete_unary",
                    deadline,
                    zone=machine.pool.zone,
                    instance=machine.provider_instance_id,
                )
            except ApiRefusal as error:
                if error.http_status != _NOT_FOUND:
                    failed = failed or error
            except ProviderError as error:
                failed = failed or error
        if failed is not None:
            raise failed


def _shown(listing: ZoneListing) -> list[Shown]:
    return [Shown(cloud_machine(one), dict(one.labels)) for _, one in listing.items]


def _lives(machine: CloudMachine) -> bool:
    return machine.state in (MachineState.PENDING, MachineState.RUNNING)


def _by_name(machines: Iterable[CloudMachine]) -> tuple[CloudMachine, ...]:
    return tuple(sorted(machines, key=lambda one: one.provider_instance_id))
