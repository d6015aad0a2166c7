"""Evidence that was gathered for another gang than the locked one is dropped, and gathered again.

Between the effect and the lock another transaction changes the job's market, size, fence, move or
members. Then nothing is decided by what was read before, and the controller is rung.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, delete

from app.domain.market.offer import Market
from app.orchestration.frame.controller_frame import AnyController, apply_phase, effect_phase
from app.orchestration.frame.evidence_basis import OFFERS_OLD_SECONDS
from app.orchestration.frame.limits import Limits
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.orchestration.transitions.evaluate_moves import EvaluateMoves
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from app.storage.schema import tables
from tests.support.stories.market_choice_story import (
    ESTIMATE,
    decisions,
    market_choice_story,
)
from tests.support.stories.money_story import RecordedWakeups
from tests.support.stories.orchestration_story import PRICES, ZONE_B, Story

Change = Callable[[Story, UUID], None]
CHEAP_ELSEWHERE = {**PRICES, ZONE_B: 200_000}
ROOM = {"market": "auto", "deadline": "20h", "estimate": ESTIMATE}


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return market_choice_story(engine, tmp_path / "store")


def _market(story: Story, job_id: UUID) -> None:
    story.set(tables.jobs, job_id, market_mode=Market.ON_DEMAND)


def _count(story: Story, job_id: UUID) -> None:
    story.set(tables.jobs, job_id, node_count=3)


def _fence(story: Story, job_id: UUID) -> None:
    story.set(tables.jobs, job_id, next_fence=story.job(job_id).next_fence + 1)


def _transition(story: Story, job_id: UUID) -> None:
    launch = story.rows(tables.launches)[0]
    story.set(tables.jobs, job_id, moving_launch_id=launch.id, moving_until_at=None)


def _members(story: Story, job_id: UUID) -> None:
    found, attempt = tables.attempt_members, story.attempt(job_id)
    with story.engine.begin() as connection:
        second = found.c.attempt_id == attempt.id, found.c.node_rank == 1
        connection.execute(delete(found).where(*second))


def _rung(story: Story, controller: AnyController, job_id: UUID, change: Change | None) -> bool:
    """The controller's turn for the job, which changes before it is locked: was it rung again?"""
    with story.runtime.begin() as uow:
        (work,) = (piece for piece in controller.select(uow, 100) if piece.job_id == job_id)
    result = effect_phase(controller, work)
    if change is not None:
        change(story, job_id)
    wakeups = story.runtime.wakeups
    assert isinstance(wakeups, RecordedWakeups)
    before = len(wakeups.rung)
    apply_phase(story.runtime, controller, work, result)
    return controller.name in wakeups.rung[before:]


@pytest.mark.parametrize("change", [_market, _count, _fence, _transition])
def test_a_claim_drops_offers_of_another_gang(story: Story, change: Change) -> None:
    story.submit(name="other")
    story.run()
    job_id = story.submit(name="one", nodes=2)
    assert _rung(story, ClaimJobs(story.runtime), job_id, change)
    assert story.job(job_id).state == "queued"
    story.run()
    assert story.job(job_id).state == "starting"


def test_a_claim_of_a_job_that_has_not_changed_is_made(story: Story) -> None:
    job_id = story.submit(nodes=2)
    _rung(story, ClaimJobs(story.runtime), job_id, None)
    assert story.job(job_id).state == "starting"


def _movable(story: Story) -> UUID:
    """A job that has trained long enough to be looked at, with a pool that is clearly cheaper."""
    job_id, (first, second) = story.training(nodes=2)
    story.tell(first, at_step=1)
    story.sleep(60)
    story.checkpoint(first, 1, 2)
    for instance_id in (first, second):
        story.tell(instance_id, at_step=20)
    story.sleep(Limits().migration_rest_seconds)
    story.quote(CHEAP_ELSEWHERE)
    return job_id


@pytest.mark.parametrize("change", [_market, _count, _fence, _transition, _members])
def test_a_move_is_not_begun_by_offers_of_another_gang(story: Story, change: Change) -> None:
    job_id = _movable(story)
    rung = _rung(story, EvaluateMoves(story.runtime), job_id, change)
    assert len(story.launches(job_id)) == 1
    if change is not _transition:  # a move that has begun since is followed
        assert rung
        assert story.job(job_id).move_look_at is None


def test_a_job_that_has_not_changed_moves(story: Story) -> None:
    job_id = _movable(story)
    _rung(story, EvaluateMoves(story.runtime), job_id, None)
    assert story.job(job_id).moving_launch_id is not None


def _dear_again_for_a_while(story: Story, _job_id: UUID) -> None:
    story.quote(PRICES)
    story.sleep(OFFERS_OLD_SECONDS + 1)


def test_a_move_is_not_begun_by_offers_that_have_grown_old(story: Story) -> None:
    job_id = _movable(story)
    _rung(story, EvaluateMoves(story.runtime), job_id, _dear_again_for_a_while)
    assert story.job(job_id).moving_launch_id is None


@pytest.mark.parametrize("change", [_market, _count, _fence, _transition, _members])
def test_a_market_is_not_chosen_by_costs_of_another_gang(story: Story, change: Change) -> None:
    job_id, _ = story.training(nodes=2, **ROOM)
    story.set(tables.jobs, job_id, slack_look_at=None)
    told = len(decisions(story, job_id))
    assert _rung(story, WatchDeadlines(story.runtime), job_id, change)
    assert story.job(job_id).slack_look_at is None
    if change is not _market:  # which is a departure without machines, to be abandoned
        assert len(decisions(story, job_id)) == told


def test_costs_of_a_job_that_has_not_changed_are_weighed_once(story: Story) -> None:
    job_id, _ = story.training(nodes=2, **ROOM)
    story.set(tables.jobs, job_id, slack_look_at=None)
    told = len(decisions(story, job_id))
    assert not _rung(story, WatchDeadlines(story.runtime), job_id, None)
    assert len(decisions(story, job_id)) == told + 1
