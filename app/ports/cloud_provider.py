"""The provider port: launch, look, terminate. Fits EC2 CreateFleet and GCE bulkInsert.

Lives here: the orders, the answers and the typed errors every provider maps its cloud onto. Not
here: prices (`price_source`) or what a state means to us (`app.domain.lifecycle.instance`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.launch_errors import RefusalKind, RefusalScope
from app.domain.market.offer import Market, Pool

__all__ = [
    "AcceptedMachine",
    "CloudMachine",
    "CloudProvider",
    "LaunchOrder",
    "LaunchOutcomeUnknown",
    "LaunchResult",
    "MachineList",
    "MachineState",
    "PoolBid",
    "PoolRefusal",
    "ProviderError",
    "RefusalKind",
    "RefusalScope",
]


class ProviderError(Exception):
    """A call failed as a whole; nothing may be concluded about machines from it.

    scope: how far the refusal reaches, where the cloud says more than its kind does.
    """

    def __init__(self, kind: RefusalKind, message: str, scope: RefusalScope | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.scope = scope


class LaunchOutcomeUnknown(ProviderError):
    """The call may have started machines: ask again with the same token, or find by token."""

    def __init__(self, message: str) -> None:
        super().__init__(RefusalKind.UNAVAILABLE, message)


class MachineState(StrEnum):
    """What the cloud says of a machine."""

    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting_down"
    STOPPED = "stopped"
    TERMINATED = "terminated"


@dataclass(frozen=True)
class PoolBid:
    """A pool we accept and the most we pay there, micro-USD per hour; None = on-demand price."""

    pool: Pool
    max_price_microusd_per_hour: int | None


@dataclass(frozen=True)
class LaunchOrder:
    """One call for `count` machines, all in one zone.

    client_token: the same token with the same order gives the same machines, never more.
    min_count: below it the provider starts nothing, or we release what it started.
    bids: acceptable pools, in our order of preference.
    user_data: what the machine's boot receives (strings only).
    tags: put on the machine in the launch call itself.
    disk_gb: size of the disk that each machine comes with; None: what the provider is set to.
    in_gang: the machines work together, or with others of earlier launches or later ones.
    """

    client_token: str
    count: int
    min_count: int
    market: Market
    bids: tuple[PoolBid, ...]
    user_data: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    disk_gb: int | None = None
    in_gang: bool = False

    @property
    def is_alone(self) -> bool:
        """One machine that needs no other near it."""
        return self.count == 1 and not self.in_gang


@dataclass(frozen=True)
class AcceptedMachine:
    """A machine the cloud began to start; `launched_at` is the cloud's own word when it has one.

    note: what it was asked for and does without, in a sentence; "" for nothing.
    """

    provider_instance_id: str
    pool: Pool
    launched_at: datetime | None
    launched_source: str
    note: str = ""


@dataclass(frozen=True)
class PoolRefusal:
    """What a pool answered instead of a machine.

    pool: None for all that were asked for. scope: how far it reaches, where the cloud says more
    than the kind does (a quota of all regions, a subnet without addresses).
    """

    pool: Pool | None
    kind: RefusalKind
    message: str
    scope: RefusalScope | None = None


@dataclass(frozen=True)
class LaunchResult:
    """Answer of a launch; `pending_operation` names work the cloud has not finished."""

    accepted: tuple[AcceptedMachine, ...] = ()
    refused: tuple[PoolRefusal, ...] = ()
    pending_operation: str | None = None


@dataclass(frozen=True)
class CloudMachine:
    """A machine as the cloud shows it. Times carry their source; None where it does not say.

    host: the computer it runs on, in the cloud's own words; "" where the cloud does not say.
    """

    provider_instance_id: str
    client_token: str
    pool: Pool
    state: MachineState
    launched_at: datetime | None = None
    launched_source: str = ""
    ended_by: EndedBy | None = None
    ended_at: datetime | None = None
    ended_source: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    host: str = ""

    def accepted(self, note: str = "") -> AcceptedMachine:
        """The machine as the answer to its launch names it."""
        return AcceptedMachine(
            self.provider_instance_id, self.pool, self.launched_at, self.launched_source, note
        )


@dataclass(frozen=True)
class MachineList:
    """All machines of this deployment in a region; never a witness when not `complete`."""

    machines: tuple[CloudMachine, ...]
    complete: bool


class CloudProvider(Protocol):
    """A cloud. Every method makes bounded calls with a timeout and raises ProviderError."""

    @property
    def name(self) -> str:
        """`aws`, `gcp` or `local`: the first part of its pools' keys."""
        ...

    @property
    def call_timeout_seconds(self) -> float:
        """Upper bound of one call, retries included; leases are three times this."""
        ...

    def regions(self) -> tuple[str, ...]:
        """Regions to sweep, sorted."""
        ...

    def launch(self, order: LaunchOrder) -> LaunchResult:
        """Start machines. Raises LaunchOutcomeUnknown when the reply was lost."""
        ...

    def poll_launch(self, operation: str) -> LaunchResult:
        """State of an unfinished launch, by the name its first answer gave."""
        ...

    def find_by_token(
        self, client_token: str, region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """Machines started under a token, by id; terminated ones while the cloud shows them.

        region: where the launch was for, so that no other region is asked; None: wherever.
        """
        ...

    def list_deployment(self, region: str) -> MachineList:
        """Every machine carrying this deployment's tag in the region, by id."""
        ...

    def describe(
        self, provider_instance_ids: tuple[str, ...], region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        """The machines known to the cloud among these; an absent id is simply not there.

        region: where all of them are, so that no other region is asked; None: wherever.
        """
        ...

    def terminate(self, provider_instance_ids: tuple[str, ...], region: str | None = None) -> None:
        """Give machines back; an id that is gone or unknown is no error.

        region: where all of them are, so that no other region is asked; None: wherever.
        """
        ...
