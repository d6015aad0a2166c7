"""What people may command a job to do: for each state a deed, or a sentence with what to do."""

import itertools

import pytest

from app.domain.lifecycle.job import JOB_TRANSITIONS, JobEvent, JobState, StopCause, event_for_stop
from app.domain.lifecycle.job_command import (
    COMMANDED_STATES,
    JobCommand,
    has_happened,
    require_possible,
)
from app.domain.units.errors import CommandRefused

CAUSES = {JobCommand.CANCEL: StopCause.USER, JobCommand.PAUSE: StopCause.PAUSE}


def refusal(command: JobCommand, state: JobState, cause: StopCause | None = None) -> str | None:
    try:
        require_possible(command, "tour", state, cause)
    except CommandRefused as refused:
        return refused.message
    return None


@pytest.mark.parametrize(("command", "state"), list(itertools.product(JobCommand, JobState)))
def test_what_is_not_refused_is_in_the_table(command: JobCommand, state: JobState):
    """So nobody is ever shown the table's own sentence, which names events."""
    causes = list(StopCause) if state is JobState.STOPPING else [None]
    for cause in causes:
        told = refusal(command, state, cause)
        if told is None:
            event = (
                JobEvent.RESUMED
                if command is JobCommand.RESUME
                else event_for_stop(state, CAUSES[command])
            )
            assert JOB_TRANSITIONS.allows(state, event)
        else:
            assert told.startswith("This job ")
            assert told.endswith(".")


@pytest.mark.parametrize("command", list(JobCommand))
def test_a_command_to_all_is_meant_for_jobs_that_it_changes(command: JobCommand):
    for state in COMMANDED_STATES[command] - {JobState.STOPPING}:
        assert refusal(command, state) is None
        assert not has_happened(command, state, None)


def test_each_refusal_names_the_state_and_the_way_on():
    paused, stopping, running = JobState.PAUSED, JobState.STOPPING, JobState.RUNNING
    pause, resume, cancel = JobCommand.PAUSE, JobCommand.RESUME, JobCommand.CANCEL
    told = {
        refusal(pause, paused): "is already paused. Resume it with `lowtide resume tour`.",
        refusal(pause, stopping, StopCause.PAUSE): "is already being paused.",
        refusal(pause, stopping, StopCause.USER): "is being cancelled, so it cannot be paused.",
        refusal(pause, stopping, StopCause.DEADLINE): "as its deadline has passed, so it cannot",
        refusal(resume, running): "is already running: there is nothing to resume.",
        refusal(resume, stopping, StopCause.BUDGET): "Once it is, resume it with `lowtide resume",
        refusal(resume, JobState.SUCCEEDED): "another name: `lowtide submit --from tour`.",
        refusal(cancel, JobState.CANCELLED): "is already cancelled: there is nothing to cancel.",
    }
    for sentence, words in told.items():
        assert words in str(sentence)
    assert refusal(cancel, stopping, StopCause.PAUSE) is None
