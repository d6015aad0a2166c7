"""Kinds of entries in a job's history, and who caused them.

Every event of the three state tables is a kind under the same word, so an applied event is
recorded with `JobEventKind(event.value)`; the rest are things people want to see that change no
state. Not here: how entries are numbered and stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobEventKind(StrEnum):
    """What an entry says. Values are stored and shown; never reuse or rename one."""

    # The job's own table.
    SUBMITTED = "submitted"
    CLAIMED = "claimed"
    ATTEMPT_STARTED = "attempt_started"
    ATTEMPT_SUCCEEDED = "attempt_succeeded"
    COMPLETION_FOUND = "completion_found"
    ATTEMPT_ENDED_FRESH = "attempt_ended_fresh"
    ATTEMPT_ENDED_RETRYABLE = "attempt_ended_retryable"
    ATTEMPT_ENDED_FATAL = "attempt_ended_fatal"
    STOP_ORDERED = "stop_ordered"
    STOPPED_FOR_USER = "stopped_for_user"
    STOPPED_FOR_LIMIT = "stopped_for_limit"
    STOPPED_FOR_BUDGET = "stopped_for_budget"
    STOPPED_FOR_PAUSE = "stopped_for_pause"
    RESUMED = "resumed"
    GIVEN_UP = "given_up"
    # The attempt's table.
    MEMBER_MISSING = "member_missing"
    MEMBERS_REGISTERED = "members_registered"
    OFFERS_EXHAUSTED = "offers_exhausted"
    PROVISIONING_EXPIRED = "provisioning_expired"
    TRAINER_STARTED = "trainer_started"
    DRAIN_ORDERED_STOP = "drain_ordered_stop"
    DRAIN_ORDERED_INTERRUPTION = "drain_ordered_interruption"
    DRAIN_ORDERED_YIELD = "drain_ordered_yield"
    ALL_MEMBERS_FINISHED = "all_members_finished"
    ALL_DRAINED_STOP = "all_drained_stop"
    ALL_DRAINED_INTERRUPTION = "all_drained_interruption"
    ALL_DRAINED_YIELD = "all_drained_yield"
    MEMBER_ENDED = "member_ended"
    MEMBER_GONE = "member_gone"
    STALL_DETECTED = "stall_detected"
    DRAIN_EXPIRED = "drain_expired"
    VERDICT_SUCCEEDED = "verdict_succeeded"
    VERDICT_INTERRUPTED = "verdict_interrupted"
    VERDICT_FAILED = "verdict_failed"
    VERDICT_STOPPED = "verdict_stopped"
    VERDICT_YIELDED = "verdict_yielded"
    VERDICT_LOST = "verdict_lost"
    # The instance's table.
    LAUNCH_SUBMITTED = "launch_submitted"
    LAUNCH_ACCEPTED = "launch_accepted"
    LAUNCH_REFUSED = "launch_refused"
    AGENT_REGISTERED = "agent_registered"
    INTERRUPTION_NOTICED = "interruption_noticed"
    RELEASE_ORDERED = "release_ordered"
    STOP_OBSERVED = "stop_observed"
    OVERDUE = "overdue"
    ABSENCE_CONFIRMED = "absence_confirmed"
    # Worth a line, but no state depends on them.
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
    REBALANCE_RECOMMENDED = "rebalance_recommended"
    START_REVISED = "start_revised"
    END_REVISED = "end_revised"
    COST_WAIVED = "cost_waived"


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
