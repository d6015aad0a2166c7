"""Elastic gangs on real rows: their size, fewer machines than asked for, and losses."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from app.domain.lifecycle.instance import EndedBy
from app.domain.throughput.same_work import work_digest
from app.orchestration.frame.runtime import Limits
from app.storage.schema import tables
from tests.support.stories.orchestration_story import ON_DEMAND_PRICE, PRICES, ZONE_A, ZONE_B, Story
from trainer.protocol.agent_report import FactKind

CHEAP = {ZONE_A: 1_000_000, ZONE_B: 2_000_000}


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return Story(engine, tmp_path / "store", Limits(on_demand_acquire_seconds=300.0))


def sizes(story: Story, job_id: UUID) -> list[str]:
    """What the history says of the gang's size."""
    statement = text("SELECT message FROM events WHERE job_id = :id AND kind = 'gang_sized'")
    with story.engine.connect() as connection:
        return list(connection.scalars(statement, {"id": job_id}))


def lose(story: Story, job_id: UUID, gone: UUID, fence: int = 1) -> None:
    """The cloud takes one machine after its notice; every rank has saved."""
    story.tell(gone, FactKind.NOTICE, fence, seconds_left=30.0, action="terminate")
    for machine in story.members(job_id, fence):
        story.tell(machine, FactKind.TRAINER_ENDED, fence, outcome="drained", exit_code=75)
    story.cloud.end(story.instance(gone).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)


def ranks(story: Story, job_id: UUID, fence: int) -> list[int]:
    found = tables.attempt_members
    rows = story.rows(found, found.c.attempt_id == story.attempt(job_id, fence).id)
    return sorted(row.node_rank for row in rows)


def test_a_cheap_market_gives_more_machines_than_a_dear_one(story: Story) -> None:
    cheap = story.submit(nodes="1..4")
    story.run()
    story.quote({pool: 8_500_000 for pool in PRICES if pool.market == "spot"})
    dear = story.submit(nodes="1..4")
    story.run()
    assert story.job(cheap).node_count > story.job(dear).node_count >= 1
    for job_id in (cheap, dear):
        count = story.job(job_id).node_count
        assert story.attempt(job_id).node_count == len(story.members(job_id)) == count
        assert "of 1..4" in sizes(story, job_id)[0]


def past_run(story: Story, nodes: int, hours: float, steps: int) -> None:
    """A job of the same command that trained so long on so many machines, and has ended."""
    job_id = story.submit(nodes=nodes)
    story.train(job_id)
    first, *_ = story.members(job_id)
    story.checkpoint(first, 1, steps)
    story.stop(job_id)
    for machine in story.members(job_id):
        story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    story.pass_time(60)
    attempt = story.attempt(job_id)
    began = attempt.updated_at - timedelta(hours=hours)
    story.set(
        tables.attempts, attempt.id, trained_at=began, first_step=1, last_step=1 + steps,
        stepping_seconds=hours * 3_600, start_up_seconds=0.0,
        work_digest=work_digest(story.project_id, story.job(job_id).spec),
    )  # fmt: skip


def test_work_that_was_seen_to_scale_badly_gets_fewer_machines(story: Story) -> None:
    """Four machines did hardly more than one: a market that gave three gives two."""
    before = story.submit(nodes="1..4")
    story.train(before)
    assert story.job(before).node_count == 3
    assert story.job(before).serial_share is None
    past_run(story, 1, hours=4, steps=40_000)
    past_run(story, 4, hours=4, steps=52_000)
    after = story.submit(nodes="1..4")
    story.train(after)
    assert story.job(after).node_count == len(story.members(after)) == 2
    assert story.job(after).serial_share == pytest.approx(0.47, abs=0.1)
    assert "4 machines do the work of 1." in sizes(story, after)[0]
    story.checkpoint(story.members(before)[0], 1, 10)
    story.tell(story.members(before)[0], at_step=10)
    story.time += timedelta(hours=1)
    story.resize()
    assert story.job(before).serial_share == story.job(after).serial_share


def test_an_estimate_for_another_size_is_told_as_work_was_seen_to_scale(story: Story) -> None:
    """A gang of one size is planned as its size was measured, too."""
    past_run(story, 1, hours=4, steps=40_000)
    past_run(story, 4, hours=4, steps=52_000)
    told = story.submit(nodes=4, estimate={"hours": 10, "nodes": 1})
    own = story.submit(name="own", nodes=4, estimate={"hours": 10, "nodes": 4})
    story.run()
    assert story.job(told).serial_share == pytest.approx(0.47, abs=0.1)
    assert story.job(own).serial_share is None


