"""A VM as the API shows it, in the port's words. Not here: VMs that are gone (`ended_machines`)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from app.adapters.providers.gcp.client.gcp_settings import PROVIDER, region_of
from app.adapters.providers.gcp.zones.vm_names import (
    ORDER_LABEL,
    TOKEN_LABEL,
    read_name,
    to_tag,
)
from app.domain.billing.machine_facts import TimeSource
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import CloudMachine, MachineState

# A VM that is TERMINATED was stopped, from inside or by a person, and still has its disk: it is
# shown as shutting down until it is deleted, so that whoever watches it deletes it.
_STATES: Final = {
    "PROVISIONING": MachineState.PENDING,
    "STAGING": MachineState.PENDING,
    "PENDING": MachineState.PENDING,
    "RUNNING": MachineState.RUNNING,
    "REPAIRING": MachineState.RUNNING,
    "STOPPING": MachineState.SHUTTING_DOWN,
    "PENDING_STOP": MachineState.SHUTTING_DOWN,
    "DEPROVISIONING": MachineState.SHUTTING_DOWN,
    "SUSPENDING": MachineState.SHUTTING_DOWN,
    "SUSPENDED": MachineState.SHUTTING_DOWN,
    "TERMINATED": MachineState.SHUTTING_DOWN,
}
_OUR_LABELS: Final = frozenset({TOKEN_LABEL, ORDER_LABEL})


def instant(text: str) -> datetime | None:
    """An API time (RFC 3339 with an offset) as aware UTC; None where there is none."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def last_part(path: str) -> str:
    """The name at the end of a resource's address."""
    return path.rpartition("/")[2]


def cloud_machine(instance: Any) -> CloudMachine:
    """One VM. Its times of start count once it has been running, or is past it."""
    labels = dict(instance.labels)
    state = _STATES.get(instance.status, MachineState.PENDING)
    launched_at, source = _start(instance, state)
    return CloudMachine(
        provider_instance_id=instance.name,
        client_token=labels.get(TOKEN_LABEL, ""),
        pool=_pool(instance),
        state=state,
        launched_at=launched_at,
        launched_source=source,
        tags={
            to_tag(key): value for key, value in sorted(labels.items()) if key not in _OUR_LABELS
        },
        # Told of some types only: Compute Engine documentation, "View the physical location".
        host=instance.resource_status.physical_host,
    )


def _pool(instance: Any) -> Pool:
    zone = last_part(instance.zone)
    named = read_name(instance.name)
    if named is not None:
        return named.pool(zone)
    market = Market.SPOT if instance.scheduling.provisioning_model == "SPOT" else Market.ON_DEMAND
    return Pool(PROVIDER, region_of(zone), zone, last_part(instance.machine_type), market)


def _start(instance: Any, state: MachineState) -> tuple[datetime | None, str]:
    if state is MachineState.PENDING:
        return None, ""
    started = instant(instance.last_start_timestamp)
    if started is not None:
        return started, TimeSource.LAST_START
    created = instant(instance.creation_timestamp)
    return created, TimeSource.CREATION if created is not None else ""
