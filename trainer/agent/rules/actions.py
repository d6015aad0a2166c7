"""What the supervisor asks its driver to do, and what the driver answers to each.

Not here: when (`supervisor`) and how (`machine_runtime`).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.agent.rules.agent_state import LocalCheckpoint
from trainer.protocol.checkpoint_manifest import CheckpointRef
from trainer.protocol.directive import Directive


@dataclass(frozen=True)
class StartPreparation:
    """Setup, restore and probe peers for this directive; answer Prepared or PreparationFailed."""

    directive: Directive


@dataclass(frozen=True)
class CancelPreparation:
    """Stop preparing; nothing is to be answered any more."""

    fence: int


@dataclass(frozen=True)
class StartTrainer:
    """Start the trainer; answer TrainerStarted, later TrainerExited (also when it cannot start)."""

    directive: Directive
    parent: CheckpointRef | None


@dataclass(frozen=True)
class TellOutlook:
    """Hand the running trainer the hazard and the price of this directive, which have changed."""

    directive: Directive


@dataclass(frozen=True)
class SignalDrain:
    """SIGTERM to the trainer's group. `until`: when it will be killed, None for not yet known."""

    fence: int
    until: float | None = None


@dataclass(frozen=True)
class TellDeadline:
    """The trainer, which is draining, has less time than it was told: it will be killed then."""

    fence: int
    until: float


@dataclass(frozen=True)
class DumpStacks:
    """SIGUSR1 to every rank of this machine."""

    fence: int


@dataclass(frozen=True)
class KillTrainer:
    """SIGKILL to everything the trainer started; answer TrainerExited."""

    fence: int


@dataclass(frozen=True)
class PublishCheckpoint:
    """Commit a checkpoint; a newer one abandons the one under way.

    Answer CheckpointPublished, PublicationFailed or FencedOff. On other machines than rank 0's:
    upload the share, asked or not; answer ShareSent or PublicationFailed. `checkpoint.key` empty:
    there is no folder, publish a final manifest without files, at the first free step from `step`
    on.
    leave_out: without the files that its own manifest calls optional.
    """

    fence: int
    parent: CheckpointRef | None
    checkpoint: LocalCheckpoint
    leave_out: bool = False


@dataclass(frozen=True)
class SaveOutputs:
    """Bring the output folders of a finished trainer to the job's buckets.

    Answer OutputsSaved or OutputsFailed.
    """

    fence: int


@dataclass(frozen=True)
class Say:
    """Write a sentence into this attempt's log."""

    fence: int
    sentence: str


@dataclass(frozen=True)
class ReportNow:
    """Send a report without waiting for its time."""


@dataclass(frozen=True)
class ArmPowerOff:
    """Tell the independent timer to power the machine off at `at` unless told otherwise."""

    at: float


@dataclass(frozen=True)
class PowerOff:
    """The lease is long over: power off."""


@dataclass(frozen=True)
class Leave:
    """Send what is left, then end the agent."""


Action = (
    StartPreparation
    | CancelPreparation
    | StartTrainer
    | TellOutlook
    | SignalDrain
    | TellDeadline
    | DumpStacks
    | KillTrainer
    | PublishCheckpoint
    | SaveOutputs
    | Say
    | ReportNow
    | ArmPowerOff
    | PowerOff
    | Leave
)