def test_a_near_deadline_takes_the_whole_range(story: Story) -> None:
    estimate = {"hours": 9, "nodes": 1}
    far = story.submit(nodes="1..4", estimate=estimate, deadline="90h")
    near = story.submit(nodes="1..4", estimate=estimate, deadline="3h")
    story.run()
    assert (story.job(far).node_count, story.job(near).node_count) == (1, 4)


def test_a_launch_that_brings_enough_begins_with_what_came(story: Story) -> None:
    story.cloud.room = {ZONE_A: 2, ZONE_B: 0}
    job_id = story.submit(nodes="2..3")
    story.run()
    (launch,) = story.launches(job_id)
    assert (launch.count, launch.min_count, launch.outcome) == (3, 2, "partial")
    assert story.attempt(job_id).node_count == story.job(job_id).node_count == 2
    story.train(job_id)
    assert len(story.cloud.running()) == 2
    assert ranks(story, job_id, 1) == [0, 1]


def test_a_launch_that_brings_too_few_is_given_back_and_asked_for_elsewhere(story: Story) -> None:
    story.cloud.room = {ZONE_A: 1, ZONE_B: 3}
    job_id = story.submit(nodes="2..3")
    story.run()
    story.train(job_id)
    assert {story.instance(one).pool for one in story.members(job_id)} == {ZONE_B}
    assert len(story.cloud.running()) == story.job(job_id).node_count


def test_without_a_replacement_the_gang_goes_on_with_its_survivors(story: Story) -> None:
    job_id = story.submit(nodes="2..3")
    story.train(job_id)
    first, *_, last = story.members(job_id)
    assert len(story.members(job_id)) == 3
    story.checkpoint(first, 1, 10)
    story.cloud.room = {ZONE_A: 0}
    lose(story, job_id, first)
    story.pass_time(60)
    assert story.attempt(job_id, 2).node_count == story.job(job_id).node_count == 2
    assert ranks(story, job_id, 2) == [0, 1]
    assert last in story.members(job_id, 2)
    story.train(job_id, 2, parent={"fence": 1, "step": 10, "digest": "1-10"})
    assert len(story.cloud.running()) == 2


@pytest.mark.parametrize(
    ("available", "count", "outcome"),
    [(1, 1, "accepted"), (None, 2, "partial")],
    ids=["the pool says that it has one", "the launch brings one of two"],
)
def test_replacements_count_the_machines_that_stay(
    story: Story, available: int | None, count: int, outcome: str
) -> None:
    """Two stay and make up the least size, so one more is taken where there is no second."""
    estimate = {"hours": 9, "nodes": 1}
    job_id = story.submit(nodes="2..4", estimate=estimate, deadline="3h")
    story.train(job_id)
    first, second, *stay = story.members(job_id)
    assert len(stay) == 2
    story.checkpoint(first, 1, 10)
    story.cloud.room = {ZONE_A: 1, ZONE_B: 0}
    for gone, said in ((second, 0), (first, available)):
        story.quote(available=said)
        story.tell(gone, FactKind.NOTICE, 1, seconds_left=30.0, action="terminate")
    story.run()
    wanted = story.launches(job_id)[1:]
    assert [(one.purpose, one.count, one.min_count, one.outcome) for one in wanted] == [
        ("replacement", count, 1, outcome)
    ]
    assert len(story.cloud.running()) == 5


