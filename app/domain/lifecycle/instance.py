"""An instance's states, events and table: one rented machine from wish to confirmed absence.

Not here: the call that rents it (`launch`), what it costs (`billing`), and its stored fields
(`entities`). A machine that the cloud shows for a terminal row becomes a new, adopted row.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from app.domain.lifecycle.transition_table import TransitionRow, TransitionTable

OVERDUE_AFTER_SECONDS: Final = 300
"""A noticed machine still running this long after its deadline is released by us."""


class InstanceState(StrEnum):
    """Where a machine stands, as far as we can prove."""

    REQUESTED = "requested"
    LAUNCHING = "launching"
    LAUNCHED = "launched"
    REGISTERED = "registered"
    INTERRUPTING = "interrupting"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    LAUNCH_FAILED = "launch_failed"


class InstanceEvent(StrEnum):
    """What can happen to a machine."""

    LAUNCH_SUBMITTED = "launch_submitted"
    LAUNCH_ACCEPTED = "launch_accepted"
    LAUNCH_REFUSED = "launch_refused"
    AGENT_REGISTERED = "agent_registered"
    INTERRUPTION_NOTICED = "interruption_noticed"
    RELEASE_ORDERED = "release_ordered"
    STOP_OBSERVED = "stop_observed"
    OVERDUE = "overdue"
    ABSENCE_CONFIRMED = "absence_confirmed"


class EndedBy(StrEnum):
    """Who ended a machine. `cloud_capacity`: EC2 took it from pending straight to terminated."""

    CLOUD_INTERRUPTION = "cloud_interruption"
    CLOUD_CAPACITY = "cloud_capacity"
    CLOUD_FAILURE = "cloud_failure"
    US = "us"
    OS_SHUTDOWN = "os_shutdown"
    RUN_LIMIT = "run_limit"
    OUTSIDER = "outsider"
    UNKNOWN = "unknown"


TERMINAL_INSTANCE_STATES: Final = frozenset({InstanceState.TERMINATED, InstanceState.LAUNCH_FAILED})
LIVE_INSTANCE_STATES: Final = frozenset(InstanceState) - TERMINAL_INSTANCE_STATES
ENDED_BY_CLOUD: Final = frozenset(
    {EndedBy.CLOUD_INTERRUPTION, EndedBy.CLOUD_CAPACITY, EndedBy.CLOUD_FAILURE}
)

_REQ, _LING, _LED, _REG, _INT, _TERM = (
    InstanceState.REQUESTED,
    InstanceState.LAUNCHING,
    InstanceState.LAUNCHED,
    InstanceState.REGISTERED,
    InstanceState.INTERRUPTING,
    InstanceState.TERMINATING,
)

_COMMANDS: Final = frozenset({InstanceEvent.LAUNCH_SUBMITTED, InstanceEvent.RELEASE_ORDERED})

# Facts that can only be true of a machine that was launched, whoever tells us first.
_PROOFS_OF_LAUNCH: Final = frozenset(
    {
        InstanceEvent.AGENT_REGISTERED,
        InstanceEvent.INTERRUPTION_NOTICED,
        InstanceEvent.STOP_OBSERVED,
        InstanceEvent.ABSENCE_CONFIRMED,
    }
)

INSTANCE_TRANSITIONS: Final = TransitionTable(
    "instance",
    states=InstanceState,
    events=InstanceEvent,
    commands=_COMMANDS,
    facts=frozenset(InstanceEvent) - _COMMANDS,
    terminal=TERMINAL_INSTANCE_STATES,
    rows=(
        TransitionRow((_REQ,), InstanceEvent.LAUNCH_SUBMITTED, _LING),
        TransitionRow((_REQ, _LING), InstanceEvent.LAUNCH_ACCEPTED, _LED),
        TransitionRow((_REQ, _LING), InstanceEvent.LAUNCH_REFUSED, InstanceState.LAUNCH_FAILED),
        TransitionRow((_LED,), InstanceEvent.AGENT_REGISTERED, _REG),
        TransitionRow((_LED, _REG), InstanceEvent.INTERRUPTION_NOTICED, _INT),
        TransitionRow(
            (_INT,), InstanceEvent.INTERRUPTION_NOTICED, _INT, "the earlier deadline holds"
        ),
        TransitionRow((_INT,), InstanceEvent.AGENT_REGISTERED, _INT),
        TransitionRow((_REQ, _LING, _LED, _REG, _INT), InstanceEvent.RELEASE_ORDERED, _TERM),
        TransitionRow((_TERM,), InstanceEvent.RELEASE_ORDERED, _TERM),
        TransitionRow((_LED, _REG, _INT), InstanceEvent.STOP_OBSERVED, _TERM),
        TransitionRow(
            (_INT,), InstanceEvent.OVERDUE, _TERM, "still running 300 s after its deadline"
        ),
        TransitionRow(
            (_TERM,), InstanceEvent.LAUNCH_ACCEPTED, _TERM, "the provider's id is recorded"
        ),
        TransitionRow((_TERM,), InstanceEvent.LAUNCH_REFUSED, InstanceState.TERMINATED),
        TransitionRow(
            (_LED, _REG, _INT, _TERM),
            InstanceEvent.ABSENCE_CONFIRMED,
            InstanceState.TERMINATED,
        ),
    ),
)


def events_for(state: InstanceState, event: InstanceEvent) -> tuple[InstanceEvent, ...]:
    """The events to apply, in order and in one transaction, when `event` arrives in `state`.

    A fact about a machine whose launch reply has not come yet proves that the launch was
    accepted, so that is applied first.
    """
    if state in (_REQ, _LING) and event in _PROOFS_OF_LAUNCH:
        return (InstanceEvent.LAUNCH_ACCEPTED, event)
    return (event,)
