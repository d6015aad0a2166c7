"""Finding and deleting VMs by label, name or region. Not here: starting them (`launching`)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.adapters.providers.gcp.client.compute_api import ApiRefusal, ComputeApi, Deadline
from app.adapters.providers.gcp.client.parallel_calls import CALLS_AT_ONCE, in_parallel
from app.adapters.providers.gcp.machines.ended_machines import (
    gone_machine,
    read_endings,
    with_ending,
)
from app.adapters.providers.gcp.zones.machine_view import cloud_machine
from app.adapters.providers.gcp.zones.vm_names import DEPLOYMENT_LABEL, TOKEN_LABEL
from app.adapters.providers.gcp.zones.zone_lists import (
    EVERYWHERE,
    INSTANCES,
    ZoneListing,
    ZoneLists,
)
from app.ports.cloud_provider import (
    CloudMachine,
    MachineList,
    MachineState,
    ProviderError,
    RefusalKind,
)

_NAMES_IN_A_FILTER: Final = 20
_NOT_FOUND: Final = 404
_REMEMBERED_MAX: Final = 10_000
_ROUNDS_MAX: Final = 4
_PAUSE_SECONDS: Final = 0.5

Place = tuple[str, str]
"""(zone, name)."""


@dataclass(frozen=True)
class ListedVm:
    """A VM that a list shows, with its labels as they are."""

    machine: CloudMachine
    labels: dict[str, str]


class Machines:
    """The project's VMs."""

    def __init__(self, api: ComputeApi, lists: ZoneLists) -> None:
        self._api = api
        self._lists = lists
        self._lock = threading.Lock()
        self._zone_of: dict[str, str] = {}

    def under_token(
        self,
        deadline: Deadline,
        client_token: str,
        deployment_id: str,
        region: str | None,
        *,
        sure: bool,
    ) -> tuple[ListedVm, ...]:
        """The deployment's VMs with a token's label that a list shows, by name.

        sure: no machine is missed where a zone of the region did not answer. Raises ProviderError.
        """
        wanted = (
            f'(labels.{TOKEN_LABEL} = "{client_token}") '
            f'(labels.{DEPLOYMENT_LABEL} = "{deployment_id}")'
        )
        regions = None if region is None else (region,)
        listing = self._lists.read(deadline, INSTANCES, wanted, regions)
        unread = EVERYWHERE in listing.silent
        if unread or (sure and region is not None and not listing.heard(region)):
            place = "" if region is None or unread else f" of {region}"
            text = f"a zone{place} of Google Cloud did not answer: machines unknown"
            raise ProviderError(RefusalKind.UNAVAILABLE, text)
        found = self._seen(listing)
        return tuple(sorted(found, key=lambda one: one.machine.provider_instance_id))

    def in_region(self, deadline: Deadline, deployment_id: str, region: str) -> MachineList:
        """The deployment's VMs in a region, by name; complete when every zone has answered."""
        wanted = f'labels.{DEPLOYMENT_LABEL} = "{deployment_id}"'
        listing = self._lists.read(deadline, INSTANCES, wanted, (region,))
        here = [one.machine for one in self._seen(listing) if one.machine.pool.region == region]
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

    def shown(self, deadline: Deadline, names: Sequence[str]) -> MachineList:
        """Those of these VMs that a list shows, by name. Raises ProviderError."""
        size = _NAMES_IN_A_FILTER
        chunks = [names[start : start + size] for start in range(0, len(names), size)]

        def read(chunk: Sequence[str]) -> ZoneListing | ProviderError:
            wanted = "|".join(re.escape(name) for name in chunk)
            try:
                return self._lists.read(deadline, INSTANCES, f'name eq "({wanted})"')
            except ProviderError as error:
                return error

        shown: list[CloudMachine] = []
        complete = True
        for listing in in_parallel(read, chunks):
            if isinstance(listing, ProviderError):
                raise listing
            shown += [one.machine for one in self._seen(listing)]
            complete = complete and not listing.silent
        return MachineList(_by_name(shown), complete)

    def places(self, deadline: Deadline, names: Sequence[str]) -> tuple[list[Place], bool]:
        """Where these VMs are, as far as known, and whether each of the others is surely gone.

        A VM keeps its zone and its name for life, so what any list has told still holds.
        """
        with self._lock:
            known = [(self._zone_of[name], name) for name in names if name in self._zone_of]
        known_names = {name for _, name in known}
        unknown = [name for name in names if name not in known_names]
        found = self.shown(deadline, unknown) if unknown else MachineList((), complete=True)
        more = [(one.pool.zone, one.provider_instance_id) for one in found.machines]
        return known + more, found.complete or len(more) == len(unknown)

    def delete(self, deadline: Deadline, places: Sequence[Place]) -> None:
        """Delete VMs side by side; one that is gone is no error. All are tried before one is told.

        What is too much for the API at a time comes again, fewer at a time. Raises ProviderError.
        """
        left, failed, at_once = list(places), list[ProviderError](), CALLS_AT_ONCE
        for attempt in range(_ROUNDS_MAX):
            answers = in_parallel(lambda one: self._delete(deadline, one), left, at_once)
            pairs = [(place, error) for place, error in zip(left, answers, strict=True) if error]
            left = [place for place, error in pairs if error.kind is RefusalKind.THROTTLED]
            failed += [error for place, error in pairs if place not in left]
            last = attempt == _ROUNDS_MAX - 1
            if last or not deadline.has(_PAUSE_SECONDS + self._api.settings.request_seconds):
                failed += [error for place, error in pairs if place in left]
                break
            if not left:
                break
            time.sleep(_PAUSE_SECONDS * 2**attempt)
            at_once = max(1, at_once // 2)
        if failed:
            raise failed[0]

    def _delete(self, deadline: Deadline, place: Place) -> ProviderError | None:
        zone, name = place
        try:
            self._api.change("InstancesClient", "delete_unary", deadline, zone=zone, instance=name)
        except ApiRefusal as error:
            return None if error.http_status == _NOT_FOUND else error
        except ProviderError as error:
            return error
        return None

    def _seen(self, listing: ZoneListing) -> list[ListedVm]:
        """What a list shows; where each is, is remembered."""
        found = [ListedVm(cloud_machine(one), dict(one.labels)) for _, one in listing.items]
        with self._lock:
            for shown in found:
                machine = shown.machine
                self._zone_of[machine.provider_instance_id] = machine.pool.zone
            for name in list(self._zone_of)[:-_REMEMBERED_MAX]:
                del self._zone_of[name]
        return found


def _lives(machine: CloudMachine) -> bool:
    return machine.state in (MachineState.PENDING, MachineState.RUNNING)


def _by_name(machines: Iterable[CloudMachine]) -> tuple[CloudMachine, ...]:
    return tuple(sorted(machines, key=lambda one: one.provider_instance_id))
