"""The cloud's own record of a machine, and its form in the journal.

Not here: processes (`machine_processes`) and what ends a machine (`local_cloud`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.adapters.providers.local.market.recordings import GCE
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Pool
from app.ports.cloud_provider import MachineState

PORTS_PER_MACHINE = 20


@dataclass
class Machine:
    """One rented machine. Instants are microseconds since 1970, UTC.

    metadata_port: its endpoint; the ports the machine itself may use follow it.
    boot_id: the host's boot it runs in; another one means that its processes are gone.
    agent_pid, agent_started: the agent's process and its start in clock ticks, None before boot.
    restarts: agent starts after a failure since it last ran well.
    disk_gb: what was asked for, None where nothing was.
    """

    machine_id: str
    client_token: str
    pool: Pool
    cloud: str
    launched_at_us: int
    metadata_port: int
    boot_id: str
    tags: dict[str, str] = field(default_factory=dict)
    user_data: dict[str, str] = field(default_factory=dict)
    state: MachineState = MachineState.RUNNING
    agent_pid: int | None = None
    agent_started: int | None = None
    agent_started_at_us: int = 0
    restarts: int = 0
    noticed_at_us: int | None = None
    deadline_at_us: int | None = None
    crashed_at_us: int | None = None
    ended_by: EndedBy | None = None
    ended_at_us: int | None = None
    disk_gb: int | None = None

    @property
    def is_running(self) -> bool:
        """True until something ends it."""
        return self.state is MachineState.RUNNING

    @property
    def is_gce(self) -> bool:
        """Whether its metadata and billing are Google's; else Amazon's."""
        return self.cloud == GCE

    @property
    def first_port(self) -> int:
        """First of the ports the machine may listen on."""
        return self.metadata_port + 1

    @property
    def last_port(self) -> int:
        """Last of them."""
        return self.metadata_port + PORTS_PER_MACHINE

    def to_document(self) -> dict[str, Any]:
        """Plain JSON types. An ended machine's user data, which holds secrets, is left out."""
        document = dict(vars(self))
        document["pool"] = self.pool.key
        if not self.is_running:
            document["user_data"] = {}
        return document

    @staticmethod
    def from_document(document: dict[str, Any]) -> Machine:
        """The record of a journal line. Raises KeyError, TypeError or ValueError."""
        fields = dict(document)
        fields["pool"] = Pool.parse(fields["pool"])
        fields["state"] = MachineState(fields["state"])
        if fields["ended_by"] is not None:
            fields["ended_by"] = EndedBy(fields["ended_by"])
        return Machine(**fields)
