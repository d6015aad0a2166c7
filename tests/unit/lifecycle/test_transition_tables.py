"""Walks every (state, event) pair of the three tables against a second, hand-written statement.

The statement below is a compact copy of the rules as people read them; a pair that it does not
name must stay for a fact and be illegal for a command.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, get_args

import pytest

from app.domain.lifecycle.attempt import (
    ATTEMPT_TRANSITIONS,
    AttemptState,
    DrainCause,
    DrainOrder,
    all_drained,
    drain_ordered,
    merge_drain,
    verdict_event,
)
from app.domain.lifecycle.events import Actor, ActorKind, HistoryKind
from app.domain.lifecycle.instance import (
    INSTANCE_TRANSITIONS,
    InstanceEvent,
    InstanceState,
    events_for,
)
from app.domain.lifecycle.job import (
    ATTEMPT_JOB_STATES,
    JOB_TRANSITIONS,
    AttemptEnding,
    JobEvent,
    JobState,
    StopCause,
    event_for_stop,
    event_when_attempt_ended,
    outcome_when_stop_ordered,
    raise_stop_cause,
    stop_end_reason,
    stopped_event,
)
from app.domain.lifecycle.launch import LaunchOutcome, launch_outcome
from app.domain.lifecycle.transition_table import (
    ILLEGAL,
    STAY,
    IllegalTransition,
    Move,
    TransitionRow,
    TransitionTable,
)
from app.domain.units.errors import CommandRefused

JOB_RULES = """
queued recovering                            | claimed                 | starting
starting                                     | attempt_started         | running
starting running stopping                    | attempt_succeeded       | succeeded
queued recovering starting running stopping paused | completion_found  | succeeded
starting                                     | attempt_ended_fresh     | queued
starting running                             | attempt_ended_retryable | recovering
starting running stopping                    | attempt_ended_fatal     | failed
starting running stopping                    | stop_ordered            | stopping
queued recovering paused stopping            | stopped_for_user        | cancelled
queued recovering paused stopping            | stopped_for_limit       | failed
queued recovering stopping                   | stopped_for_budget      | paused
queued recovering stopping                   | stopped_for_pause       | paused
paused                                       | resumed                 | queued
paused                                       | budget_period_began     | queued
queued recovering                            | given_up                | failed
"""
JOB_COMMANDS = (
    "claimed stop_ordered stopped_for_user stopped_for_limit stopped_for_budget "
    "stopped_for_pause resumed budget_period_began given_up"
)
ATTEMPT_RULES = """
provisioning               | member_missing             | provisioning
provisioning               | members_registered         | preparing
provisioning               | offers_exhausted           | failed
provisioning               | provisioning_expired       | failed
provisioning               | drain_ordered_stop         | stopped
provisioning               | drain_ordered_yield        | yielded
preparing                  | trainer_started            | running
preparing running draining | drain_ordered_stop         | draining
preparing running draining | drain_ordered_interruption | draining
preparing running draining | drain_ordered_yield        | draining
settling                   | drain_ordered_stop         | settling
settling                   | drain_ordered_interruption | settling
settling                   | drain_ordered_yield        | settling
running draining           | all_members_finished       | succeeded
draining                   | all_drained_stop           | stopped
draining                   | all_drained_interruption   | interrupted
draining                   | all_drained_yield          | yielded
preparing running draining | member_ended               | settling
preparing running draining | member_gone                | settling
preparing running draining | stall_detected             | settling
preparing running draining | drain_expired              | settling
settling                   | verdict_succeeded          | succeeded
settling                   | verdict_interrupted        | interrupted
settling                   | verdict_failed             | failed
settling                   | verdict_stopped            | stopped
settling                   | verdict_yielded            | yielded
settling                   | verdict_lost               | lost
"""
INSTANCE_RULES = """
requested                                            | launch_submitted     | launching
requested launching                                  | launch_accepted      | launched
requested launching                                  | launch_refused       | launch_failed
launched                                             | agent_registered     | registered
launched registered interrupting                     | interruption_noticed | interrupting
requested launching launched registered interrupting | release_ordered      | terminating
terminating                                          | release_ordered      | terminating
launched registered interrupting                     | stop_observed        | terminating
interrupting                                         | overdue              | terminating
terminating                                          | launch_refused       | terminated
launched registered interrupting terminating         | absence_confirmed    | terminated
"""


def expected_outcomes(rules: str) -> dict[tuple[str, str], str]:
    found = {}
    for line in rules.strip().splitlines():
        sources, event, to = (part.strip() for part in line.split("|"))
        for source in sources.split():
            assert (source, event) not in found, f"two rules for {source} on {event}"
            found[source, event] = to
    return found


CASES = [
    (JOB_TRANSITIONS, JOB_RULES, JOB_COMMANDS, "succeeded failed cancelled"),
    (
        ATTEMPT_TRANSITIONS,
        ATTEMPT_RULES,
        "drain_ordered_stop drain_ordered_yield",
        "succeeded interrupted failed stopped yielded lost",
    ),
    (
        INSTANCE_TRANSITIONS,
        INSTANCE_RULES,
        "launch_submitted release_ordered",
        "terminated launch_failed",
    ),
]


@pytest.mark.parametrize(("table", "rules", "commands", "terminal"), CASES)
def test_every_pair_is_as_the_rules_say(
    table: TransitionTable[Any, Any], rules: str, commands: str, terminal: str
):
    expected = expected_outcomes(rules)
    assert {state.value for state in table.terminal} == set(terminal.split())
    assert {event.value for event in table.commands} == set(commands.split())
    walked = 0
    for state, event, outcome in table.pairs():
        walked += 1
        to = expected.pop((state.value, event.value), None)
        if to is None:
            assert outcome is (STAY if event in table.facts else ILLEGAL), (state, event)
        elif to == state.value:
            assert outcome is STAY, (state, event)
        else:
            assert outcome == Move(table.states[0].__class__(to)), (state, event)
    assert expected == {}
    assert walked == len(table.states) * len(table.events)


@pytest.mark.parametrize("table", [case[0] for case in CASES])
def test_every_state_can_be_reached_and_can_end(table: TransitionTable[Any, Any]):
    reached = {table.initial}
    for _ in table.states:
        for state, _, outcome in table.pairs():
            if state in reached and isinstance(outcome, Move):
                reached.add(outcome.to)
    assert reached == set(table.states)
    ends = set(table.terminal)
    for _ in table.states:
        for state, _, outcome in table.pairs():
            if isinstance(outcome, Move) and outcome.to in ends:
                ends.add(state)
    assert ends == set(table.states)


def test_next_state_moves_stays_and_refuses_with_a_sentence():
    assert JOB_TRANSITIONS.next_state(JobState.QUEUED, JobEvent.CLAIMED) is JobState.STARTING
    succeeded = JobState.SUCCEEDED
    assert JOB_TRANSITIONS.next_state(succeeded, JobEvent.ATTEMPT_ENDED_FATAL) is succeeded
    with pytest.raises(IllegalTransition) as refused:
        JOB_TRANSITIONS.next_state(succeeded, JobEvent.STOPPED_FOR_USER)
    assert str(refused.value) == (
        "The job is succeeded, and 'stopped for user' does not apply there; "
        "it applies while the job is: queued, recovering, stopping, paused."
    )
    assert isinstance(refused.value, CommandRefused)
    assert not JOB_TRANSITIONS.allows(succeeded, JobEvent.RESUMED)


class _State(StrEnum):
    OPEN = "open"
    SHUT = "shut"


class _Event(StrEnum):
    CLOSE = "close"
    KNOCK = "knock"


_CLOSE_ROW = TransitionRow((_State.OPEN,), _Event.CLOSE, _State.SHUT)
_KNOCK_ROW = TransitionRow((_State.OPEN,), _Event.KNOCK, _State.OPEN)


@pytest.mark.parametrize(
    ("rows", "facts", "complaint"),
    [
        ((_CLOSE_ROW, _KNOCK_ROW), {_Event.CLOSE, _Event.KNOCK}, "in both"),
        ((_CLOSE_ROW, _KNOCK_ROW), set(), "in neither"),
        ((_CLOSE_ROW,), {_Event.KNOCK}, "without a row"),
        ((_CLOSE_ROW, _CLOSE_ROW, _KNOCK_ROW), {_Event.KNOCK}, "two rows"),
        (
            (_CLOSE_ROW, _KNOCK_ROW, TransitionRow((_State.SHUT,), _Event.KNOCK, _State.OPEN)),
            {_Event.KNOCK},
            "is terminal",
        ),
        (
            (_KNOCK_ROW, TransitionRow((_State.OPEN,), _Event.CLOSE, _State.OPEN)),
            {_Event.KNOCK},
            "no way",
        ),
    ],
)
def test_an_incomplete_table_is_refused_when_built(
    rows: tuple[TransitionRow[Any, Any], ...], facts: set[_Event], complaint: str
):
    with pytest.raises(ValueError, match=complaint):
        TransitionTable(
            "door",
            states=_State,
            events=_Event,
            commands=frozenset({_Event.CLOSE}),
            facts=frozenset(facts),
            terminal=frozenset({_State.SHUT}),
            rows=rows,
        )


def test_stop_causes_only_rise():
    order = ["pause", "budget", "max_duration", "deadline", "user"]
    assert [cause.value for cause in StopCause] == order
    assert raise_stop_cause(None, StopCause.PAUSE) is StopCause.PAUSE
    assert raise_stop_cause(StopCause.DEADLINE, StopCause.BUDGET) is StopCause.DEADLINE
    assert raise_stop_cause(StopCause.BUDGET, StopCause.USER) is StopCause.USER


@pytest.mark.parametrize(
    ("cause", "event", "reason"),
    [
        ("pause", "stopped_for_pause", "user_paused"),
        ("budget", "stopped_for_budget", "budget_exhausted"),
        ("max_duration", "stopped_for_limit", "max_duration_reached"),
        ("deadline", "stopped_for_limit", "deadline_passed"),
        ("user", "stopped_for_user", "user_cancelled"),
    ],
)
def test_an_attempt_that_ends_during_a_stop(cause: str, event: str, reason: str):
    stop = StopCause(cause)
    assert stopped_event(stop) == event
    assert stop_end_reason(stop) == reason
    assert outcome_when_stop_ordered(AttemptEnding.SUCCEEDED, stop) == "attempt_succeeded"
    assert outcome_when_stop_ordered(AttemptEnding.RETRYABLE, stop) == event
    fails = cause in ("pause", "budget")
    expected = "attempt_ended_fatal" if fails else event
    assert outcome_when_stop_ordered(AttemptEnding.FATAL, stop) == expected
    assert event_when_attempt_ended(AttemptEnding.FATAL, ever_trained=True, stop_cause=stop) == (
        expected
    )
    assert event_for_stop(JobState.RUNNING, stop) is JobEvent.STOP_ORDERED
    assert event_for_stop(JobState.QUEUED, stop) == event


@pytest.mark.parametrize(
    ("ending", "ever_trained", "event"),
    [
        (AttemptEnding.SUCCEEDED, False, JobEvent.ATTEMPT_SUCCEEDED),
        (AttemptEnding.FATAL, True, JobEvent.ATTEMPT_ENDED_FATAL),
        (AttemptEnding.RETRYABLE, False, JobEvent.ATTEMPT_ENDED_FRESH),
        (AttemptEnding.RETRYABLE, True, JobEvent.ATTEMPT_ENDED_RETRYABLE),
    ],
)
def test_an_attempt_that_ends_without_a_stop(
    ending: AttemptEnding, ever_trained: bool, event: JobEvent
):
    assert event_when_attempt_ended(ending, ever_trained=ever_trained, stop_cause=None) is event


def test_whatever_ends_an_attempt_no_job_keeps_a_state_that_needs_one():
    for state in ATTEMPT_JOB_STATES:
        stops = tuple(StopCause) if state is JobState.STOPPING else (None,)
        # A job that is running has trained by definition.
        trained = (True,) if state is JobState.RUNNING else (True, False)
        for ending in AttemptEnding:
            for cause in stops:
                for ever in trained:
                    event = event_when_attempt_ended(ending, ever_trained=ever, stop_cause=cause)
                    assert JOB_TRANSITIONS.next_state(state, event) not in ATTEMPT_JOB_STATES


def test_drains_merge_to_the_earlier_end_and_the_stronger_cause():
    early = datetime(2026, 3, 1, tzinfo=UTC)
    late = early + timedelta(seconds=60)
    interruption = DrainOrder(DrainCause.INTERRUPTION, late)
    assert merge_drain(None, interruption) == interruption
    stopped = merge_drain(interruption, DrainOrder(DrainCause.STOP, early))
    assert stopped == DrainOrder(DrainCause.STOP, early)
    assert merge_drain(stopped, DrainOrder(DrainCause.YIELD, late)) == stopped
    assert merge_drain(interruption, DrainOrder(DrainCause.YIELD, early)) == DrainOrder(
        DrainCause.INTERRUPTION, early
    )
    assert [cause.value for cause in DrainCause] == ["yield", "interruption", "stop"]


def test_a_cause_names_its_events_and_its_end():
    for cause, end in [("stop", "stopped"), ("yield", "yielded"), ("interruption", "interrupted")]:
        drained = all_drained(DrainCause(cause))
        assert drain_ordered(DrainCause(cause)) == f"drain_ordered_{cause}"
        assert ATTEMPT_TRANSITIONS.next_state(AttemptState.DRAINING, drained) == end
    for state in ATTEMPT_TRANSITIONS.terminal:
        event = verdict_event(state)
        assert ATTEMPT_TRANSITIONS.next_state(AttemptState.SETTLING, event) is state


@pytest.mark.parametrize("state", [InstanceState.REQUESTED, InstanceState.LAUNCHING])
@pytest.mark.parametrize(
    ("event", "end"),
    [
        ("agent_registered", "registered"),
        ("interruption_noticed", "interrupting"),
        ("stop_observed", "terminating"),
        ("absence_confirmed", "terminated"),
    ],
)
def test_a_fact_before_the_launch_reply_proves_the_launch(
    state: InstanceState, event: str, end: str
):
    assert events_for(state, InstanceEvent(event)) == (InstanceEvent.LAUNCH_ACCEPTED, event)
    launched = INSTANCE_TRANSITIONS.next_state(state, InstanceEvent.LAUNCH_ACCEPTED)
    assert INSTANCE_TRANSITIONS.next_state(launched, InstanceEvent(event)) == end


def test_a_released_machine_takes_a_late_launch_reply():
    next_state = INSTANCE_TRANSITIONS.next_state
    released = next_state(InstanceState.LAUNCHING, InstanceEvent.RELEASE_ORDERED)
    assert events_for(released, InstanceEvent.STOP_OBSERVED) == (InstanceEvent.STOP_OBSERVED,)
    assert next_state(released, InstanceEvent.LAUNCH_ACCEPTED) is InstanceState.TERMINATING
    assert next_state(released, InstanceEvent.LAUNCH_REFUSED) is InstanceState.TERMINATED
    with pytest.raises(IllegalTransition):
        next_state(released, InstanceEvent.LAUNCH_SUBMITTED)


def test_launch_outcomes_follow_the_count():
    assert [launch_outcome(3, accepted) for accepted in (0, 1, 3)] == [
        LaunchOutcome.REFUSED,
        LaunchOutcome.PARTIAL,
        LaunchOutcome.ACCEPTED,
    ]
    with pytest.raises(ValueError, match="launch of 2"):
        launch_outcome(2, 3)


def test_no_two_kinds_of_history_entries_share_a_word():
    kinds = [str(kind) for enum in get_args(HistoryKind) for kind in enum]
    assert len(kinds) == len(set(kinds))


def test_an_actor_reads_back_as_written():
    for kind in ActorKind:
        actor = Actor(kind, "ada:laptop")
        assert Actor.parse(str(actor)) == actor
    for text in ("ada", "person:", "ghost:ada"):
        with pytest.raises(ValueError, match=r"actor|ActorKind"):
            Actor.parse(text)
