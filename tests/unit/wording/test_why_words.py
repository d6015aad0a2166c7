"""The reason of a job's state, for each of them: nothing is said that did not happen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.deployment.disk_full import DISK_FULL_SENTENCE
from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.job import JobState, StopCause
from app.domain.wording.why_words import JobStanding, LastEnd, LiveAttempt, why
from app.orchestration.frame.limits import Limits
from tests.support.stories.orchestration_story import ZONE_A, ZONE_B

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()


@pytest.mark.parametrize(
    ("ordered", "until", "told"),
    [
        (
            0,
            LIMITS.drain_seconds,
            "a program that can save does so first, then its machines are released.",
        ),
        (0, LIMITS.stop_now_seconds, "it ends at once; what is not saved by then is lost"),
        # Later as well: the machine is still up, and nothing is saved.
        (-20, -20 + LIMITS.stop_now_seconds, "it ends at once; what is not saved by then is lost"),
        # A pause that was hastened by a cancel, and a save that takes too long.
        (-20, LIMITS.stop_now_seconds, "its time to save is over"),
        (-100, -100 + LIMITS.drain_seconds, "its time to save is over"),
        (0, None, "its machines are released next."),
    ],
)
def test_only_a_job_with_time_to_save_is_said_to_save(
    ordered: float, until: float | None, told: str
):
    job = standing(
        JobState.STOPPING,
        stop_ordered_at=NOW + timedelta(seconds=ordered),
        attempt=LiveAttempt(
            AttemptState.DRAINING,
            1,
            drain_until_at=None if until is None else NOW + timedelta(seconds=until),
        ),
    )
    reason = why(job, NOW)
    assert reason is not None
    assert reason.startswith(f"Cancelling: {told}")


def test_a_job_without_an_attempt_saves_nothing():
    job = standing(JobState.STOPPING, stop_cause=StopCause.PAUSE)
    assert why(job, NOW) == "Pausing: its machines are released next."
    job = standing(JobState.STOPPING, stop_cause=StopCause.BUDGET)
    assert why(job, NOW) == (
        "Stopping, so that saving and releasing the machines stays within the budget: its machines "
        "are released next."
    )


FAILED = LastEnd("user_error", "Retry 1 of 3: attempt 1 ended with exit code 1.", 300)
TAKEN = LastEnd("interrupted", "The cloud took 1 machine.", 300)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"wait_reason": "every pool is too dear"}, "Every pool is too dear."),
        ({"last_end": FAILED, "wait_reason": "No luck!"}, "No luck!"),
        ({}, "The last attempt ended. It starts again from the beginning as soon as machines are "
             "found: no checkpoint was saved."),
        ({"last_end": TAKEN, "has_checkpoint": True, "committed_step": 3_410},
         "The last attempt ended (interrupted). It continues from step 3,410 as soon as machines "
         "are found."),
        ({"last_end": FAILED, "has_checkpoint": True},
         "Retry 1 of 3: attempt 1 ended with exit code 1. It continues from its last checkpoint as "
         "soon as machines are found."),
    ],
)  # fmt: skip
def test_a_job_that_recovers_says_where_it_continues(fields: dict[str, Any], told: str):
    assert why(standing(JobState.RECOVERING, **fields), NOW) == told


@pytest.mark.parametrize(
    ("state", "fields", "told"),
    [
        (AttemptState.PROVISIONING, {}, "2 machines are being started."),
        (AttemptState.PROVISIONING, {"registered": (ZONE_A,)},
         "1 of 2 machines is ready; waiting for the rest."),
        (AttemptState.PREPARING, {"registered": (ZONE_B, ZONE_A), "nodes": "2..4"},
         "2 of 2–4 machines in us-west-2a, us-west-2b: restoring and connecting to each other."),
        (AttemptState.PREPARING, {"registered": (ZONE_A,), "node_count": 1,
                                  "attempt": LiveAttempt(AttemptState.PREPARING, 1)},
         "1 machine in us-west-2a: restoring."),
        (AttemptState.SETTLING, {}, "The attempt ended; checking why before the next one."),
        (AttemptState.RUNNING, {}, None),
        (AttemptState.RUNNING, {"disk_full": True}, DISK_FULL_SENTENCE),
        (AttemptState.RUNNING, {"disk_full": True, "last_end": FAILED},
         f"{DISK_FULL_SENTENCE} {FAILED.message}"),
        # What it has saved since proves that the failure is past.
        (AttemptState.RUNNING, {"last_end": FAILED, "committed_step": 301}, None),
        (AttemptState.RUNNING, {"last_end": TAKEN}, None),
    ],
)  # fmt: skip
def test_an_attempt_says_what_it_waits_for(
    state: AttemptState, fields: dict[str, Any], told: str | None
):
    job = standing(JobState.RUNNING, node_count=2, attempt=LiveAttempt(state, 2))
    assert why(replace(job, **fields), NOW) == told


@pytest.mark.parametrize(
    ("cause", "fields", "told"),
    [
        (DrainCause.INTERRUPTION, {},
         "The cloud interrupts 1 machine in 1m 30s: saving a checkpoint."),
        (DrainCause.INTERRUPTION, {"interrupted": 2},
         "The cloud interrupts 2 machines in 1m 30s: saving a checkpoint."),
        (DrainCause.YIELD, {}, "Saving a checkpoint to move to other machines."),
        (DrainCause.YIELD, {"node_count": 3}, "Saving a checkpoint to continue with 3 machines."),
        (DrainCause.STOP, {}, "Saving a checkpoint before the machines are released."),
    ],
)  # fmt: skip
def test_a_drain_says_its_cause(cause: DrainCause, fields: dict[str, Any], told: str):
    attempt = LiveAttempt(AttemptState.DRAINING, 2, cause, NOW + timedelta(seconds=90))
    job = standing(JobState.RUNNING, node_count=2, attempt=attempt)
    assert why(replace(job, **fields), NOW) == told


@pytest.mark.parametrize(
    ("state", "fields", "told"),
    [
        (JobState.QUEUED, {}, "In the queue: looking for machines next."),
        (JobState.STARTING, {}, "The next attempt is starting."),
        (JobState.STARTING, {"last_end": FAILED},
         f"The next attempt is starting. {FAILED.message}"),
        (JobState.PAUSED, {}, "Paused. Its checkpoints are kept."),
        (JobState.PAUSED, {"end_message": "Paused by ada"}, "Paused by ada."),
        (JobState.FAILED, {"end_message": "No luck."}, "No luck."),
        (JobState.CANCELLED, {}, None),
        (JobState.SUCCEEDED,
         {"end_message": "The work is done.", "ended_at": NOW, "committed_step": 1_200},
         "Finished at step 1,200, 1h 30m after it was submitted."),
    ],
)  # fmt: skip
def test_a_job_without_an_attempt_says_how_it_stands(
    state: JobState, fields: dict[str, Any], told: str | None
):
    assert why(standing(state, **fields), NOW) == told


def standing(state: JobState, **fields: Any) -> JobStanding:
    made = {"submitted_at": NOW - timedelta(seconds=5_400), "node_count": 1, "nodes": 1, **fields}
    return JobStanding(state, **made)
