"""Kinds of entries in a job's history, and who caused them.

Every event of the three state tables is a kind; `JobEventKind` has the others, which people want
to see and which change no state. Not here: how entries are numbered and stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.domain.lifecycle.attempt import AttemptEvent
from app.domain.lifecycle.instance import InstanceEvent
from app.domain.lifecycle.job import JobEvent


class JobEventKind(StrEnum):
    """Entries that no state depends on. Values are stored and shown; never reuse or rename one."""

    SUBMITTED = "submitted"
    WAITING = "waiting"
    REPLACEMENT_REQUESTED = "replacement_requested"
    GANG_SIZED = "gang_sized"
    GROWTH_REQUESTED = "growth_requested"
    INSTANCE_UNREACHABLE = "instance_unreachable"
    INSTANCE_HEARD_AGAIN = "instance_heard_again"
    INSTANCE_ADOPTED = "instance_adopted"
    CREDENTIAL_REFUSED = "credential_refused"
    BOOT_FAILED = "boot_failed"
    BOOT_WARNED = "boot_warned"
    MEMBER_PREPARED = "member_prepared"
    TRAINING_RESUMED = "training_resumed"
    MEMBER_DRAINED = "member_drained"
    MEMBER_FINISHED = "member_finished"
    CHECKPOINT_COMMITTED = "checkpoint_committed"
    FINISHED_WITHOUT_CHECKPOINT = "finished_without_checkpoint"
    IMAGE_PINNED = "image_pinned"
    OUTPUTS_SAVED = "outputs_saved"
    OUTPUTS_NOT_SAVED = "outputs_not_saved"
    CHECKPOINT_REJECTED = "checkpoint_rejected"
    ATTEMPT_FENCED = "attempt_fenced"
    BUDGET_CHANGED = "budget_changed"
    DEADLINE_UNSAFE = "deadline_unsafe"
    DEADLINE_MISSED = "deadline_missed"
    MOVED_TO_ON_DEMAND = "moved_to_on_demand"
    MOVED_TO_SPOT = "moved_to_spot"
    MIGRATION_BEGUN = "migration_begun"
    MIGRATION_GIVEN_UP = "migration_given_up"
    STALE_RESULT = "stale_result"
    LATE_FACT = "late_fact"
    DISK_FULL = "disk_full"
    DISK_HAS_ROOM = "disk_has_room"
    STORAGE_ACCESS_FAILS = "storage_access_fails"
    STORAGE_ACCESS_BACK = "storage_access_back"
    SECRETS_DELIVERED = "secrets_delivered"
    REBALANCE_RECOMMENDED = "rebalance_recommended"
    START_REVISED = "start_revised"
    END_REVISED = "end_revised"
    COST_WAIVED = "cost_waived"


HistoryKind = JobEventKind | JobEvent | AttemptEvent | InstanceEvent
"""What an entry says; no two of these enums share a value."""


class ActorKind(StrEnum):
    """Who may cause an entry."""

    PERSON = "person"
    CONTROLLER = "controller"
    AGENT = "agent"
    CLOUD = "cloud"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did it: a key's name, a controller's name, an instance id or a provider's name."""

    kind: ActorKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Actor:
        """The actor written as `kind:name`; raises ValueError for anything else."""
        kind, separator, name = text.partition(":")
        if not separator or not name:
            raise ValueError(f"an actor reads 'kind:name', not {text!r}")
        return cls(ActorKind(kind), name)
