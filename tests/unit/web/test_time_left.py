"""Whether a job is in time, in one figure: it is told in every state, and told once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market
from app.web.job.time_left import Countdown, ExpectedEnd, time_left

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def job(**fields: Any) -> Job:
    values: dict[str, Any] = {
        "id": UUID(int=1), "project_id": UUID(int=2), "name": "digits", "spec": {},
        "spec_digest": "", "state": JobState.RUNNING, "priority": 50, "node_count": 1,
        "submitted_at": NOW - HOUR, "updated_at": NOW, "queue_rank_at": NOW, "capacity_key": "",
        "budget_id": UUID(int=3), "deadline_at": NOW + 2 * HOUR, "total_steps": 1000,
    }  # fmt: skip
    return Job(**{**values, **fields})


def told(one: Job, end: ExpectedEnd | None) -> Countdown:
    return time_left(
        one, end, NOW, slack_sentence="Slack 1h.", safe_moment_matters=True, decision=None
    )


def end_in(seconds: int, **fields: Any) -> ExpectedEnd:
    values = {"start_seconds": 0.0, "measured": True, **fields}
    return ExpectedEnd(NOW + timedelta(seconds=seconds), seconds, **values)


def texts(found: Countdown) -> str:
    return " | ".join([found.label, found.value, *(note.text for note in found.notes)])


def test_how_early_it_ends_stands_beside_the_end_and_the_slack():
    found = told(job(last_safe_at=NOW + HOUR), end_in(600))
    assert found.tone == "good"
    assert texts(found) == (
        "Deadline in 2h | ends 1h 50m early | ETA 12:10:00 UTC, in 10m | "
        "spot is safe for 1h (slack)"
    )
    late = told(job(last_safe_at=NOW - HOUR), end_in(3 * 3600))
    assert (late.value, late.tone) == ("1h late", "bad")
    assert late.notes[-1].text == "spot is no longer safe"


@pytest.mark.parametrize(
    ("fields", "measured", "tone"),
    [({}, True, "good"), ({}, False, ""), ({"unsafe_since_at": NOW - HOUR}, True, "")],
)
def test_an_early_end_is_green_only_where_it_was_measured_and_is_safe(
    fields: dict[str, Any], measured: bool, tone: str
):
    assert told(job(**fields), end_in(600, measured=measured)).tone == tone


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"unsafe_since_at": NOW - HOUR}, "not safe: may be missed"),
        ({"market_mode": Market.ON_DEMAND}, "on on-demand machines, to meet it"),
        ({}, "slack not known yet: the work left is unknown"),
    ],
)
def test_the_slack_stays_when_it_is_unsafe_or_between_attempts(fields: dict[str, Any], note: str):
    found = told(job(state=JobState.RECOVERING, **fields), end_in(600))
    assert "ends 1h 50m early" in texts(found)
    assert found.notes[-1].text == note
    assert found.notes[-1].title == "Slack 1h."


def test_a_paused_job_tells_until_when_it_must_go_on():
    found = told(job(state=JobState.PAUSED, last_safe_at=NOW + HOUR), None)
    assert found.notes[-1].text == "safe on spot if resumed within 1h"


def test_an_end_that_rests_on_an_estimate_or_a_start_says_so():
    found = told(job(state=JobState.STARTING), end_in(600, start_seconds=90, measured=False))
    assert found.notes[0].text == (
        "ETA 12:10:00 UTC, in 10m with 1m 30s of start-up, once its machines are there, by its "
        "estimate"
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "no end known before the first steps"),
        ({"state": JobState.QUEUED}, "no end known yet: it waits for machines"),
        ({"state": JobState.PAUSED}, "no end while it is paused"),
        ({"total_steps": None}, "it reports no total_steps"),
    ],
)
def test_no_end_is_made_up_before_there_is_a_pace(fields: dict[str, Any], text: str):
    found = told(job(**fields), None)
    assert "ETA" not in texts(found)
    assert text in texts(found)
    assert found.value == "14:00:00 UTC"
    without = told(job(**{**fields, "deadline_at": None}), None)
    assert without.value == "not known yet"
    assert text in texts(without)


@pytest.mark.parametrize(
    ("state", "deadline_at", "words"),
    [
        (JobState.SUCCEEDED, NOW + HOUR, "met | 1h early | took 1h from submission"),
        (JobState.SUCCEEDED, NOW - HOUR, "missed | 1h late | took 1h from submission"),
        (JobState.FAILED, NOW + HOUR, "1h | ended 12:00:00 UTC | 1h before its deadline"),
        (JobState.CANCELLED, None, "1h | ended 12:00:00 UTC"),
    ],
)
def test_an_ended_job_tells_the_past(state: JobState, deadline_at: datetime | None, words: str):
    found = told(job(state=state, deadline_at=deadline_at, ended_at=NOW), None)
    assert texts(found).endswith(words)
    assert "spot" not in texts(found)
