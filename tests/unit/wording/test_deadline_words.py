"""Slack and the last safe moment in words: one sentence for each way a deadline can stand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market
from app.domain.spec.job_spec import parse_spec
from app.domain.wording.deadline_words import slack_sentence
from tests.support.stories import decision_story

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
COMMAND = {"run": "true"}
AUTO = parse_spec({**COMMAND, "market": "auto"})
HOUR = timedelta(hours=1)
SAFE = {"deadline_at": NOW + 2 * HOUR, "last_safe_at": NOW + timedelta(seconds=3_300)}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "No deadline: the job uses the cheapest machines."),
        (
            SAFE,
            "Slack 55m: the last safe moment is 2026-03-01 12:55:00 UTC; on-demand machines are "
            "requested then.",
        ),
        (
            {**SAFE, "last_safe_at": NOW - timedelta(seconds=300)},
            "No slack: the last safe moment was 5m ago, at 2026-03-01 11:55:00 UTC.",
        ),
        (
            {**SAFE, "state": JobState.PAUSED},
            "Slack 55m: the last safe moment is 2026-03-01 12:55:00 UTC; the job is paused and "
            "requests no machines until it is resumed.",
        ),
        (
            {**SAFE, "unsafe_since_at": NOW - HOUR},
            "The deadline at 2026-03-01 14:00:00 UTC has been at risk since 2026-03-01 11:00:00 "
            "UTC: the job is unlikely to meet it.",
        ),
        (
            {"deadline_at": NOW - HOUR},
            "The deadline passed 1h ago, at 2026-03-01 11:00:00 UTC.",
        ),
        (
            {"deadline_at": NOW + HOUR, "market_mode": Market.ON_DEMAND},
            "Running on-demand to meet the deadline at 2026-03-01 13:00:00 UTC.",
        ),
        (
            {"deadline_at": NOW, "state": JobState.SUCCEEDED, "ended_at": NOW - HOUR},
            "The deadline was met with 1h to spare.",
        ),
        (
            {"deadline_at": NOW, "state": JobState.FAILED, "ended_at": NOW - HOUR},
            "The job ended 1h before its deadline.",
        ),
        (
            {"deadline_at": NOW - HOUR, "state": JobState.SUCCEEDED, "ended_at": NOW},
            "The deadline was missed by 1h.",
        ),
    ],
)
def test_each_standing_has_its_sentence(fields: dict[str, Any], told: str):
    assert slack_sentence(job(**fields), AUTO, NOW) == told


def test_what_is_not_known_and_what_is_not_allowed_is_said():
    unknown = slack_sentence(job(deadline_at=NOW + HOUR), AUTO, NOW)
    assert "is unknown until the job reports total_steps" in unknown
    spot_only = parse_spec({**COMMAND, "market": "spot"})
    assert "the spec does not allow on-demand" in slack_sentence(job(**SAFE), spot_only, NOW)


@pytest.mark.parametrize(
    ("spec", "fields", "known"),
    [
        (
            {**COMMAND, "estimate": {"hours": 1, "gpu": "V100"}},
            {},
            "worked out when machines are next looked for.",
        ),
        (
            {"trainer": {"model": "cnn", "data": "digits", "epochs": 3}},
            {},
            "known once its pace is measured: the trainer's formula, by which the job was "
            "estimated, is for GPUs in general; an `estimate` in the spec tells it at once.",
        ),
        (
            COMMAND,
            {"total_steps": 100},
            "known once its pace is measured; an `estimate` in the spec tells it at once.",
        ),
    ],
)
def test_a_job_that_has_an_estimate_or_steps_is_not_told_to_report_steps(
    spec: dict[str, Any], fields: dict[str, Any], known: str
):
    told = slack_sentence(job(deadline_at=NOW + HOUR, **fields), parse_spec(spec), NOW)
    assert told == (
        "The deadline is at 2026-03-01 13:00:00 UTC. When to switch to on-demand is " + known
    )


def test_the_newest_decision_knows_the_moment_first():
    decision = decision_story.placed(NOW)
    told = slack_sentence(job(deadline_at=NOW + 2 * HOUR), AUTO, NOW, decision)
    assert told.startswith("Slack 55m: the last safe moment is 2026-03-01 12:55:00 UTC")


def test_nothing_is_asked_for_where_no_pool_could_serve():
    decision = decision_story.placed(NOW)
    lacking = tuple(replace(row, expected_microusd=None, fits=False) for row in decision.pools)
    told = slack_sentence(job(**SAFE), AUTO, NOW, replace(decision, pools=lacking))
    assert told.endswith("; but no pool has machines for it, spot or on-demand.")


def job(**fields: Any) -> Job:
    return Job(
        id=UUID(int=1), project_id=UUID(int=2), name="digits", spec={}, spec_digest="d",
        priority=50, node_count=2, submitted_at=NOW, updated_at=NOW, queue_rank_at=NOW,
        capacity_key="k", budget_id=UUID(int=3), **{"state": JobState.RUNNING, **fields},
    )  # fmt: skip
