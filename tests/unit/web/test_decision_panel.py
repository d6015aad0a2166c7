"""The panel of a job's decisions: what of them still holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.domain.lifecycle.entities import Instance, Job
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market, Pool
from app.storage.jobs.placement_decision_rows import KeptDecision
from app.web.job.why_here import why_here
from tests.support.stories import decision_story

AT = datetime(2026, 3, 1, tzinfo=UTC)


def job(**fields: Any) -> Job:
    made = Job(
        id=UUID(int=1), project_id=UUID(int=2), name="digits", spec={}, spec_digest="d",
        state=JobState.QUEUED, priority=50, node_count=2, submitted_at=AT, updated_at=AT,
        queue_rank_at=AT, capacity_key="k", budget_id=UUID(int=3),
    )  # fmt: skip
    return replace(made, **fields)


def test_after_a_missed_deadline_no_way_is_priced_as_if_it_could_be_met():
    decision = decision_story.waited(AT, wait_microusd=2_000_000, on_demand_microusd=9_000_000)
    kept = KeptDecision(UUID(int=1), 1, AT, decision)
    before = why_here(job(), [kept], [], None).latest
    assert before is not None
    assert dict(before.ways) == {
        "by waiting": 2_000_000, "with on-demand machines": 9_000_000,
    }  # fmt: skip
    assert before.sentence == decision.sentence
    missed = job(deadline_missed_at=AT + timedelta(minutes=1))
    after = why_here(missed, [kept], [], None).latest
    assert after is not None
    assert after.ways == ()
    assert after.sentence.startswith("No machines were requested. Said then: ")
    confirmed = replace(kept, last_confirmed_at=AT + timedelta(minutes=2))
    again = why_here(missed, [confirmed], [], None).latest
    assert again is not None
    assert again.sentence == decision.sentence


def note_of(place: int, *, chosen: bool) -> str:
    """What is said of the order, of a job in the pool at this place of four."""
    decision = decision_story.placed(AT)
    row = replace(decision.pools[place], chosen=chosen)
    pools = (*decision.pools[:place], row, *decision.pools[place + 1 :])
    machine = Instance(
        id=UUID(int=4), job_id=UUID(int=1), launch_id=None, provider="local", market=Market.SPOT,
        state=InstanceState.REGISTERED, origin="launched", requested_at=AT, updated_at=AT,
        launched_at=AT, pool=Pool.parse(row.pool),
    )  # fmt: skip
    kept = KeptDecision(UUID(int=1), 1, AT, replace(decision, pools=pools))
    panel = why_here(job(state=JobState.RUNNING), [kept], [machine], None)
    assert panel.placing is not None
    return panel.placing.order_note


def test_a_job_that_is_not_in_the_first_pool_says_why():
    assert note_of(0, chosen=True) == ""
    assert note_of(1, chosen=True).startswith("Machines were requested in every pool")
    assert note_of(2, chosen=False).startswith("The job got its machines before this decision")
