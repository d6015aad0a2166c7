"""What an agent tells the control plane: registration, facts, and the periodic report.

Lives here: the shapes and the closed list of fact kinds. Not here: how they are sent
(`machine.control_plane_client`) or applied (`agents.receive_agent_report`).

Only durations cross the wire: a fact carries the machine's uptime when it happened, the report
the uptime when it was sent, and the control plane subtracts the difference from its own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainer.protocol.storage_access import StorageHeld

PROTOCOL_VERSION = 1
"""Version N; the control plane accepts N and N-1 and answers 426 to anything else."""

FACTS_PER_REPORT_MAX = 200
FACTS_KEPT_MAX = 10_000

STORE_UNAVAILABLE = "store_unavailable"
"""Type of an end that a store's silence has made: of the checkpoints', or of the data's."""
DISK_FULL = "disk_full"
"""Type of an end that a full disk of the machine has made."""
AGENT_RESTARTED = "agent_restarted"
"""Type of an end that an agent has made which came up anew and found a trainer running."""
AGENT_FAILED = "agent_failed"
"""Type of an end that an agent has made which failed again and again; also why it leaves."""


class FactKind(StrEnum):
    """What can happen on a rented machine. `data` of each kind is listed beside it."""

    PHASE = "phase"  # phase, step|None: begins now, lasts until the next one
    NOTICE = "notice"  # action, seconds_left, source, notice_id
    REBALANCE = "rebalance"  # source
    PREPARED = "prepared"  # parent {fence, step, digest}|None, master_port|None, restored_bytes,
    # image|None
    PREPARATION_FAILED = "preparation_failed"  # stage, message, store_unavailable: bool,
    # disk_full: bool, restored_bytes
    TRAINER_STARTED = "trainer_started"  # (none)
    CHECKPOINT = "checkpoint"  # step, digest, size_bytes, parent|None, final, metrics
    COMPLETION = "completion"  # step, digest: the final manifest is in the lineage
    TRAINER_ENDED = "trainer_ended"  # outcome, exit_code, step|None, error|None (see TrainerEnd),
    # unsent_step: saved there, but not committed; pace: as in Pace, or none
    OUTPUTS = "outputs"  # files, size_bytes, addresses; or error: a sentence
    STALLED = "stalled"  # step, seconds
    FENCED_OFF = "fenced_off"  # by_fence
    GPU_FAULT = "gpu_fault"  # message
    METRICS = "metrics"  # points: [{step, ...numeric}]
    LEAVING = "leaving"  # reason
    UNKNOWN = "unknown"  # never sent: how any other word is read

    @classmethod
    def _missing_(cls, value: object) -> FactKind | None:
        """Of a newer agent. Were it refused, the report that brings it would renew no lease."""
        return cls.UNKNOWN if isinstance(value, str) else None


NEVER_DROPPED = frozenset(
    {
        FactKind.NOTICE,
        FactKind.PREPARED,
        FactKind.PREPARATION_FAILED,
        FactKind.TRAINER_STARTED,
        FactKind.CHECKPOINT,
        FactKind.COMPLETION,
        FactKind.TRAINER_ENDED,
        FactKind.OUTPUTS,
        FactKind.STALLED,
        FactKind.FENCED_OFF,
        FactKind.LEAVING,
    }
)
"""Kinds that stay queued whatever the backlog; the others are dropped oldest first."""


class MachinePhase(StrEnum):
    """What a machine is doing, second by second; the phase timeline of the cost statement."""

    BOOT = "boot"
    SETUP = "setup"
    IDLE = "idle"
    RESTORE = "restore"
    GANG_WAIT = "gang_wait"
    COMPILE = "compile"
    TRAIN = "train"
    CHECKPOINT = "checkpoint"
    EVAL = "eval"
    DRAIN = "drain"


EXIT_DRAINED = 75
"""The exit status of a trainer that saved and left as asked: os.EX_TEMPFAIL."""


class TrainerOutcome(StrEnum):
    """How one machine's part of an attempt ended."""

    FINISHED = "finished"
    DRAINED = "drained"
    FAILED = "failed"
    KILLED = "killed"  # by the agent: lease over, fenced off, or drain time used up


@dataclass(frozen=True)
class TrainerError:
    """The earliest failing rank of a machine, as its end file or torchrun's error file says."""

    message: str
    rank: int | None = None
    type: str | None = None
    signal: int | None = None
    out_of_memory: bool = False
    peer_communication: bool = False
    failed_uptime_ms: int | None = None


@dataclass(frozen=True)
class Fact:
    """Something that happened, numbered per session; resent until acknowledged."""

    fact_no: int
    kind: FactKind
    uptime_ms: int
    fence: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pace:
    """What an agent measured of one trainer process, from the end of the first step it saw.

    stepping_seconds: from the first to the last step, stalls for saves and evaluation included.
    start_up_seconds: from the start of the process to the end of its first step.
    """

    first_step: int
    last_step: int
    stepping_seconds: float
    start_up_seconds: float


@dataclass(frozen=True)
class Progress:
    """The newest progress line of the trainer; any further numeric key is in `metrics`.

    pace: None before the first step, and from an agent that does not measure it.
    """

    step: int
    total_steps: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    pace: Pace | None = None


@dataclass(frozen=True)
class DiskFull:
    """A file system of the machine that cannot take more: a folder on it, and its free bytes."""

    folder: str
    free_bytes: int


@dataclass(frozen=True)
class AgentReport:
    """One report. `seq` grows per session; `fence` is the attempt the agent works for.

    disk_full: while a disk of the machine is; None from an agent of the release before.
    storage: what it holds of each service that it was told of at registration; None where it uses
    the machine's own rights, as agents of the release before do.
    """

    protocol: int
    instance_id: str
    boot_id: str
    session_id: str
    seq: int
    uptime_ms: int
    phase: MachinePhase
    fence: int | None = None
    progress: Progress | None = None
    facts: tuple[Fact, ...] = ()
    disk_full: DiskFull | None = None
    storage: tuple[StorageHeld, ...] | None = None


@dataclass(frozen=True)
class Registration:
    """First call of an agent. `nonce` is the agent's own; the same one gets the same answer.

    takes_secrets: it asks for the secrets that a job names; False from a release before.
    """

    protocol: int
    launch_token: str
    nonce: str
    provider_instance_id: str
    boot_id: str
    session_id: str
    uptime_ms: int
    private_address: str
    port_from: int
    port_to: int
    gpu_count: int = 0
    interface: str = ""
    agent_version: str = ""
    takes_secrets: bool = False
