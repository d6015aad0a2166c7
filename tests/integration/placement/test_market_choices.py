"""What holds a job with a deadline in its market, for how long, and what it is told of that."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, update

from app.domain.deadline.live_choice import LiveChoice
from app.domain.deadline.policy_state import PlacementAction
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market, Pool
from app.domain.placement.placement_decision import DecisionVerdict, PlacementDecision
from app.domain.wording.market_words import staying_words
from app.orchestration.frame.evidence_basis import OFFERS_OLD_SECONDS
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.storage.schema import tables
from tests.support.stories.market_choice_story import (
    ESTIMATE,
    QUICK_RETURNS,
    decisions,
    market_choice_story,
)
from tests.support.stories.orchestration_story import FAR, ON_DEMAND_A, ZONE_A, ZONE_B, Story

ON_DEMAND_USD = 2_500_000
CHEAP = dict.fromkeys((ZONE_A, ZONE_B, FAR), 200_000)


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return market_choice_story(engine, tmp_path / "store")


def told(story: Story, job_id: UUID) -> list[PlacementDecision]:
    return [kept.decision for kept in decisions(story, job_id)]


def choice(wait: float, spot: float, on_demand: float) -> LiveChoice:
    return LiveChoice(PlacementAction.SPOT, ZONE_A, wait, spot, on_demand, (), ())


@pytest.mark.parametrize(
    ("market", "costs", "words"),
    [
        (
            Market.SPOT,
            (9.0, 2.0, 5.0),
            "The job stays on spot, expected to cost $4.00 to the end; on-demand $10.00.",
        ),
        (
            Market.ON_DEMAND,
            (9.0, 5.0, 2.0),
            "The job stays on-demand, expected to cost $4.00 to the end; spot $10.00.",
        ),
        (
            Market.SPOT,
            (9.0, 5.0, 2.0),
            "The job stays on spot, expected to cost $10.00 to the end; on-demand $4.00, which is "
            "not safe now.",
        ),
        (
            Market.ON_DEMAND,
            (9.0, 2.0, 5.0),
            "The job stays on-demand, expected to cost $10.00 to the end; spot $4.00, which is "
            "not safe now.",
        ),
        (Market.SPOT, (9.0, 2.0, math.inf), "The job stays on spot."),
        (Market.ON_DEMAND, (9.0, math.inf, 2.0), "The job stays on-demand."),
    ],
)
def test_why_a_job_stays_is_told_of_its_own_market(
    market: Market, costs: tuple[float, float, float], words: str
) -> None:
    """Costs are of one machine of two: waiting, spot, on-demand."""
    assert staying_words(choice(*costs), 2, market) == words


def _seen(
    story: Story, pool: Pool, price: int, hours: Sequence[tuple[float, float]], ended_by: EndedBy
) -> None:
    """Machines of a cancelled job that lived there between such times, in hours before now."""
    story.quote({pool: price})
    job_id = story.submit(name=f"past-{pool.zone}", market="spot", nodes=len(hours))
    story.run()
    story.stop(job_id)
    story.pass_time(60)
    rows = story.instances(job_id)
    for row, (first, last) in zip(rows, hours, strict=True):
        lived_from, until = (story.time - timedelta(hours=hour) for hour in (first, last))
        story.set(
            tables.instances, row.id,
            pool=pool, launched_at=lived_from, ended_at=until, ended_by=ended_by,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("price", "words"),
    [
        (
            600_000,
            r"Waiting: the pools available now would cost \$\d\.\d\d to the end, waiting "
            r"\$\d\.\d\d; waiting is safe for another 1d 10h",
        ),
        (
            250_000,
            r"Waiting: cheaper pools are expected back well in time; the pools available now would "
            r"cost \$\d\.\d\d to the end; waiting is safe for another 1d 10h",
        ),
    ],
)
def test_a_job_with_time_to_spare_waits_for_pools_that_come_back(
    story: Story, price: int, words: str
) -> None:
    """The cheap pool had machines every fourth hour; the dear one always, and has some now."""
    by_turns = [(hour, hour - 1) for hour in range(44, 1, -4)]
    story.sleep(50 * 3_600)  # what the story's pools cost before is long ago
    _seen(story, ZONE_A, 200_000, by_turns, EndedBy.CLOUD_INTERRUPTION)
    _seen(story, FAR, price, [(46.0, 0.0)], EndedBy.US)
    story.quote({ZONE_A: 200_000}, available=0)
    story.quote({FAR: price}, available=4)
    story.quote({ON_DEMAND_A: ON_DEMAND_USD})
    job_id = story.submit(deadline="40h", market="auto", estimate=ESTIMATE)
    story.pass_time(30)
    last = told(story, job_id)[-1]
    assert (last.verdict, last.reason) == (DecisionVerdict.WAIT, "waiting_costs_less")
    assert re.match(words, last.sentence), last.sentence


def _on_demand(story: Story, **spec: Any) -> UUID:
    """A job that trains on on-demand machines, as spot has none."""
    story.quote({ZONE_A: 2_000_000, ZONE_B: 2_200_000, FAR: 2_400_000}, available=0)
    story.quote({ON_DEMAND_A: ON_DEMAND_USD})
    job_id = story.submit(market="auto", estimate=ESTIMATE, **spec)
    story.pass_time(60, every=30)
    story.train(job_id, 1)
    story.tell(story.members(job_id)[0], at_step=1)
    return job_id


def _spot_coming(story: Story, job_id: UUID) -> int:
    return sum(row.market == "spot" for row in story.living(job_id))


def test_spot_machines_on_their_way_may_use_up_half_of_the_room(story: Story) -> None:
    job_id = _on_demand(story, deadline="5h53m")
    restart = timedelta(seconds=story.runtime.limits.restart_seconds)
    story.quote(CHEAP, available=10)
    story.pass_time(60, every=20)
    asked = next(one for one in told(story, job_id) if one.reason == "spot_costs_less")
    last_safe_at = asked.last_safe_at
    assert last_safe_at is not None
    story.pass_time((last_safe_at - 1.2 * restart - story.time).total_seconds(), every=20)
    assert _spot_coming(story, job_id) == 1, "nobody would ask for it so late"
    story.pass_time(0.3 * restart.total_seconds(), every=20)
    [given_up] = [one for one in told(story, job_id) if one.reason == "spot_not_had"]
    assert given_up.sentence == "The job stays on-demand: spot machines took too long to start."
    assert last_safe_at - restart <= given_up.decided_at < last_safe_at
    assert _spot_coming(story, job_id) == 0
    assert (story.job(job_id).market_mode, story.attempt(job_id).state) == ("on_demand", "running")


def _left_spot(story: Story, hours: float, **spec: Any) -> UUID:
    """It trains on-demand, and is so far that its deadline has moved away from it."""
    job_id = _on_demand(story, deadline="5h53m", **spec)
    story.set(tables.jobs, job_id, deadline_at=story.time + timedelta(hours=hours))
    return job_id


def _lose_on_demand(story: Story, on_spot: int = 10) -> None:
    """On-demand takes back what it gave and has nothing more; spot has machines again."""
    story.quote(CHEAP, available=on_spot)
    story.quote({ON_DEMAND_A: ON_DEMAND_USD}, available=0)
    for machine in story.cloud.running():
        story.cloud.end(machine, EndedBy.CLOUD_FAILURE)


def _returns(story: Story, job_id: UUID) -> list[Any]:
    table = tables.events
    return list(story.rows(table, table.c.job_id == job_id, table.c.kind == "moved_to_spot"))


def test_a_job_returns_to_spot_where_on_demand_has_no_machines_any_more(story: Story) -> None:
    job_id = _left_spot(story, hours=8.0)
    story.sleep(story.runtime.limits.return_rest_seconds)
    _lose_on_demand(story)
    story.pass_time(180, every=15)
    [event] = _returns(story, job_id)
    assert event.message == "No on-demand machines serve the job now: it returns to spot."
    assert story.job(job_id).market_mode == "spot"
    assert [row.market for row in story.living(job_id)] == ["spot"]


def test_a_job_that_just_left_spot_rests_before_it_returns_for_want_of_on_demand(
    engine: Engine, tmp_path: Path
) -> None:
    limits = replace(QUICK_RETURNS, return_rest_seconds=1_800.0)
    story = market_choice_story(engine, tmp_path / "store", limits)
    job_id = _left_spot(story, hours=8.0)
    left_at = story.job(job_id).market_changed_at
    _lose_on_demand(story)
    story.pass_time((left_at - story.time).total_seconds() + 1_790.0, every=30)
    assert (story.living(job_id), story.job(job_id).market_mode) == ([], "on_demand")
    story.pass_time(60, every=30)
    [event] = _returns(story, job_id)
    assert 1_800 <= (event.at - left_at).total_seconds() <= 1_850


def test_at_the_last_safe_moment_a_job_waits_for_on_demand_though_spot_has_machines(
    story: Story,
) -> None:
    """And its verdict is none on another job with the same needs, which has time to spare."""
    late = _left_spot(story, hours=5.7, name="late")
    spare = _left_spot(story, hours=8.0, name="spare")
    story.sleep(story.runtime.limits.return_rest_seconds)
    story.pass_time(600, every=60)
    _lose_on_demand(story, on_spot=0)
    story.pass_time(story.runtime.limits.survivor_hold_seconds + 60, every=30)
    assert story.living(late) == story.living(spare) == []
    story.quote(CHEAP, available=10)
    story.pass_time(300, every=15)
    assert _returns(story, late) == []
    assert (story.living(late), story.job(late).market_mode) == ([], "on_demand")
    assert [row.market for row in story.living(spare)] == ["spot"]


def test_on_demand_machines_that_came_back_after_the_weighing_keep_the_job(story: Story) -> None:
    job_id = _left_spot(story, hours=8.0)
    _lose_on_demand(story, on_spot=0)
    story.pass_time(120, every=30)
    story.sleep(30)
    claims = ClaimJobs(story.runtime)
    with story.runtime.begin() as uow:
        [piece] = claims.select(uow, 1)
    weighed = claims.effect(piece)
    story.quote(CHEAP, available=10)
    story.quote({ON_DEMAND_A: ON_DEMAND_USD}, available=10)
    story.sleep(OFFERS_OLD_SECONDS + 1)
    with story.runtime.begin() as uow:
        claims.apply(uow, piece, weighed)
    assert _returns(story, job_id) == []
    assert [row.market for row in story.living(job_id)] == ["on_demand"]


def test_a_job_without_on_demand_machines_stays_where_no_budget_bears_spot(story: Story) -> None:
    job_id = _left_spot(story, hours=8.0, budget_usd=90)
    story.sleep(story.runtime.limits.return_rest_seconds)
    _lose_on_demand(story)
    with story.engine.begin() as connection:
        budget = tables.budgets
        of_job = budget.c.job_id == job_id
        connection.execute(update(budget).where(of_job).values(cap_microusd=1_000))
    story.pass_time(180, every=15)
    assert _returns(story, job_id) == []


@pytest.mark.parametrize(
    ("market", "reasons"),
    [
        ("spot", ["cheapest_progress", "replacement", "machines_at_hand"]),
        ("auto", ["cheapest_progress", "cheapest_progress"]),
    ],
)
def test_a_promised_job_that_lost_all_is_weighed_anew(
    story: Story, market: str, reasons: list[str]
) -> None:
    """Where it has a choice of market, no machine is asked for before its claim has weighed it."""
    story.quote(CHEAP, available=10)
    story.quote({ON_DEMAND_A: ON_DEMAND_USD})
    job_id = story.submit(deadline="8h", market=market, estimate=ESTIMATE)
    story.pass_time(60, every=30)
    story.train(job_id)
    for machine in story.cloud.running():
        story.cloud.end(machine, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(120, every=5)
    assert [one.reason for one in told(story, job_id)] == reasons
    assert len(story.living(job_id)) == 1
