"""What the control plane wants of one machine: a desired state, computed from rows.

Lives here: the directive, the answers to a registration and to a report. Not here: the decision
(`directives.compute_directive`) or the obedience (`rules.supervisor`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainer.protocol.run_config import RunConfig
from trainer.protocol.storage_access import StorageGrant


class DirectiveKind(StrEnum):
    """The six things a machine can be asked to be."""

    HOLD = "hold"  # stay rented, train nothing, wait
    PREPARE = "prepare"  # restore and probe peers for this fence
    TRAIN = "train"  # run the trainer for this fence
    DRAIN = "drain"  # save and end the trainer of this fence
    STOP = "stop"  # end the trainer of this fence at once
    LEAVE = "leave"  # the machine is being given back


class DrainCause(StrEnum):
    """Why an attempt drains, weakest first: a stop outranks an interruption, that a yield."""

    YIELD = "yield"
    INTERRUPTION = "interruption"
    STOP = "stop"

    @property
    def rank(self) -> int:
        """Position in the order of strength; higher wins."""
        return list(DrainCause).index(self)


@dataclass(frozen=True)
class Peer:
    """One member of the gang, by node rank."""

    node_rank: int
    address: str
    port_from: int
    port_to: int


@dataclass(frozen=True)
class Directive:
    """The desired state. An agent ignores a lower fence, and a lower version.

    fence: None only for `hold` and `leave`.
    drain_seconds: seconds left, from receipt, to save and end (`drain` only).
    stalled: no rank makes steps, so each machine first writes its stacks (`stop` only).
    hazard_per_hour, price_per_hour_usd: losses to expect of the gang's machines and what they cost,
    together and now; None when nobody knows (`train` only; a running trainer is told of a change).
    """

    kind: DirectiveKind
    version: int
    fence: int | None = None
    attempt_id: str | None = None
    node_rank: int | None = None
    peers: tuple[Peer, ...] = ()
    master_addr: str | None = None
    master_port: int | None = None
    drain_seconds: float | None = None
    drain_cause: DrainCause | None = None
    checkpoint_interval_seconds: float | None = None
    stalled: bool = False
    hazard_per_hour: float | None = None
    price_per_hour_usd: float | None = None


@dataclass(frozen=True)
class RegistrationReply:
    """The instance's own credential, its lease, and what its job runs.

    log_gaps: a log's end may be sent before what precedes it; False from a release before.
    storage: services, `s3` and `gs`, for which answers to reports bring credentials; for the others
    the machine has rights of its own, or needs none.
    """

    instance_id: str
    credential: str
    lease_seconds: float
    next_report_seconds: float
    run_config: RunConfig
    directive: Directive
    log_gaps: bool = False
    storage: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReportReply:
    """Answer to a report: the highest fact number now safe, the lease, and the directive.

    storage: new credentials, for services whose old ones are missing or run out.
    """

    ack_fact_no: int
    lease_seconds: float
    next_report_seconds: float
    directive: Directive
    storage: tuple[StorageGrant, ...] = ()