def test_with_too_few_survivors_the_gang_moves_as_a_whole(story: Story) -> None:
    job_id = story.submit(nodes="2..3")
    story.train(job_id)
    first, second, third = story.members(job_id)
    story.checkpoint(first, 1, 10)
    story.cloud.room = {ZONE_A: 0}
    story.tell(second, FactKind.NOTICE, 1, seconds_left=30.0, action="terminate")
    lose(story, job_id, first)
    story.cloud.end(story.instance(second).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(120)
    newest = story.job(job_id).next_fence - 1
    members = story.members(job_id, newest)
    assert third not in members
    assert {story.instance(one).pool for one in members} == {ZONE_B}
    assert len(members) == len(story.cloud.running()) >= 2


def test_a_replacement_that_does_not_register_is_waited_for_no_longer_than_a_reboot(
    story: Story,
) -> None:
    job_id = story.submit(nodes="2..3")
    story.train(job_id)
    first = story.members(job_id)[0]
    story.checkpoint(first, 1, 10)
    lose(story, job_id, first)
    story.pass_time(30)
    assert len(story.members(job_id, 2)) == 3
    began = story.attempt(job_id, 2).created_at
    story.pass_time(story.runtime.limits.restart_seconds + 10)
    attempt = story.attempt(job_id, 2)
    assert (attempt.state, attempt.node_count) == ("preparing", 2)
    waited = (attempt.preparing_at - began).total_seconds()
    assert waited <= story.runtime.limits.restart_seconds + 5
    assert len(story.cloud.running()) == 2


def test_a_gang_grows_when_there_is_room_again_and_it_repays(story: Story) -> None:
    story.cloud.room = {ZONE_A: 2, ZONE_B: 0}
    job_id = story.submit(nodes="2..4", estimate={"hours": 40, "nodes": 2})
    story.train(job_id)
    assert story.job(job_id).node_count == 2
    story.checkpoint(story.members(job_id)[0], 1, 10)
    story.cloud.room = {}
    story.resize()
    assert len(story.living(job_id)) == 2  # it has only just begun
    story.sleep(story.runtime.limits.resize_seconds + 1)
    story.quote()
    story.resize()
    story.run()
    wanted = story.job(job_id).node_count
    assert wanted > 2
    assert len(story.living(job_id)) == wanted
    assert story.attempt(job_id).state == "running"
    extra = [row.id for row in story.living(job_id) if row.id not in story.members(job_id)]
    for one in extra[:-1]:
        story.register(one)
    assert story.attempt(job_id).state == "running"
    story.register(extra[-1])
    assert story.attempt(job_id).state == "draining"
    for machine in story.members(job_id):
        story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    assert story.attempt(job_id).end_reason == "resized"
    story.run()
    assert story.attempt(job_id, 2).node_count == wanted
    assert story.attempt(job_id, 2).state == "preparing"
    assert story.job(job_id).retries_used == 0


def test_a_growth_that_is_refused_leaves_the_gang_as_it_is(story: Story) -> None:
    story.cloud.room = {ZONE_A: 2, ZONE_B: 0}
    job_id = story.submit(nodes="2..4", estimate={"hours": 40, "nodes": 2})
    story.train(job_id)
    story.tell(story.members(job_id)[0], at_step=1)
    story.sleep(story.runtime.limits.resize_seconds + 1)
    story.quote()
    story.resize()
    story.run()
    assert (story.job(job_id).node_count, len(story.living(job_id))) == (3, 2)
    story.sleep(61)
    story.resize()
    assert (story.job(job_id).node_count, story.job(job_id).state) == (2, "running")


def test_a_gang_gets_smaller_when_the_market_has_become_dear(story: Story) -> None:
    job_id = story.submit(nodes="1..3", estimate={"hours": 60, "nodes": 1})
    story.train(job_id)
    before = story.job(job_id).node_count
    assert before == 3
    story.checkpoint(story.members(job_id)[0], 1, 10)
    story.sleep(story.runtime.limits.resize_seconds + 1)
    story.quote({ZONE_A: 8_900_000, ZONE_B: 8_900_000})
    story.resize()
    after = story.job(job_id).node_count
    assert after < before
    for machine in story.members(job_id):
        story.tell(machine, FactKind.TRAINER_ENDED, 1, outcome="drained", exit_code=75)
    assert story.attempt(job_id).end_reason == "resized"
    story.pass_time(30)
    assert story.attempt(job_id, 2).node_count == len(story.cloud.running()) == after


def test_a_budget_that_bears_fewer_machines_gets_fewer(story: Story) -> None:
    story.quote({ZONE_A: ON_DEMAND_PRICE // 10})
    job_id = story.submit(nodes="1..4", budget_usd="0.60", estimate={"hours": 2})
    story.run()
    job = story.job(job_id)
    assert 1 <= job.node_count < 4
    assert len(story.members(job_id)) == job.node_count
    budget = story.rows(tables.budgets, tables.budgets.c.job_id == job_id)[0]
    assert 0 < budget.reserved_microusd <= 600_000
