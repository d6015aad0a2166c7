"""What can happen to a machine, as the supervisor is told it.

Each is a frozen value; instants are seconds on CLOCK_BOOTTIME. Not here: what they change
(`supervisor`) and who sees them (`machine_runtime`, or the simulator).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from trainer.agent.notices import Notice
from trainer.agent.rules.agent_state import LocalCheckpoint, TrainerEnd
from trainer.protocol.agent_report import DiskFull, MachinePhase
from trainer.protocol.checkpoint_manifest import CheckpointRef
from trainer.protocol.directive import RegistrationReply, ReportReply


class Refusal(StrEnum):
    """Answers that are not an answer to the report."""

    REVOKED = "revoked"  # 401: this machine is being given back
    NOT_A_MEMBER = "not_a_member"  # 403: the reported fence is none of ours
    PROTOCOL = "protocol"  # 426: this agent is too old or too new


@dataclass(frozen=True)
class Registered:
    """The registration sent at `sent_at` was answered."""

    sent_at: float
    reply: RegistrationReply


@dataclass(frozen=True)
class ReportAnswered:
    """The report sent at `sent_at` was answered; renews the lease and carries the directive."""

    sent_at: float
    reply: ReportReply


@dataclass(frozen=True)
class ReportRefused:
    """The control plane answered, with a refusal."""

    refusal: Refusal


@dataclass(frozen=True)
class NoticeSeen:
    """The cloud's metadata shows a notice; seeing the same one again changes nothing."""

    notice: Notice


@dataclass(frozen=True)
class ShutdownAsked:
    """The operating system is shutting down and has asked the agent to end (SIGTERM).

    Compute Engine's shortest notice comes at the same moment as this, so it must not end us.
    """

    seconds_left: float


@dataclass(frozen=True)
class PhaseEntered:
    """The machine (setup, restore) or the trainer (its phase lines) began another phase."""

    fence: int
    phase: MachinePhase
    at: float
    step: int | None = None


@dataclass(frozen=True)
class Prepared:
    """Restored and in reach of every peer. `parent_final`: there is nothing left to train.

    restored_bytes: read from the store meanwhile, what was passed over included; None: unknown.
    image: the exact image that the job runs in, None without one.
    parent_size_bytes: of all files of the parent.
    """

    fence: int
    parent: CheckpointRef | None = None
    master_port: int | None = None
    parent_final: bool = False
    restored_bytes: int | None = None
    image: str | None = None
    parent_size_bytes: int | None = None


@dataclass(frozen=True)
class PreparationFailed:
    """Setup, restore or the peer probe failed; `message` is for a person.

    restored_bytes: as in `Prepared`; what was read costs the same when it was in vain.
    """

    fence: int
    stage: str
    message: str
    store_unavailable: bool = False
    restored_bytes: int | None = None
    disk_full: bool = False


@dataclass(frozen=True)
class TrainerStarted:
    """The trainer's process exists."""

    fence: int


@dataclass(frozen=True)
class ProgressSeen:
    """A step line of the trainer."""

    fence: int
    step: int
    total_steps: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SaveLackedRoom:
    """The trainer said that its disk had no room for a checkpoint; it may train on.

    left: what is free there now, which may be much and still not enough.
    """

    fence: int
    step: int | None
    left: DiskFull


@dataclass(frozen=True)
class DiskSeen:
    """A file system of this machine is full (`full`), or none is any more (None)."""

    full: DiskFull | None


@dataclass(frozen=True)
class CheckpointReady:
    """The trainer completed a checkpoint folder on this machine."""

    fence: int
    checkpoint: LocalCheckpoint


@dataclass(frozen=True)
class CheckpointPublished:
    """Its manifest is in the object store: committed. sent_bytes: what this machine uploaded of it,
    where other machines uploaded the rest.
    """

    fence: int
    checkpoint: LocalCheckpoint
    ref: CheckpointRef
    size_bytes: int
    final: bool
    metrics: dict[str, float] = field(default_factory=dict)
    sent_bytes: int | None = None


@dataclass(frozen=True)
class ShareSent:
    """This machine's share of it is in the object store; rank 0's machine makes it count."""

    fence: int
    checkpoint: LocalCheckpoint


@dataclass(frozen=True)
class PublicationFailed:
    """The store did not take it; tried again while there is time.

    hopeless: no other try can do better. unheard: another machine's share was waited for in vain.
    """

    fence: int
    checkpoint: LocalCheckpoint
    message: str
    hopeless: bool = False
    unheard: bool = False


@dataclass(frozen=True)
class OutputsSaved:
    """What the finished trainer left in the job's output folders is in its buckets."""

    fence: int
    files: int
    size_bytes: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class OutputsFailed:
    """It is not, and is not tried again; `message` is for a person."""

    fence: int
    message: str


@dataclass(frozen=True)
class FencedOff:
    """A later attempt's fence is in the store: this machine was cut off and must not train."""

    fence: int
    by_fence: int


@dataclass(frozen=True)
class TrainerExited:
    """The trainer is gone, every process of it; complete checkpoints were reported before."""

    fence: int
    end: TrainerEnd


@dataclass(frozen=True)
class GpuFaulted:
    """A GPU of this machine reported an error it does not recover from."""

    message: str


@dataclass(frozen=True)
class Tick:
    """Time passed; `step` with no observation at all does the same."""


Observation = (
    Registered
    | ReportAnswered
    | ReportRefused
    | NoticeSeen
    | ShutdownAsked
    | PhaseEntered
    | Prepared
    | PreparationFailed
    | TrainerStarted
    | ProgressSeen
    | SaveLackedRoom
    | DiskSeen
    | CheckpointReady
    | CheckpointPublished
    | ShareSent
    | PublicationFailed
    | OutputsSaved
    | OutputsFailed
    | FencedOff
    | TrainerExited
    | GpuFaulted
    | Tick
)
