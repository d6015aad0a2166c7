"""What a stopping job does next is told by its drain: a cancel at once saves nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Job
from app.domain.lifecycle.job import JobState, StopCause
from app.domain.wording.stop_words import why_stopping
from app.orchestration.frame.limits import Limits

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
    job = Job(
        id=UUID(int=1), project_id=UUID(int=2), name="digits", spec={}, spec_digest="d",
        priority=50, node_count=1, submitted_at=NOW, updated_at=NOW, queue_rank_at=NOW,
        capacity_key="k", budget_id=UUID(int=3), state=JobState.STOPPING,
        stop_ordered_at=NOW + timedelta(seconds=ordered),
    )  # fmt: skip
    attempt = Attempt(
        UUID(int=4), job.id, 1, AttemptState.DRAINING, 1, NOW, NOW, NOW,
        drain_until_at=None if until is None else NOW + timedelta(seconds=until),
    )  # fmt: skip
    assert why_stopping(job, attempt, NOW).startswith(f"Cancelling: {told}")


def test_a_job_without_an_attempt_saves_nothing():
    job = Job(
        id=UUID(int=1), project_id=UUID(int=2), name="digits", spec={}, spec_digest="d",
        priority=50, node_count=1, submitted_at=NOW, updated_at=NOW, queue_rank_at=NOW,
        capacity_key="k", budget_id=UUID(int=3), state=JobState.STOPPING,
    )  # fmt: skip
    job.stop_cause = StopCause.PAUSE
    assert why_stopping(job, None, NOW) == "Pausing: its machines are released next."
