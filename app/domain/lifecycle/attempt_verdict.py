"""Why an attempt ended: one verdict over the ends of all its members.

In data-parallel training the survivors die of the peer that was taken, often before anyone knows
that it was. So the verdict waits until every member's end is explained, for a bounded time, and
then takes the first rule that matches. Not here: whether another attempt follows (`retry_policy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.instance import ENDED_BY_CLOUD, EndedBy
from app.domain.units.durations import exact_duration, format_duration

SETTLE_SECONDS_MAX: Final = 60
"""After this long in `settling` the verdict is given on what is known."""


class MemberOutcome(StrEnum):
    """How a member's trainer ended, as its agent reports it.

    `stopped` means that we ended it by force, after its drain ran out of time or it stalled; it
    explains the end of that member but is never the cause.
    """

    FINISHED = "finished"
    DRAINED = "drained"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Stall:
    """No rank made a step for as long as the spec allows. step: the newest; 0, None: not one."""

    timeout_seconds: int
    step: int | None

    @property
    def sentence(self) -> str:
        """What did not happen, and within which time."""
        goal = f"a step after step {self.step:,}" if self.step else "its first step"
        limit = exact_duration(self.timeout_seconds)
        return (
            f"No rank finished {goal} within the `stall_timeout` of {limit}: the stacks of all are "
            "in the logs."
        )


@dataclass(frozen=True, slots=True)
class MemberEnd:
    """What is known about one member of the gang.

    `reason` is the agent's own finding (preparation_failed, gpu_fault, agent_failed, …) where it
    has one. `failed_at` is the failing rank's own time, aware UTC. `noticed`: the cloud announced
    that it takes the machine. `gone_with_two_witnesses`: its silence has a second witness.
    """

    node_rank: int
    outcome: MemberOutcome | None = None
    exit_code: int | None = None
    error_type: str | None = None
    message: str | None = None
    reason: EndReason | None = None
    out_of_memory: bool = False
    peer_communication: bool = False
    failed_at: datetime | None = None
    noticed: bool = False
    ended_by: EndedBy | None = None
    gone_with_two_witnesses: bool = False

    @property
    def taken(self) -> bool:
        """The cloud announced or did the ending."""
        return self.noticed or self.ended_by in ENDED_BY_CLOUD

    @property
    def gone(self) -> bool:
        """It ended without a word of its own, and that is proven."""
        silent = self.outcome is None and not self.taken
        return silent and (self.gone_with_two_witnesses or self.ended_by is not None)

    @property
    def explained(self) -> bool:
        """Its end is reported or has a witness."""
        return self.outcome is not None or self.taken or self.gone


@dataclass(frozen=True, slots=True)
class AttemptVerdict:
    """How the attempt ended. `node_rank` is the member that decided it, if one did.

    error: what that member said of an error of the user's own; "" for any other end.
    """

    state: AttemptState
    end_reason: EndReason
    message: str
    node_rank: int | None = None
    exit_code: int | None = None
    error: str = ""


OUT_OF_MEMORY_ADVICE: Final = (
    "It would run out again on such a machine: use less memory, as by smaller batches, or ask for "
    "more (`resources.gpu`, `resources.memory`)."
)
_CLOUD_REASON: Final = {
    EndedBy.CLOUD_INTERRUPTION: EndReason.SPOT_INTERRUPTED,
    EndedBy.CLOUD_CAPACITY: EndReason.NO_CAPACITY,
    EndedBy.CLOUD_FAILURE: EndReason.MACHINE_FAILED,
}
# Types that an agent gives to ends that no exception tells; their message is a whole sentence.
AGENT_ERROR_TYPES: Final = frozenset({"Killed", "Signal"})
# What people read when a rank failed for a reason its agent named.
_NAMED_FAILURE: Final = {
    EndReason.PREPARATION_FAILED: "could not be prepared",
    EndReason.STORE_UNAVAILABLE: "could not reach an object store",
    EndReason.DISK_FULL: "had no room left on a disk",
    EndReason.STALLED: "made no progress for too long",
    EndReason.GPU_FAULT: "has a GPU fault",
    EndReason.MACHINE_FAILED: "failed as a machine",
    EndReason.AGENT_FAILED: "lost its agent",
    EndReason.FENCED_OFF: "was superseded",
    EndReason.CONFIGURATION_REJECTED: "has an invalid configuration",
    EndReason.CREDENTIALS: "was denied access",
    EndReason.OUT_OF_MEMORY: "ran out of memory",
    EndReason.USER_ERROR: "failed",
}


def settle(
    members: Sequence[MemberEnd],
    *,
    final_manifest: bool,
    deadline_passed: bool,
    our_order: DrainCause | None = None,
    order_reason: EndReason | None = None,
    stall: Stall | None = None,
) -> AttemptVerdict | None:
    """The verdict, or None while a member's end is unexplained and there is time to wait.

    `our_order` is the drain in force; for a stop or a yield `order_reason` says what for.
    `stall`: the attempt came here because no rank made a step. `deadline_passed`: it has been
    settling for SETTLE_SECONDS_MAX. Raises ValueError without members, or for a stop or yield
    without its reason.
    """
    if not members:
        raise ValueError("a verdict needs at least one member")
    if our_order in (DrainCause.STOP, DrainCause.YIELD) and order_reason is None:
        raise ValueError(f"a {our_order} needs the reason it was ordered for")
    if final_manifest:
        return AttemptVerdict(AttemptState.SUCCEEDED, EndReason.FINISHED, "The work is done.")
    ordered = sorted(members, key=lambda member: member.node_rank)
    if not deadline_passed and not all(member.explained for member in ordered):
        return None
    return (
        _left_by_our_order(ordered, our_order, order_reason)
        or _taken_by_cloud(ordered, our_order)
        or _gone(ordered)
        or _ended_by_agent(ordered)
        or _stalled(stall)
        or _first_failure(ordered)
        or _unknown(ordered)
    )


def _left_by_our_order(
    members: Sequence[MemberEnd], order: DrainCause | None, reason: EndReason | None
) -> AttemptVerdict | None:
    """Our stop or yield, and every member that can still speak has left."""
    if reason is None or order not in (DrainCause.STOP, DrainCause.YIELD):
        return None
    left = (MemberOutcome.DRAINED, MemberOutcome.FINISHED, MemberOutcome.STOPPED)
    reachable = [member for member in members if member.outcome is not None]
    if any(member.outcome not in left for member in reachable):
        return None
    if order is DrainCause.STOP:
        return AttemptVerdict(AttemptState.STOPPED, reason, f"Stopped: {_words(reason)}.")
    if not reachable:
        # A yield that nobody followed is no yield: find out what really happened.
        return None
    return AttemptVerdict(AttemptState.YIELDED, reason, f"Stopped: {_words(reason)}.")


def _taken_by_cloud(
    members: Sequence[MemberEnd], order: DrainCause | None
) -> AttemptVerdict | None:
    for member in members:
        if member.taken:
            reason = EndReason.SPOT_INTERRUPTED
            if member.ended_by is not None:
                reason = _CLOUD_REASON.get(member.ended_by, reason)
            text = (
                f"The cloud interrupted the machine of node {member.node_rank}: {_words(reason)}."
            )
            return AttemptVerdict(AttemptState.INTERRUPTED, reason, text, member.node_rank)
    if order is DrainCause.INTERRUPTION:
        text = "The attempt ended after an interruption notice."
        return AttemptVerdict(AttemptState.INTERRUPTED, EndReason.SPOT_INTERRUPTED, text)
    return None


def _gone(members: Sequence[MemberEnd]) -> AttemptVerdict | None:
    for member in members:
        if not member.gone:
            continue
        # Ours means that we ended a machine we had lost sight of; anything else ended it itself.
        ours = member.ended_by in (None, EndedBy.US)
        reason = EndReason.CONTACT_LOST if ours else EndReason.MACHINE_FAILED
        how = "fell silent" if ours else f"ended ({member.ended_by})"
        text = f"The machine of node {member.node_rank} {how}, and a second check confirms it."
        return AttemptVerdict(AttemptState.LOST, reason, text, member.node_rank)
    return None


def _ended_by_agent(members: Sequence[MemberEnd]) -> AttemptVerdict | None:
    """An agent that came back, or was superseded, had to end its trainer: the others died of that.

    A user's command has no word for a lost peer, so its failure would look like the user's error.
    """
    for member in members:
        if member.reason in (EndReason.AGENT_FAILED, EndReason.FENCED_OFF):
            text = _failure_text(member, member.reason)
            return AttemptVerdict(AttemptState.FAILED, member.reason, text, member.node_rank)
    return None


def _stalled(stall: Stall | None) -> AttemptVerdict | None:
    if stall is None:
        return None
    return AttemptVerdict(AttemptState.FAILED, EndReason.STALLED, stall.sentence)


def _first_failure(members: Sequence[MemberEnd]) -> AttemptVerdict | None:
    """The earliest rank that failed of itself; dying of a lost peer is not a cause."""
    causes = [
        member
        for member in members
        if member.outcome is MemberOutcome.FAILED and not member.peer_communication
    ]
    if not causes:
        return None
    first = min(causes, key=_failure_order)
    reason = first.reason or EndReason.USER_ERROR
    if first.out_of_memory:
        reason = EndReason.OUT_OF_MEMORY
    return AttemptVerdict(
        AttemptState.FAILED,
        reason,
        _failure_text(first, reason),
        first.node_rank,
        first.exit_code,
        _said(first) if reason is EndReason.USER_ERROR else "",
    )


def _failure_order(member: MemberEnd) -> tuple[bool, float, int]:
    """Earliest first; a rank that could not tell its time comes after those that could."""
    at = member.failed_at
    return (at is None, at.timestamp() if at is not None else 0.0, member.node_rank)


def _failure_text(member: MemberEnd, reason: EndReason) -> str:
    what = _NAMED_FAILURE.get(reason, f"failed: {_words(reason)}")
    told = member.exit_code is not None and member.exit_code >= 0  # else the message has the signal
    code = f" with exit code {member.exit_code}" if told else ""
    said = _said(member)
    text = f"Node {member.node_rank} {what}{code}" + (f": {said}" if said else "")
    if reason is EndReason.OUT_OF_MEMORY:
        return f"{text.removesuffix('.')}. {OUT_OF_MEMORY_ADVICE}"
    return f"{text}."


def _said(member: MemberEnd) -> str:
    kind = None if member.error_type in AGENT_ERROR_TYPES else member.error_type
    return ": ".join(part for part in (kind, member.message) if part)


def _unknown(members: Sequence[MemberEnd]) -> AttemptVerdict:
    silent = [member.node_rank for member in members if not member.explained]
    outcomes = {member.outcome for member in members}
    reason = EndReason.UNKNOWN
    if silent:
        nodes = ", ".join(str(rank) for rank in silent)
        text = (
            f"Nothing explains the end of node {nodes} after {format_duration(SETTLE_SECONDS_MAX)}."
        )
    elif MemberOutcome.FAILED in outcomes:
        text = "Every failed rank reported a lost peer, and none reported a cause of its own."
        said = next((member.message for member in members if member.message), None)
        if said is not None:
            text += f" The first of them says: {said}"
    elif MemberOutcome.FINISHED in outcomes:
        # Exit code 0 is not proof; trying for ever would pay for the same end again.
        reason = EndReason.USER_ERROR
        text = "The trainer exited 0, but no final checkpoint was committed."
    else:
        # An agent whose lease runs out drains unasked; that is lost contact, not the user's error.
        reason = EndReason.CONTACT_LOST
        text = "The machines stopped by themselves: they could not renew their lease."
    return AttemptVerdict(AttemptState.FAILED, reason, text)


def _words(reason: EndReason) -> str:
    return reason.value.replace("_", " ")
