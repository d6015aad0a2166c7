"""Jobs that accept several kinds of GPU: cost for each unit of progress, measured where it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.placement_decision import DecisionVerdict, PlacementDecision
from app.domain.spec.job_spec import parse_spec
from app.domain.throughput.same_work import work_digest
from app.orchestration.estimates.estimate_job import JobEstimate, estimate_job
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.limits import Limits
from app.orchestration.placement.read_offers import offers_for
from app.orchestration.transitions.evaluate_moves import EvaluateMoves
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

A100 = Hardware("A100", 1, 40, 12, 85)
FAST = Pool("local", "us-west-2", "us-west-2a", "a2-highgpu-1g", Market.SPOT)
FAST_ON_DEMAND = replace(FAST, market=Market.ON_DEMAND)
SPOT = (ZONE_A, ZONE_B, FAR)
TWO = {"gpu": ["V100:1", "A100:1"]}


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return market_choice_story(engine, tmp_path / "store")


def quote_fast(story: Story, prices: dict[Pool, int], available: int | None = None) -> None:
    """Prices of the A100's pools."""
    offers = [
        Offer(pool, A100, price, ON_DEMAND_PRICE, "ec2", story.time, "trace", available=available)
        for pool, price in prices.items()
    ]
    with story.runtime.begin() as uow:
        uow.offers.record(offers, [], story.time)


def newest(story: Story, job_id: UUID) -> PlacementDecision:
    return decisions(story, job_id)[-1].decision


def trained(story: Story, pool: Pool, steps_per_second: float) -> None:
    """A job of the same command that trained for two hours in the pool."""
    job_id = story.submit(name=f"past-{pool.instance_type[:2]}", market="spot")
    story.run()
    story.stop(job_id)
    story.pass_time(60)
    (attempt,) = story.rows(tables.attempts, tables.attempts.c.job_id == job_id)
    (machine,) = story.instances(job_id)
    story.set(tables.instances, machine.id, pool=pool)
    began = story.time - timedelta(hours=2)
    story.set(
        tables.attempts, attempt.id,
        trained_at=began, updated_at=story.time, state=AttemptState.STOPPED,
        first_step=1, last_step=1 + round(7_200 * steps_per_second), stepping_seconds=7_200.0,
        start_up_seconds=0.0, work_digest=work_digest(story.project_id, story.job(job_id).spec),
    )  # fmt: skip
    member = {"attempt_id": attempt.id, "instance_id": machine.id, "node_rank": 0}
    known = story.rows(tables.attempt_members, tables.attempt_members.c.attempt_id == attempt.id)
    if not known:
        with story.engine.begin() as connection:
            connection.execute(tables.attempt_members.insert().values(member))


def test_a_deadline_is_weighed_where_several_kinds_are_accepted(story: Story) -> None:
    story.quote(dict.fromkeys(SPOT, 2_200_000), available=0)
    story.quote({ON_DEMAND_A: 2_500_000})
    quote_fast(story, {FAST: 5_000_000, FAST_ON_DEMAND: 9_000_000}, available=0)
    job_id = story.submit(deadline="6h", market="auto", estimate=ESTIMATE, resources=TWO)
    story.pass_time(60, every=30)
    told = newest(story, job_id)
    assert (told.verdict, told.reason) == (DecisionVerdict.ON_DEMAND, "on_demand")
    assert told.wait_microusd is not None
    assert told.on_demand_microusd is not None
    assert told.on_demand_microusd < told.wait_microusd
    why = {row.pool: row.why for row in told.pools}
    assert "1.00 × the speed of a V100, expected from its data sheet" in why[ON_DEMAND_A.key]


def test_work_is_counted_in_hours_of_the_on_demand_kind(story: Story) -> None:
    """Ten hours on a V100 are less on an A100: what a V100 could not make in time is safe."""
    quote_fast(story, {FAST: 1_000_000, FAST_ON_DEMAND: 3_000_000})
    told = {"hours": 10.0, "gpu": "V100:1"}
    job_id = story.submit(deadline="9h", market="auto", estimate=told, resources=TWO)
    story.pass_time(60, every=30)
    job = story.job(job_id)
    assert job.market_mode == "spot"
    assert job.last_safe_at > story.time + timedelta(minutes=30)
    alike = story.submit(name="alike", deadline="9h", market="auto", estimate=told)
    story.pass_time(60, every=30)
    assert story.job(alike).market_mode == "on_demand", "ten hours do not fit any more"


def test_measured_speeds_decide_what_progress_costs(story: Story) -> None:
    """By its data sheet an A100 is worth twice the price; on this work it is hardly faster."""
    quote_fast(story, {FAST: 1_500_000})
    expected = story.submit(name="expected", market="spot", resources=TWO)
    story.pass_time(30)
    assert newest(story, expected).chosen[0] == FAST.key
    trained(story, ZONE_A, 10.0)
    trained(story, FAST, 11.0)
    measured = story.submit(name="measured", market="spot", resources=TWO)
    story.pass_time(30)
    told = newest(story, measured)
    assert told.chosen[0] == ZONE_A.key
    assert all("measured on this work" in row.why for row in told.pools if row.fits)


