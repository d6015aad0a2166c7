"""A decision that is over is told in the past; the one that holds, as it was made."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from app.domain.lifecycle.entities import Instance, Job
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market
from app.domain.placement.placement_decision import DecisionVerdict, PlacementDecision
from app.domain.wording.decision_words import reason_now, sentence_now
from tests.support.stories import decision_story

AT = datetime(2026, 3, 1, tzinfo=UTC)
REQUESTED = replace(
    decision_story.placed(AT),
    reason="cheapest_progress",
    sentence="Requesting spot machines in us-west-2a, the cheapest. Waiting costs less.",
    wait_microusd=2_000_000,
)
PLAIN = replace(REQUESTED, wait_microusd=None)
ON_DEMAND = replace(PLAIN, verdict=DecisionVerdict.ON_DEMAND, reason="on_demand")


def job(state: JobState) -> Job:
    return Job(
        id=UUID(int=1), project_id=UUID(int=2), name="digits", spec={}, spec_digest="d",
        state=state, priority=50, node_count=2, submitted_at=AT, updated_at=AT,
        queue_rank_at=AT, capacity_key="k", budget_id=UUID(int=3),
    )  # fmt: skip


def machine(state: InstanceState) -> Instance:
    return Instance(
        id=UUID(int=4), job_id=UUID(int=1), launch_id=None, provider="local", market=Market.SPOT,
        state=state, origin="launched", requested_at=AT, updated_at=AT,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("decision", "past"),
    [
        (
            REQUESTED,
            'Spot machines were requested in us-west-2a. Said then: "Requesting spot machines in '
            'us-west-2a, the cheapest. Waiting costs less."',
        ),
        (PLAIN, "Spot machines were requested in us-west-2a."),
        (ON_DEMAND, "On-demand machines were requested in us-west-2a."),
        (decision_story.kept(AT), "The machines were kept."),
        (
            decision_story.waited(AT),
            'No machines were requested. Said then: "Waiting costs less than on-demand while the '
            'deadline allows it."',
        ),
    ],
)
def test_a_decision_that_another_one_has_replaced_is_past(
    decision: PlacementDecision, past: str
) -> None:
    running = job(JobState.RUNNING)
    assert sentence_now(decision, running, [], newest=False) == past


def test_a_request_is_past_once_its_machines_are_here() -> None:
    here, coming = machine(InstanceState.REGISTERED), machine(InstanceState.LAUNCHED)
    running, starting = job(JobState.RUNNING), job(JobState.STARTING)
    for one, machines in ((running, [here, coming]), (starting, [coming]), (starting, [here])):
        assert sentence_now(REQUESTED, one, machines, newest=True) == REQUESTED.sentence
    assert sentence_now(ON_DEMAND, running, [here], newest=True).startswith("On-demand machines w")
    kept = decision_story.kept(AT)
    assert sentence_now(kept, running, [here], newest=True) == kept.sentence


@pytest.mark.parametrize(
    ("trains_there", "expected_microusd", "seconds", "told"),
    [
        (False, 2_950_000, 5_700.0, "cheap"),
        (True, None, 5_700.0, "cheap"),
        (True, 2_950_000, 5_700.0, "at the decision 00:00:00 UTC: $2.95, 1h 35m; cheap"),
        (True, 950_000, None, "at the decision 00:00:00 UTC: $0.950/h; cheap"),
    ],
)
def test_the_pool_that_a_job_trains_in_tells_first_what_was_expected(
    trains_there: bool, expected_microusd: int | None, seconds: float | None, told: str
) -> None:
    row = replace(
        REQUESTED.pools[0],
        why="cheap",
        expected_microusd=expected_microusd,
        expected_finish_seconds=seconds,
    )
    assert reason_now(row, AT, trains_there=trains_there) == told
