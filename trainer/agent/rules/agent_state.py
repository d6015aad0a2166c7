"""What the supervisor remembers: plain frozen values.

Lives here: the state of one machine's agent. Not here: the rules (`supervisor`), what moves it
(`observations`), what it asks for (`actions`), or any I/O (`machine_runtime`). All instants are
seconds on the machine's CLOCK_BOOTTIME.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainer.agent.rules.fact_backlog import FactBacklog
from trainer.agent.rules.step_pace import StepPace
from trainer.protocol.agent_report import (
    DiskFull,
    MachinePhase,
    Progress,
    TrainerError,
    TrainerOutcome,
)
from trainer.protocol.checkpoint_manifest import CheckpointRef
from trainer.protocol.directive import Directive
from trainer.protocol.storage_access import DRAIN_RESERVE_SECONDS


@dataclass(frozen=True)
class Timings:
    """Durations the rules use, in seconds. Tests and the demo shorten them; nothing else does.

    lease_reserve: the trainer drains this long before the lease ends, or a third of a short lease.
    power_off_grace: the machine powers off this long after the lease ended.
    unanswered: counts as the lease of an agent that was never answered, for the power-off only.
    hold_drain: drain time when the control plane wants nothing trained any more.
    notice_drain: a notice further away than this is reported, and drained for only when ordered.
    notice_least: a trainer gets at least this long, whatever a notice's clock says.
    stack_dump: between asking for the stacks of a stalled trainer and killing it.
    closing: how long the last checkpoint of an ended trainer may take to be published.
    handover: how long the next attempt waits for that, once this machine is wanted for it.
    outputs: how long the outputs of a finished trainer may take to be saved.
    """

    lease_reserve: float = DRAIN_RESERVE_SECONDS
    power_off_grace: float = 300.0
    unanswered: float = 1_800.0
    hold_drain: float = 30.0
    notice_drain: float = 300.0
    notice_least: float = 10.0
    stack_dump: float = 5.0
    closing: float = 600.0
    handover: float = 45.0
    outputs: float = 7_200.0


class Stage(StrEnum):
    """How far this machine is with the attempt it works for."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    RUNNING = "running"
    DRAINING = "draining"  # asked to save and end
    KILLING = "killing"  # SIGKILL is on its way
    CLOSING = "closing"  # the trainer is gone, its last checkpoint is being published
    ENDED = "ended"  # everything about this attempt is in the facts


TRAINER_STAGES = frozenset({Stage.RUNNING, Stage.DRAINING, Stage.KILLING})


class DrainReason(StrEnum):
    """Why the agent drains; stands in `trainer_ended` as `drain_cause`."""

    DIRECTIVE = "directive"
    NOTICE = "notice"
    LEASE = "lease"
    PROTOCOL = "protocol"
    HOLD = "hold"


@dataclass(frozen=True)
class LocalCheckpoint:
    """A complete checkpoint folder on this machine. `key` tells two saves of one step apart.

    size_bytes: of all its files; 0 where nobody has looked. optional_bytes: of those that it may
    do without. save: of a share of what a gang saves together, which save of the attempt it is; 0:
    the folder is the whole checkpoint.
    """

    step: int
    final: bool = False
    key: str = ""
    size_bytes: int = 0
    optional_bytes: int = 0
    save: int = 0


@dataclass(frozen=True)
class TrainerEnd:
    """How the trainer of this machine ended, as read from its end files and exit status.

    before_kill: it had failed before the agent killed anything; or one rank had, and the agent
    ended the rest.
    """

    outcome: TrainerOutcome
    exit_code: int | None = None
    step: int | None = None
    error: TrainerError | None = None
    before_kill: bool = False


@dataclass(frozen=True)
class Work:
    """This machine's part of one attempt.

    waiting: newest checkpoint that is complete here and not being published yet. given_up: the one
    that cannot be published any more. On machines other than rank 0's these are shares of it.
    publishing: the one being published, since publishing_since; retry_at: when a failed
    publication is tried again.
    stepped_at: when the newest step was seen, None while stalls are not watched. pace: what is
    measured of the steps, from the start of the trainer's process on.
    end_by: in DRAINING when the trainer is killed; in CLOSING when publishing is given up.
    kill_at: when a stalled trainer is killed, its stacks having been asked for.
    told_outlook: the hazard and the price that the trainer was last told.
    saving_outputs, outputs_told: on their way to the job's buckets; and how that ended is told.
    """

    fence: int
    attempt_id: str
    node_rank: int
    gang_size: int
    stage: Stage
    parent: CheckpointRef | None = None
    master_port: int | None = None
    step: int | None = None
    stepped_at: float | None = None
    pace: StepPace | None = None
    end_by: float | None = None
    drain_reason: DrainReason | None = None
    kill_at: float | None = None
    waiting: LocalCheckpoint | None = None
    publishing: LocalCheckpoint | None = None
    publishing_since: float | None = None
    given_up: LocalCheckpoint | None = None
    publish_failures: int = 0
    retry_at: float | None = None
    committed: CheckpointRef | None = None
    final_committed: bool = False
    end: TrainerEnd | None = None
    told_outlook: tuple[float | None, float | None] = (None, None)
    saving_outputs: bool = False
    outputs_told: bool = False

    @property
    def publishes(self) -> bool:
        """Only rank 0 of a gang writes to the lineage."""
        return self.node_rank == 0


@dataclass(frozen=True)
class AgentState:
    """Everything the supervisor remembers. Build with `supervisor.initial_state`."""

    boot_id: str
    session_id: str
    limits: Timings
    started_at: float
    facts: FactBacklog
    seq: int = 0
    instance_id: str | None = None
    watches_first_step: bool = False
    has_outputs: bool = False
    stall_timeout_seconds: float = 1_800.0
    lease_from: float | None = None
    lease_seconds: float = 0.0
    directive: Directive | None = None
    drain_by: float | None = None  # deadline of the drain directive, from its first receipt
    work: Work | None = None
    lost_fence: int | None = None  # attempts up to this one are known to nobody any more
    phase: MachinePhase = MachinePhase.BOOT
    phase_at: float = 0.0
    progress: Progress | None = None
    points: tuple[dict[str, float], ...] = ()
    points_sent_at: float = 0.0
    upload_bytes_per_second: float | None = None
    disk_full: DiskFull | None = None
    disk_full_at: float | None = None  # when a disk was last seen full, or a save lacked room
    last_disk_full: DiskFull | None = None
    save_lacked_room: bool = False  # the newest save found none
    notice_ids: tuple[str, ...] = ()
    shutting_down: bool = False
    leaving: bool = False
    powered_off: bool = False

    @property
    def lease_until(self) -> float | None:
        """When the lease ends: counted from the *sending* of the last answered report."""
        return None if self.lease_from is None else self.lease_from + self.lease_seconds