def estimated(
    story: Story, nodes: int = 1, estimate: Mapping[str, object] = ESTIMATE
) -> JobEstimate:
    """Of five hours on one V100, where both kinds are accepted."""
    spec = {"run": "python train.py", "resources": TWO, "estimate": estimate, "nodes": nodes}
    return estimate_job(story.runtime, story.project_id, parse_spec(spec), seed=0, paths=20)


def test_an_estimate_counts_with_the_speeds_that_were_measured(story: Story) -> None:
    quote_fast(story, {FAST: 1_500_000})
    by_sheet = {quote.key: quote for quote in estimated(story).pools}
    assert by_sheet[FAST.key].speed > 1.5
    assert by_sheet[FAST.key].speed_source == "expected from its data sheet"
    trained(story, ZONE_A, 10.0)
    trained(story, FAST, 11.0)
    found = {quote.key: quote for quote in estimated(story).pools}
    assert found[FAST.key].speed == pytest.approx(1.25, abs=0.15)
    assert found[ZONE_A.key].speed == pytest.approx(1.0)
    assert found[FAST.key].speed_source == "measured on this work"
    assert next(iter(found)) == ZONE_A.key, "its progress costs least"


def test_hours_that_name_no_gpu_are_those_of_a_v100_whatever_is_cheapest(story: Story) -> None:
    """As of a job that runs; else submission would promise what the last safe moment denies."""
    quote_fast(story, {FAST: 1_500_000})
    told = estimated(story)
    assert told.pools[0].key == FAST.key
    unnamed = {name: value for name, value in ESTIMATE.items() if name != "gpu"}
    found = estimated(story, estimate=unnamed)
    assert [quote.speed for quote in found.pools] == [quote.speed for quote in told.pools]


def test_an_estimate_for_more_machines_says_what_they_are_worth(story: Story) -> None:
    assert estimated(story).scaling is None
    told = estimated(story, nodes=4)
    assert told.scaling == (
        "4 machines do the work of 3.7, expected, not measured yet; "
        "that counts all of the command's time, its pauses, too"
    )
    assert told.pools[0].speed == pytest.approx(4 / 1.09)


@pytest.mark.parametrize("pace", [None, 11.0, 30.0])
def test_a_move_is_weighed_with_the_speeds_that_were_measured(
    story: Story, pace: float | None
) -> None:
    """To an A100 that is worth its price by its data sheet, and on this work may not be."""
    story.controllers = (*story.controllers, EvaluateMoves(story.runtime))
    if pace is not None:
        quote_fast(story, {FAST: 9_000_000})
        trained(story, ZONE_A, 10.0)
        trained(story, FAST, pace)
    quote_fast(story, {FAST: 9_000_000})
    job_id, (machine,) = story.training(
        name="moved", market="spot", resources=TWO, estimate={"hours": 30}
    )
    assert story.instance(machine).pool == ZONE_A
    story.tell(machine, at_step=1)
    story.sleep(60)
    story.checkpoint(machine, 1, 2)
    story.tell(machine, at_step=20)
    story.sleep(Limits().migration_rest_seconds)
    quote_fast(story, {FAST: 1_100_000})
    story.run()
    told = newest(story, job_id)
    known = "expected from its data sheet" if pace is None else "measured on this work"
    assert f"× as fast ({known}), at" in told.sentence
    verdict = DecisionVerdict.STAY if pace == 11.0 else DecisionVerdict.MOVE
    assert told.verdict is verdict, told.sentence


def test_machines_between_two_claims_are_judged_by_measured_speeds(story: Story) -> None:
    """By its data sheet an A100 would end in time; on this work it is hardly faster than a V100."""
    quote_fast(story, {FAST: 9_000_000})
    trained(story, ZONE_A, 10.0)
    trained(story, FAST, 10.0)
    quote_fast(story, {FAST_ON_DEMAND: 2_000_000})
    quick = replace(FAST_ON_DEMAND, instance_type="a3-highgpu-1g")
    h100 = Hardware("H100", 1, 80, 26, 234)
    offer = Offer(quick, h100, 20_000_000, 20_000_000, "ec2", story.time, "trace")
    with story.runtime.begin() as uow:
        uow.offers.record([offer], [], story.time)
    job_id = story.submit(
        name="promised", deadline="8h", market="on_demand",
        estimate={"hours": 10.0, "gpu": "V100"}, resources={"gpu": ["V100:1", "A100:1", "H100:1"]},
    )  # fmt: skip
    with (
        story.runtime.begin() as uow,
        open_job(uow, story.runtime.entropy, job_id, Actor(ActorKind.CONTROLLER, "asks")) as job,
    ):
        assert job is not None
        judged = offers_for(job, job.gang_need, 1, story.runtime.limits)
    assert [item.offer.pool for item in judged if item.fits] == [quick]
    why = next(item.why for item in judged if item.offer.pool == FAST_ON_DEMAND)
    assert "the remaining work would take 8h 48m there" in why
