"""Preemptions as Compute Engine records them: operations of each zone, the newest first.

A machine's agent hears of its own preemption sooner; this tells of machines whose agent is not up,
or already gone. Source: Compute Engine documentation, "View historical preemptions". Not here: what
an announcement does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.adapters.providers.gcp.client.compute_api import ComputeApi, Deadline, translated
from app.adapters.providers.gcp.client.gcp_settings import PLAIN_NOTICE_SECONDS, region_of
from app.adapters.providers.gcp.client.parallel_calls import in_parallel
from app.adapters.providers.gcp.machines.ended_machines import PREEMPTED
from app.adapters.providers.gcp.machines.machines import Machines
from app.adapters.providers.gcp.zones.machine_view import instant, last_part
from app.adapters.providers.gcp.zones.vm_names import read_name
from app.adapters.providers.gcp.zones.zone_lists import ZoneLists
from app.adapters.providers.gcp.zones.zone_types import configured_zones
from app.domain.billing.machine_facts import TimeSource
from app.ports.cloud_provider import CloudMachine, MachineState, ProviderError
from app.ports.interruption_feed import Announcement, AnnouncementKind

LOOK_BACK: Final = timedelta(minutes=15)
_PAGE: Final = 50
_PER_ZONE_MAX: Final = 500
_ANNOUNCED_MAX: Final = 50
_NOTICE_TAG: Final = "lowtide:notice"


def _now() -> datetime:
    return datetime.now(UTC)


class PreemptionFeed:
    """The last minutes' preemptions, less those that are forgotten; safe for threads.

    What is forgotten is remembered by this process alone: after a restart it is told once more.
    """

    def __init__(
        self,
        api: ComputeApi,
        machines: Machines,
        lists: ZoneLists,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._api = api
        self._machines = machines
        self._lists = lists
        self._now = now
        self._lock = threading.Lock()
        self._forgotten: dict[str, datetime] = {}
        self._zones: tuple[str, ...] = ()

    def receive(self) -> tuple[Announcement, ...]:
        """Preemptions of our machines that are not forgotten, by time. Raises ProviderError."""
        deadline, now = self._api.deadline(), self._now()
        if not self._zones:
            self._zones = configured_zones(self._lists, deadline, self._api.settings)

        def look(zone: str) -> list[Any] | ProviderError:
            try:
                return self._fresh(deadline, zone, now - LOOK_BACK)
            except ProviderError as error:
                # Its preemptions come with the next look; those of other zones cannot wait.
                return error

        answers = in_parallel(look, self._zones)
        failed = [one for one in answers if isinstance(one, ProviderError)]
        fresh = [one for found in answers if isinstance(found, list) for one in found]
        if failed and len(failed) == len(self._zones):
            raise failed[0]
        fresh.sort(key=lambda one: (one.insert_time, one.name))
        fresh = fresh[:_ANNOUNCED_MAX]
        names = tuple(dict.fromkeys(last_part(one.target_link) for one in fresh))
        shown = self._machines.shown(deadline, names).machines if names else ()
        there = {machine.provider_instance_id: machine for machine in shown}
        return tuple(_announcement(one, there.get(last_part(one.target_link))) for one in fresh)

    def forget(self, receipts: Iterable[str]) -> None:
        """These operations have been applied."""
        now = self._now()
        with self._lock:
            self._forgotten.update(dict.fromkeys(receipts, now))
            old = [name for name, at in self._forgotten.items() if now - at > 2 * LOOK_BACK]
            for name in old:
                del self._forgotten[name]

    def _fresh(self, deadline: Deadline, zone: str, since: datetime) -> list[Any]:
        """A zone's preemptions since then; the list is the newest first, so it ends early."""
        listed = self._api.read(
            "ZoneOperationsClient",
            "list",
            deadline,
            zone=zone,
            filter=f'operationType = "{PREEMPTED}"',
            order_by="creationTimestamp desc",
            max_results=_PAGE,
        )
        found: list[Any] = []
        with translated("list of ZoneOperationsClient"):
            for operation in listed:
                at = instant(operation.insert_time)
                if at is None or at < since or len(found) >= _PER_ZONE_MAX:
                    break
                ours = read_name(last_part(operation.target_link)) is not None
                if ours and _receipt(operation) not in self._forgotten:
                    found.append(operation)
        return found


def _receipt(operation: Any) -> str:
    """Another one once it is over: its end is news where only its beginning was told."""
    return f"{operation.name}/ended" if operation.end_time else str(operation.name)


def _announcement(operation: Any, machine: CloudMachine | None) -> Announcement:
    """A notice while the machine is there, the word of its end once it is not."""
    name, receipt = last_part(operation.target_link), _receipt(operation)
    noticed_at = instant(operation.insert_time) or datetime.now(UTC)
    region = region_of(last_part(operation.zone))
    if machine is not None:
        granted = machine.tags.get(_NOTICE_TAG, "")
        seconds = int(granted) if granted.isdigit() else PLAIN_NOTICE_SECONDS
        deadline = noticed_at + timedelta(seconds=seconds)
        kind = AnnouncementKind.INTERRUPTION
        return Announcement(name, kind, noticed_at, receipt, deadline=deadline, region=region)
    ended_at = instant(operation.end_time)
    over = ended_at is not None
    return Announcement(
        name,
        AnnouncementKind.STATE_CHANGE,
        ended_at or noticed_at,
        receipt,
        state=MachineState.TERMINATED if over else MachineState.SHUTTING_DOWN,
        time_source=TimeSource.OPERATION_END,
        region=region,
    )
