"""What a full disk means to an attempt: it is told, and an end that it made is named after it.

A full disk costs checkpoints and lines of logs, and at worst an attempt, which another machine goes
on with: it is no error of the user's program. Not here: seeing it (`disk_watch`).
"""

from __future__ import annotations

import signal
from dataclasses import replace

from trainer.agent.rules.actions import ReportNow
from trainer.agent.rules.agent_state import AgentState, TrainerEnd
from trainer.agent.rules.observations import DiskSeen
from trainer.agent.rules.step_context import StepContext
from trainer.protocol.agent_report import (
    AGENT_FAILED,
    AGENT_RESTARTED,
    DISK_FULL,
    STORE_UNAVAILABLE,
    DiskFull,
    TrainerError,
    TrainerOutcome,
)

BLAMED_SECONDS = 60.0
"""A trainer that fails this soon after its disk was full has failed of that."""
_EXIT_CONFIGURATION = 2
_OTHERS_DOING = frozenset({signal.SIGKILL, signal.SIGTERM})
_TYPED = frozenset({AGENT_FAILED, AGENT_RESTARTED, STORE_UNAVAILABLE})
_MESSAGE_CHARACTERS_MAX = 2_000


def disk_seen(context: StepContext, seen: DiskSeen) -> None:
    """Remember it; the control plane is told of a change at once."""
    changed = (context.state.disk_full is None) != (seen.full is None)
    context.state = replace(context.state, disk_full=seen.full)
    if seen.full is not None:
        context.state = replace(context.state, disk_full_at=context.now, last_disk_full=seen.full)
    if changed:
        context.do(ReportNow())


def save_lacked_room(context: StepContext, left: DiskFull) -> None:
    """The trainer said so: it may need much more than what counts as no room here."""
    context.state = replace(
        context.state, disk_full_at=context.now, last_disk_full=left, save_lacked_room=True
    )
    context.do(ReportNow())


def save_found_room(context: StepContext) -> None:
    """A checkpoint is complete: what the one before lacked is there again."""
    if context.state.save_lacked_room:
        context.state = replace(context.state, save_lacked_room=False)
        context.do(ReportNow())


def told_full(state: AgentState, now: float) -> DiskFull | None:
    """What a report says: the disk that is full, or in which a save found no room a moment ago."""
    return full_lately(state, now) if state.save_lacked_room else state.disk_full


def full_lately(state: AgentState, now: float) -> DiskFull | None:
    """The disk of this machine that is full, or was a moment ago."""
    if state.disk_full_at is None or now - state.disk_full_at > BLAMED_SECONDS:
        return state.disk_full
    return state.disk_full or state.last_disk_full


def blame_disk(context: StepContext, end: TrainerEnd) -> TrainerEnd:
    """The end with the disk as its cause, where it failed and the disk was full.

    Not where something else is known to have ended it: memory, another machine, a signal from
    outside, a configuration that cannot work.
    """
    error = end.error or TrainerError("the trainer failed and gave no reason")
    others = error.out_of_memory or error.peer_communication or error.type in _TYPED
    others = others or error.signal in _OTHERS_DOING or end.exit_code == _EXIT_CONFIGURATION
    full = full_lately(context.state, context.now)
    if end.outcome is not TrainerOutcome.FAILED or others or full is None:
        return end
    told = f"the disk of {full.folder} was full ({full.free_bytes:,} bytes free): {error.message}"
    named = replace(error, type=DISK_FULL, message=told[:_MESSAGE_CHARACTERS_MAX])
    return replace(end, error=named)
