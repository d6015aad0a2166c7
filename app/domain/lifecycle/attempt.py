"""An attempt's states, events and table, and how orders to drain it merge.

An attempt is one rendezvous of a gang. Not here: the verdict over its members (`attempt_verdict`)
and the stored fields of an attempt (`entities`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from app.domain.lifecycle.transition_table import TransitionRow, TransitionTable
from trainer.protocol.directive import DrainCause as DrainCause

DRAIN_GRACE_SECONDS: Final = 15
"""After its end a drain's last report may still arrive."""


class AttemptState(StrEnum):
    """Where an attempt stands. `settling` waits until every member's end is explained."""

    PROVISIONING = "provisioning"
    PREPARING = "preparing"
    RUNNING = "running"
    DRAINING = "draining"
    SETTLING = "settling"
    SUCCEEDED = "succeeded"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    STOPPED = "stopped"
    YIELDED = "yielded"
    LOST = "lost"


class AttemptEvent(StrEnum):
    """What can happen to an attempt; causes and verdicts are part of the name.

    Build the ones with a cause through `drain_ordered`, `all_drained` and `verdict_event`.
    """

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


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """Save and leave before `until_at`, an aware UTC instant."""

    cause: DrainCause
    until_at: datetime


TERMINAL_ATTEMPT_STATES: Final = frozenset(
    {
        AttemptState.SUCCEEDED,
        AttemptState.INTERRUPTED,
        AttemptState.FAILED,
        AttemptState.STOPPED,
        AttemptState.YIELDED,
        AttemptState.LOST,
    }
)
LIVE_ATTEMPT_STATES: Final = frozenset(AttemptState) - TERMINAL_ATTEMPT_STATES
TRAINING_ATTEMPT_STATES: Final = frozenset({AttemptState.PREPARING, AttemptState.RUNNING})

_DRAIN_ORDERED: Final = {
    DrainCause.STOP: AttemptEvent.DRAIN_ORDERED_STOP,
    DrainCause.INTERRUPTION: AttemptEvent.DRAIN_ORDERED_INTERRUPTION,
    DrainCause.YIELD: AttemptEvent.DRAIN_ORDERED_YIELD,
}
_ALL_DRAINED: Final = {
    DrainCause.STOP: AttemptEvent.ALL_DRAINED_STOP,
    DrainCause.INTERRUPTION: AttemptEvent.ALL_DRAINED_INTERRUPTION,
    DrainCause.YIELD: AttemptEvent.ALL_DRAINED_YIELD,
}
DRAINED_STATE: Final = {
    DrainCause.STOP: AttemptState.STOPPED,
    DrainCause.INTERRUPTION: AttemptState.INTERRUPTED,
    DrainCause.YIELD: AttemptState.YIELDED,
}
_VERDICTS: Final = {
    AttemptState.SUCCEEDED: AttemptEvent.VERDICT_SUCCEEDED,
    AttemptState.INTERRUPTED: AttemptEvent.VERDICT_INTERRUPTED,
    AttemptState.FAILED: AttemptEvent.VERDICT_FAILED,
    AttemptState.STOPPED: AttemptEvent.VERDICT_STOPPED,
    AttemptState.YIELDED: AttemptEvent.VERDICT_YIELDED,
    AttemptState.LOST: AttemptEvent.VERDICT_LOST,
}

_PROV, _PREP, _RUN, _DRAIN, _SETTLE = (
    AttemptState.PROVISIONING,
    AttemptState.PREPARING,
    AttemptState.RUNNING,
    AttemptState.DRAINING,
    AttemptState.SETTLING,
)

# An interruption's drain follows from the cloud's notice, so it is a fact and never illegal.
_COMMANDS: Final = frozenset({AttemptEvent.DRAIN_ORDERED_STOP, AttemptEvent.DRAIN_ORDERED_YIELD})

_UNEXPLAINED: Final = (
    AttemptEvent.MEMBER_ENDED,
    AttemptEvent.MEMBER_GONE,
    AttemptEvent.STALL_DETECTED,
    AttemptEvent.DRAIN_EXPIRED,
)

ATTEMPT_TRANSITIONS: Final = TransitionTable(
    "attempt",
    states=AttemptState,
    events=AttemptEvent,
    commands=_COMMANDS,
    facts=frozenset(AttemptEvent) - _COMMANDS,
    terminal=TERMINAL_ATTEMPT_STATES,
    rows=(
        TransitionRow(
            (_PROV,),
            AttemptEvent.MEMBER_MISSING,
            _PROV,
            "a new launch, while the bound allows",
        ),
        TransitionRow((_PROV,), AttemptEvent.MEMBERS_REGISTERED, _PREP),
        TransitionRow((_PROV,), AttemptEvent.OFFERS_EXHAUSTED, AttemptState.FAILED),
        TransitionRow((_PROV,), AttemptEvent.PROVISIONING_EXPIRED, AttemptState.FAILED),
        TransitionRow((_PROV,), AttemptEvent.DRAIN_ORDERED_STOP, AttemptState.STOPPED),
        TransitionRow((_PROV,), AttemptEvent.DRAIN_ORDERED_YIELD, AttemptState.YIELDED),
        TransitionRow((_PREP,), AttemptEvent.TRAINER_STARTED, _RUN),
        *(TransitionRow((_PREP, _RUN), event, _DRAIN) for event in _DRAIN_ORDERED.values()),
        *(
            TransitionRow((_DRAIN,), event, _DRAIN, "the earlier end and the stronger cause hold")
            for event in _DRAIN_ORDERED.values()
        ),
        *(TransitionRow((_SETTLE,), event, _SETTLE) for event in _DRAIN_ORDERED.values()),
        TransitionRow(
            (_RUN, _DRAIN),
            AttemptEvent.ALL_MEMBERS_FINISHED,
            AttemptState.SUCCEEDED,
            "with the final manifest",
        ),
        *(
            TransitionRow((_DRAIN,), event, DRAINED_STATE[cause])
            for cause, event in _ALL_DRAINED.items()
        ),
        *(TransitionRow((_PREP, _RUN, _DRAIN), event, _SETTLE) for event in _UNEXPLAINED),
        *(TransitionRow((_SETTLE,), event, state) for state, event in _VERDICTS.items()),
    ),
)


def drain_ordered(cause: DrainCause) -> AttemptEvent:
    """The event of an order to drain for `cause`."""
    return _DRAIN_ORDERED[cause]


def all_drained(cause: DrainCause) -> AttemptEvent:
    """The event of the last member having drained, for the cause in force."""
    return _ALL_DRAINED[cause]


def verdict_event(state: AttemptState) -> AttemptEvent:
    """The event that ends settling in `state`; raises KeyError for a state that is not terminal."""
    return _VERDICTS[state]


def merge_drain(old: DrainOrder | None, new: DrainOrder) -> DrainOrder:
    """The order in force after `new` arrives over `old`: earlier end, stronger cause."""
    if old is None:
        return new
    cause = new.cause if new.cause.rank > old.cause.rank else old.cause
    return DrainOrder(cause, min(old.until_at, new.until_at))
