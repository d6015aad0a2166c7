"""VMs that are gone or going, told by the operations that ended them.

With the DELETE action nothing else is left of a VM. Source: Compute Engine documentation,
"View historical preemptions", "System event audit logs". Not here: living VMs (`machine_view`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.adapters.providers.gcp.client.compute_api import Deadline
from app.adapters.providers.gcp.zones.machine_view import instant, last_part
from app.adapters.providers.gcp.zones.vm_names import read_name
from app.adapters.providers.gcp.zones.zone_lists import OPERATIONS, ZoneLists
from app.domain.billing.machine_facts import TimeSource
from app.domain.lifecycle.instance import EndedBy
from app.ports.cloud_provider import CloudMachine, MachineState

PREEMPTED: Final = "compute.instances.preempted"
_GUEST_TERMINATE: Final = "compute.instances.guestTerminate"
_SYSTEM_EVENTS: Final = {
    PREEMPTED: EndedBy.CLOUD_INTERRUPTION,
    "compute.instances.hostError": EndedBy.CLOUD_FAILURE,
    "compute.instances.terminateOnHostMaintenance": EndedBy.CLOUD_FAILURE,
    _GUEST_TERMINATE: EndedBy.OS_SHUTDOWN,
}
_DELETIONS: Final = frozenset({"delete", "stop", "compute.instances.bulkDelete"})
_STAYS: Final = frozenset({_GUEST_TERMINATE, "stop"})
"""What ends a VM and leaves it there, stopped, with its disk, until somebody deletes it."""

_NAMES_IN_A_FILTER: Final = 20
_TOGETHER: Final = timedelta(seconds=10)


@dataclass(frozen=True)
class VmTermination:
    """How a VM ended, or is ending (`ended_at` None). `zone` and `started_at` where known.

    removed: it is not only stopped, but gone.
    """

    name: str
    zone: str
    ended_by: EndedBy | None
    ended_at: datetime | None
    started_at: datetime | None
    removed: bool


def read_endings(
    lists: ZoneLists, deadline: Deadline, names: Sequence[str], run_limit_seconds: int
) -> tuple[dict[str, VmTermination], bool]:
    """What the operations tell of the VMs of these names, and whether every zone has answered."""
    found: dict[str, list[Any]] = {}
    complete = True
    for start in range(0, len(names), _NAMES_IN_A_FILTER):
        wanted = "|".join(re.escape(name) for name in names[start : start + _NAMES_IN_A_FILTER])
        listing = lists.read(deadline, OPERATIONS, f'targetLink eq ".*/instances/({wanted})"')
        complete = complete and not listing.silent
        for _, operation in listing.items:
            found.setdefault(last_part(operation.target_link), []).append(operation)
    endings = (ending_of(name, found[name], run_limit_seconds) for name in names if name in found)
    return {one.name: one for one in endings if one is not None}, complete


def ending_of(name: str, operations: Iterable[Any], run_limit_seconds: int) -> VmTermination | None:
    """When the VM ended and by whom; None when nothing ended it, or it never came to be."""
    ordered = sorted(operations, key=_inserted_at)
    inserts = [one for one in ordered if one.operation_type == "insert"]
    ends = [one for one in ordered if _is_an_end(one)]
    if inserts and all(one.error.errors for one in inserts):
        return None
    if not ends:
        return None
    # What is over has ended it: our deletion may come before a preemption that was announced.
    ends.sort(key=lambda one: (_ended_at(one), _inserted_at(one)))
    first = ends[0]
    # A system event says why, also one that began earlier and was overtaken by a deletion. A guest
    # powers off under a notice too: what the cloud did says more than that.
    reason = min((one for one in ends if _explains(one, first)), key=_is_the_guest_s, default=first)
    start = next((one for one in reversed(inserts) if not one.error.errors), None)
    ended_at = instant(first.end_time)
    started_at = _started_at(start, ended_at)
    return VmTermination(
        name=name,
        zone=last_part(first.zone),
        ended_by=_who(reason, start, started_at, ended_at, run_limit_seconds),
        ended_at=ended_at,
        started_at=started_at,
        removed=any(one.end_time and one.operation_type not in _STAYS for one in ends),
    )


def gone_machine(ending: VmTermination) -> CloudMachine | None:
    """A VM that no list shows any more, or not yet; None when its name is not ours."""
    named = read_name(ending.name)
    if named is None:
        return None
    over = ending.ended_at is not None and ending.removed
    return CloudMachine(
        provider_instance_id=ending.name,
        client_token="",
        pool=named.pool(ending.zone),
        state=MachineState.TERMINATED if over else MachineState.SHUTTING_DOWN,
        launched_at=ending.started_at,
        launched_source=TimeSource.INSERT_OPERATION if ending.started_at is not None else "",
        ended_by=ending.ended_by,
        ended_at=ending.ended_at if over else None,
        ended_source=TimeSource.OPERATION_END if over else "",
    )


def with_ending(machine: CloudMachine, ending: VmTermination | None) -> CloudMachine:
    """A VM that still shows, with who is ending it."""
    return machine if ending is None else replace(machine, ended_by=ending.ended_by)


def _started_at(insert: Any | None, ended_at: datetime | None) -> datetime | None:
    """When the VM began to run, by the operation that made it; None when it never did, or not yet.

    The operation is over once the VM runs: under way, or over only after the VM's end, it has
    started none.
    """
    started_at = None if insert is None else instant(insert.end_time)
    if started_at is None or (ended_at is not None and ended_at < started_at):
        return None
    return started_at


def _inserted_at(operation: Any) -> datetime:
    return instant(operation.insert_time) or datetime.max.replace(tzinfo=UTC)


def _ended_at(operation: Any) -> datetime:
    return instant(operation.end_time) or datetime.max.replace(tzinfo=UTC)


def _explains(operation: Any, first: Any) -> bool:
    """Whether it is a system event that began before the first end did, or goes with it.

    In which order overlapping operations end is not documented; who began is what counts.
    """
    if operation.operation_type not in _SYSTEM_EVENTS:
        return False
    if not first.end_time or _inserted_at(operation) <= _inserted_at(first):
        return True
    return bool(operation.end_time) and _ended_at(operation) <= _ended_at(first) + _TOGETHER


def _is_the_guest_s(operation: Any) -> bool:
    return bool(operation.operation_type == _GUEST_TERMINATE)


def _is_an_end(operation: Any) -> bool:
    if operation.error.errors:
        return False
    return operation.operation_type in _SYSTEM_EVENTS or operation.operation_type in _DELETIONS


def _who(
    end: Any,
    start: Any | None,
    started_at: datetime | None,
    ended_at: datetime | None,
    run_limit_seconds: int,
) -> EndedBy | None:
    known = _SYSTEM_EVENTS.get(end.operation_type)
    if known is not None:
        return known
    if end.user == "system" or not end.user:
        # Google's own deletion: the longest run is over, unless it was not.
        if started_at is None or ended_at is None:
            return EndedBy.UNKNOWN
        ran = (ended_at - started_at).total_seconds()
        return EndedBy.RUN_LIMIT if ran >= run_limit_seconds - 5 else EndedBy.CLOUD_FAILURE
    if start is None or not start.user:
        return None
    return EndedBy.US if end.user == start.user else EndedBy.OUTSIDER
