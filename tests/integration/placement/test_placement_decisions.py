"""Decisions about machines on real rows: what is learned, what is kept, leaving spot early."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, insert

from app.domain.availability.hazard_models import USUAL_FACTOR
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market, Pool
from app.domain.placement.placement_decision import DecisionVerdict
from app.orchestration.market.update_hazards import update_hazards
from app.storage.schema import tables
from tests.support.stories.market_choice_story import ESTIMATE, decisions, market_choice_story
from tests.support.stories.orchestration_story import (
    FAR,
    ON_DEMAND_A,
    ON_DEMAND_PRICE,
    ZONE_A,
    ZONE_B,
    Story,
)
from trainer.protocol.agent_report import FactKind


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return market_choice_story(engine, tmp_path / "store")


def lived(story: Story, pool: Pool, hours: float, times: int, ended_by: EndedBy) -> None:
    """Machines of a job that was cancelled, as if each had lived so long in the pool."""
    job_id = story.submit(name=f"past-{pool.zone}", market="spot", nodes=times)
    story.run()
    story.stop(job_id)
    story.pass_time(60)
    for row in story.instances(job_id):
        lived_from = story.time - timedelta(hours=hours)
        story.set(
            tables.instances, row.id,
            pool=pool, launched_at=lived_from, ended_at=story.time, ended_by=ended_by,
        )  # fmt: skip


def test_a_pool_that_takes_its_machines_comes_after_a_dearer_one(story: Story) -> None:
    near = {ZONE_A: 1_000_000, ZONE_B: 1_100_000, ON_DEMAND_A: ON_DEMAND_PRICE}
    story.quote(near)
    lived(story, ZONE_A, 0.1, 8, EndedBy.CLOUD_INTERRUPTION)
    lived(story, ZONE_B, 20.0, 8, EndedBy.US)
    with story.runtime.begin() as uow:
        update_hazards(uow, "local")
    job_id = story.submit(name="new", market="spot")
    story.run()
    (claimed,) = decisions(story, job_id)
    pools = {row.pool: row for row in claimed.decision.pools}
    assert claimed.decision.verdict is DecisionVerdict.SPOT
    assert claimed.decision.pools[0].pool == ZONE_B.key
    assert "× as often as usual" in pools[ZONE_A.key].why
    taken, kept = pools[ZONE_A.key].hazard_per_hour, pools[ZONE_B.key].hazard_per_hour
    assert taken is not None
    assert kept is not None
    assert taken > kept


def test_what_is_learned_is_forgotten_with_its_reasons(story: Story) -> None:
    lived(story, ZONE_A, 0.1, 8, EndedBy.CLOUD_INTERRUPTION)
    factors: list[float] = []
    for days in (0, 31):
        story.sleep(days * 86_400)
        with story.runtime.begin() as uow:
            update_hazards(uow, "local")
        with story.runtime.begin() as uow:
            offer = uow.offers.get(ZONE_A)
        assert offer is not None
        factors.append(offer.hazard_factor)
    assert factors[0] > 1.2 * USUAL_FACTOR
    assert factors[1] == USUAL_FACTOR


def test_a_wait_whose_figures_change_is_in_the_history_once(story: Story) -> None:
    reasons = set()
    job_id = story.submit(market="spot", nodes=4)
    for available in (0, 1, 2):
        story.quote(available=available)
        story.pass_time(60, every=30)
        reasons.add(story.job(job_id).wait_reason)
    assert len(reasons) == 3, "else this shows nothing"
    waits = tables.events.c.kind == JobEventKind.WAITING.value
    assert len(story.rows(tables.events, waits)) == 1
    (decision,) = decisions(story, job_id)
    assert decision.decision.verdict is DecisionVerdict.WAIT


def test_a_wait_is_one_decision_however_often_it_is_confirmed(story: Story) -> None:
    story.quote(available=0)
    job_id = story.submit(market="spot")
    story.pass_time(300, every=30)
    (waits,) = decisions(story, job_id)
    assert waits.decision.verdict is DecisionVerdict.WAIT
    assert waits.decision.reason == "no_offer"
    assert waits.last_confirmed_at - waits.decision.decided_at >= timedelta(seconds=240)
    assert waits.decision.unblock is not None
    assert "1 machine free in" in waits.decision.unblock.sentence
    assert waits.decision.unblock.microusd_per_hour == 1_000_000
    story.quote()
    story.pass_time(60, every=30)
    waited, claimed = decisions(story, job_id)
    assert waited == waits or waited.last_confirmed_at >= waits.last_confirmed_at
    assert claimed.decision_no == 2
    assert claimed.decision.chosen[0] == ZONE_A.key
    assert claimed.decision.fence == 1
    own = tables.events.c.job_id == job_id
    (event,) = story.rows(tables.events, own, tables.events.c.kind == "claimed")
    assert (event.data["fence"], event.at) == (1, claimed.decision.decided_at)
    assert event.data == {"fence": 1, "market": "spot", "at_hand": 0, "asked_for": 1}


def test_a_replacement_and_a_second_asking_are_decisions_too(story: Story) -> None:
    story.cloud.room = {ZONE_A: 0, ZONE_B: 0}
    job_id = story.submit(nodes=2, market="spot")
    story.pass_time(30)
    reasons = [one.decision.reason for one in decisions(story, job_id)]
    assert reasons == ["cheapest_progress", "next_offer"]
    assert decisions(story, job_id)[-1].decision.chosen == (FAR.key,)
    story.train(job_id)
    (lost, _), running = story.members(job_id), story.cloud.running()
    story.tell(lost, FactKind.NOTICE, 1, seconds_left=30.0, action="terminate")
    story.cloud.end(running[0], EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(10)
    asked = [one for one in decisions(story, job_id) if one.decision.reason == "replacement"]
    assert len(asked) == 1
    assert asked[0].decision.sentence == (
        "1 replacement requested in us-east-1a, in addition to the machines that stay."
    )
    assert [row.pool for row in asked[0].decision.pools if row.chosen] == [FAR.key]


def test_pools_that_fit_say_how_their_progress_compares(story: Story) -> None:
    job_id = story.submit(market="spot")
    story.run()
    (claimed,) = decisions(story, job_id)
    told = {row.pool: row.why for row in claimed.decision.pools}
    assert told[ZONE_A.key] == "fits, has capacity for 1"
    assert "also requested" in told[ZONE_B.key]
    assert told[FAR.key].endswith("200 % more expensive per hour of training")
    assert told[ON_DEMAND_A.key] == "on-demand is not requested now"


def _spot_room(story: Story, available: int) -> None:
    """Say how many machines the spot pools have; on-demand always has some."""
    story.quote(
        {pool: price for pool, price in SPOT_AND_MORE.items() if pool.market is Market.SPOT},
        available=available,
    )
    story.quote({ON_DEMAND_A: SPOT_AND_MORE[ON_DEMAND_A]})


SPOT_AND_MORE: Mapping[Pool, int] = {
    ZONE_A: 2_000_000,
    ZONE_B: 2_200_000,
    FAR: 2_400_000,
    ON_DEMAND_A: 2_500_000,
}
"""Spot hardly cheaper than on-demand: not worth waiting for when the deadline presses."""

CHEAP = dict.fromkeys((ZONE_A, ZONE_B, FAR), 200_000)


def _train_on(story: Story, job_id: UUID) -> None:
    fence = max(
        row.fence for row in story.rows(tables.attempts, tables.attempts.c.job_id == job_id)
    )
    story.train(job_id, fence)
    story.tell(story.members(job_id, fence)[0], fence=fence, at_step=1)


def test_in_an_outage_on_demand_is_taken_before_the_last_safe_moment(story: Story) -> None:
    _spot_room(story, 0)
    job_id = story.submit(deadline="6h", market="auto", estimate=ESTIMATE)
    story.pass_time(60, every=30)
    last = decisions(story, job_id)[-1].decision
    assert last.verdict is DecisionVerdict.ON_DEMAND
    assert last.slack_seconds is not None
    assert last.slack_seconds > 1_200, "the last safe moment is far away"
    assert last.wait_microusd is not None
    assert last.on_demand_microusd is not None
    assert last.on_demand_microusd < last.wait_microusd
    assert story.job(job_id).market_mode == "on_demand"
    assert [row.market for row in story.living(job_id)] == ["on_demand"]


def test_the_job_goes_back_to_spot_and_acquires_before_it_releases(story: Story) -> None:
    _spot_room(story, 0)
    job_id = story.submit(deadline="6h", market="auto", estimate=ESTIMATE)
    story.pass_time(60, every=30)
    _train_on(story, job_id)
    story.quote(CHEAP, available=10)
    story.pass_time(160, every=20)
    returned = [one for one in decisions(story, job_id) if one.decision.reason == "spot_costs_less"]
    assert len(returned) == 1, [one.decision for one in decisions(story, job_id)]
    living = {row.market: row for row in story.living(job_id)}
    assert sorted(living) == ["on_demand", "spot"], "it trains on until the other is there"
    assert story.attempt(job_id).state == "running"
    story.register(living["spot"].id)
    story.pass_time(30, every=10)
    assert story.attempt(job_id).state == "draining"


def test_a_return_that_finds_no_machine_is_given_up(story: Story) -> None:
    _spot_room(story, 0)
    job_id = story.submit(deadline="6h", market="auto", estimate=ESTIMATE)
    story.pass_time(60, every=30)
    _train_on(story, job_id)
    story.cloud.room = dict.fromkeys(CHEAP, 0)
    story.quote(CHEAP, available=10)
    story.pass_time(160, every=20)
    reasons = [one.decision.reason for one in decisions(story, job_id)]
    assert "spot_not_had" in reasons, reasons
    assert story.job(job_id).market_mode == "on_demand"
    assert story.attempt(job_id).state == "running"
    assert [row.market for row in story.living(job_id)] == ["on_demand"]


def test_a_job_without_a_choice_of_market_is_left_to_the_plain_order(story: Story) -> None:
    _spot_room(story, 0)
    job_id = story.submit(deadline="6h", market="spot", estimate=ESTIMATE)
    story.pass_time(120, every=30)
    assert {one.decision.reason for one in decisions(story, job_id)} == {"no_offer"}
    assert story.job(job_id).market_mode == "spot"


def test_a_budget_that_would_not_bear_on_demand_keeps_the_job_on_spot(story: Story) -> None:
    _spot_room(story, 0)
    spec: dict[str, Any] = {"deadline": "6h", "market": "auto", "estimate": ESTIMATE}
    job_id = story.submit(**spec, budget_usd="9.00")
    story.pass_time(120, every=30)
    assert story.job(job_id).market_mode == "spot"


def test_a_pool_without_more_room_is_still_the_one_that_the_job_trains_in(story: Story) -> None:
    story.quote({**SPOT_AND_MORE, **CHEAP}, available=10)
    job_id = story.submit(deadline="6h", market="auto", estimate=ESTIMATE)
    story.pass_time(60, every=30)
    _train_on(story, job_id)
    story.quote(CHEAP, available=0)
    story.pass_time(160, every=20)
    last = decisions(story, job_id)[-1].decision
    assert last.reason == "staying_costs_least"
    assert last.spot_microusd is not None
    assert last.on_demand_microusd is not None
    assert last.spot_microusd < last.on_demand_microusd


def _leave_of_the_budget(story: Story, job_id: UUID, microusd: int) -> None:
    budget = story.job(job_id).budget_id
    cap = story.rows(tables.budgets, tables.budgets.c.id == budget)[0].cap_microusd
    story.set(tables.budgets, budget, spent_microusd=cap - microusd)


def _let_others_reserve_the_project(story: Story, left_microusd: int) -> None:
    """Of a project's budget of $30 other jobs' machines may need all but so much."""
    other = story.submit(name="other", budget_usd="100", market="spot", estimate=ESTIMATE)
    story.stop(other)
    row = {
        "id": story.runtime.entropy.new_id(), "project_id": story.project_id, "job_id": None,
        "cap_microusd": 30_000_000, "spent_microusd": 0, "reserved_microusd": 0,
    }  # fmt: skip
    with story.engine.begin() as connection:
        connection.execute(insert(tables.budgets).values(row))
    reserved = 30_000_000 - left_microusd
    story.set(tables.budgets, story.job(other).budget_id, reserved_microusd=reserved)


def _moves(story: Story, job_id: UUID) -> list[str]:
    rows = story.rows(tables.events, tables.events.c.job_id == job_id)
    return [row.kind for row in sorted(rows, key=lambda row: row.seq) if "moved_to" in row.kind]


def _train_on_spot(story: Story, **spec: Any) -> UUID:
    story.quote({**SPOT_AND_MORE, **CHEAP}, available=10)
    whole = {"deadline": "8h", "market": "auto", "estimate": ESTIMATE, **spec}
    job_id = story.submit(**whole)
    story.pass_time(60, every=30)
    _train_on(story, job_id)
    return job_id


def _turn_dear(story: Story) -> None:
    """Spot costs many times as much as on-demand."""
    story.quote(dict.fromkeys(CHEAP, 60_000_000), available=0)
    story.quote({ON_DEMAND_A: SPOT_AND_MORE[ON_DEMAND_A]})


def test_a_return_to_spot_that_no_budget_bears_leaves_the_job_alone(story: Story) -> None:
    _spot_room(story, 0)
    job_id = story.submit(deadline="6h", market="auto", estimate=ESTIMATE, budget_usd="20")
    story.pass_time(60, every=30)
    _train_on(story, job_id)
    _leave_of_the_budget(story, job_id, 150_000)
    story.quote(CHEAP, available=10)
    story.pass_time(160, every=20)
    assert (story.job(job_id).state, story.job(job_id).stop_cause) == ("running", None)
    assert story.job(job_id).market_mode == "on_demand"
    assert _moves(story, job_id) == ["moved_to_on_demand"]


def test_leaving_spot_early_never_stops_a_job_for_its_budget(story: Story) -> None:
    job_id = _train_on_spot(story)
    _let_others_reserve_the_project(story, 500_000)
    _turn_dear(story)
    story.pass_time(300, every=20)
    assert (story.job(job_id).state, story.job(job_id).stop_cause) == ("running", None)
    assert story.job(job_id).market_mode == "spot"
    assert _moves(story, job_id) == []


def test_a_waiting_job_does_not_turn_to_what_its_budget_cannot_begin(story: Story) -> None:
    _spot_room(story, 0)
    _let_others_reserve_the_project(story, 300_000)
    job_id = story.submit(deadline="6h", market="auto", estimate=ESTIMATE)
    story.pass_time(120, every=30)
    assert (story.job(job_id).state, story.job(job_id).market_mode) == ("queued", "spot")
    assert _moves(story, job_id) == []


def test_on_demand_that_refuses_is_given_up_before_the_last_safe_moment(story: Story) -> None:
    job_id = _train_on_spot(story)
    story.cloud.room = {ON_DEMAND_A: 0}
    _turn_dear(story)
    story.pass_time(200, every=20)
    reasons = [one.decision.reason for one in decisions(story, job_id)]
    assert "on_demand_costs_less" in reasons, reasons
    assert "on_demand_not_had" in reasons
    assert story.job(job_id).market_mode == "spot"
    assert story.attempt(job_id).state == "running"
    assert [row.market for row in story.living(job_id)] == ["spot"]


@pytest.mark.full
def test_growth_of_a_gang_that_leaves_spot_is_given_back(story: Story) -> None:
    story.cloud.room = {ZONE_A: 2, ZONE_B: 0, FAR: 0}
    work = {"hours": 12, "nodes": 2}
    job_id = _train_on_spot(story, nodes="2..4", estimate=work, deadline="795m")
    members = story.members(job_id)
    story.cloud.room = {}
    story.sleep(story.runtime.limits.resize_seconds + 1)
    story.quote({**SPOT_AND_MORE, **CHEAP}, available=10)
    story.resize()
    story.run()
    assert len(story.living(job_id)) == story.job(job_id).node_count > len(members) == 2
    story.pass_time(590, every=10)
    assert _moves(story, job_id) == ["moved_to_on_demand"]
    kept = [row.id for row in story.living(job_id) if row.market == "spot"]
    assert sorted(kept) == sorted(members)
    assert len(story.living(job_id)) == 4
    assert story.job(job_id).node_count == 2


def test_a_waiting_job_goes_back_to_spot_where_no_budget_begins_on_demand(story: Story) -> None:
    _spot_room(story, 0)
    story.cloud.room = {ON_DEMAND_A: 0}
    job_id = story.submit(deadline="6h", market="auto", estimate=ESTIMATE)
    story.pass_time(30)
    assert (story.job(job_id).state, story.job(job_id).market_mode) == ("queued", "on_demand")
    _let_others_reserve_the_project(story, 300_000)
    story.cloud.room = {}
    story.pass_time(600, every=30)
    assert (story.job(job_id).state, story.job(job_id).market_mode) == ("queued", "spot")
    assert _moves(story, job_id) == ["moved_to_on_demand", "moved_to_spot"]
