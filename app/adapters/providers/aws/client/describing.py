"""An EC2 instance as the port's machine: state, who ended it, and times with their source.

Source: the StateReason codes of EC2's API reference. Not here: the calls (`provider`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from app.adapters.providers.aws.client.aws_settings import PROVIDER, TOKEN_TAG
from app.domain.billing.machine_facts import TimeSource
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import CloudMachine, MachineState

STATES: Final = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.SHUTTING_DOWN,
    "stopping": MachineState.SHUTTING_DOWN,
    "stopped": MachineState.STOPPED,
    "terminated": MachineState.TERMINATED,
}
_ENDED_BY: Final = {
    "Server.SpotInstanceTermination": EndedBy.CLOUD_INTERRUPTION,
    "Server.SpotInstanceShutdown": EndedBy.CLOUD_INTERRUPTION,
    "Server.InsufficientInstanceCapacity": EndedBy.CLOUD_CAPACITY,
    "Server.InternalError": EndedBy.CLOUD_FAILURE,
    "Server.ScheduledStop": EndedBy.CLOUD_FAILURE,
    "Client.UserInitiatedShutdown": EndedBy.US,
    "Client.InstanceInitiatedShutdown": EndedBy.OS_SHUTDOWN,
    "Client.InternalError": EndedBy.CLOUD_FAILURE,
    "Client.VolumeLimitExceeded": EndedBy.CLOUD_FAILURE,
    "Client.InvalidSnapshot.NotFound": EndedBy.CLOUD_FAILURE,
}
# Codes of machines that went from pending to terminated: nothing ran, so nothing is owed.
_NEVER_RAN: Final = frozenset(
    {
        "Server.InsufficientInstanceCapacity",
        "Server.InternalError",
        "Client.InternalError",
        "Client.VolumeLimitExceeded",
        "Client.InvalidSnapshot.NotFound",
    }
)
_ENDED: Final = (MachineState.SHUTTING_DOWN, MachineState.STOPPED, MachineState.TERMINATED)
_SPOT_LIFECYCLES: Final = ("spot", "interruptible-capacity-reservation")
# "User initiated (2026-01-31 12:00:00 GMT)"
_TRANSITION_AT: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def machine_of(told: dict[str, Any], region: str) -> CloudMachine:
    """One entry of DescribeInstances.

    A state that is not known is taken as running, for then it is looked at again. LaunchTime is
    the start of billing once the machine runs; while it is pending it may yet never run.
    """
    state = STATES.get(told.get("State", {}).get("Name", ""), MachineState.RUNNING)
    tags = {one["Key"]: one.get("Value", "") for one in told.get("Tags", [])}
    market = Market.SPOT if told.get("InstanceLifecycle") in _SPOT_LIFECYCLES else Market.ON_DEMAND
    zone = told.get("Placement", {}).get("AvailabilityZone", "")
    reason = told.get("StateReason", {}).get("Code", "")
    ran = state is not MachineState.PENDING and reason not in _NEVER_RAN
    launched_at = _utc(told.get("LaunchTime")) if ran else None
    ended_by = _ENDED_BY.get(reason, EndedBy.UNKNOWN) if state in _ENDED and reason else None
    ended_at = None
    if state in (MachineState.STOPPED, MachineState.TERMINATED):
        ended_at = _transition_at(told.get("StateTransitionReason") or "")
    return CloudMachine(
        provider_instance_id=told["InstanceId"],
        client_token=tags.get(TOKEN_TAG, ""),
        pool=Pool(PROVIDER, region, zone, told.get("InstanceType", ""), market),
        state=state,
        launched_at=launched_at,
        launched_source=TimeSource.LAUNCH_TIME if launched_at is not None else "",
        ended_by=ended_by,
        ended_at=ended_at,
        ended_source=TimeSource.STATE_TRANSITION_REASON if ended_at is not None else "",
        tags=tags,
    )


def machines_of(reply: dict[str, Any], region: str) -> list[CloudMachine]:
    """Every instance in an answer of DescribeInstances."""
    return [
        machine_of(instance, region)
        for reservation in reply.get("Reservations", [])
        for instance in reservation.get("Instances", [])
    ]


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)


def _transition_at(text: str) -> datetime | None:
    found = _TRANSITION_AT.search(text)
    if found is None:
        return None
    return datetime.strptime(found.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
