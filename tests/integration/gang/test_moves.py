"""A gang moves to a pool that is clearly cheaper, and stays whole whatever happens on the way."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.job import StopCause
from app.orchestration.frame.limits import Limits
from app.orchestration.money.enforce_budgets import EnforceBudgets
from app.orchestration.transitions.evaluate_moves import EvaluateMoves
from app.storage.schema import tables
from tests.support.stories.orchestration_story import FAR, PRICES, ZONE_A, ZONE_B, Story
from trainer.protocol.agent_report import FactKind

CHEAP = {**PRICES, ZONE_B: 200_000}
ESTIMATE: dict[str, Any] = {"estimate": {"hours": 26, "gpu": "V100:1", "nodes": 2}}
REST = Limits().migration_rest_seconds


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return _story(engine, tmp_path)


def _story(engine: Engine, folder: Path, limits: Limits | None = None) -> Story:
    made = Story(engine, folder / "store", limits)
    made.controllers = (*made.controllers, EvaluateMoves(made.runtime))
    return made


def _training(story: Story, nodes: int = 2, **spec: Any) -> UUID:
    """A job that has trained long enough to be looked at, with some 28 hours left."""
    job_id = story.submit(nodes=nodes, **spec)
    story.train(job_id)
    first = story.members(job_id)[0]
    story.tell(first, at_step=1)
    story.sleep(60)
    story.checkpoint(first, 1, 2)
    for instance_id in story.members(job_id):
        story.tell(instance_id, at_step=20)
    story.sleep(REST)
    return job_id


def _moving(story: Story, nodes: int = 2, **spec: Any) -> UUID:
    job_id = _training(story, nodes, **spec)
    story.quote(CHEAP)
    story.run()
    assert story.job(job_id).moving_launch_id is not None
    return job_id


def _of_move(story: Story, job_id: UUID) -> list[Any]:
    launch = next(one for one in story.launches(job_id) if one.purpose == "migration")
    return [one for one in story.instances(job_id) if one.launch_id == launch.id]


def _kinds(story: Story, job_id: UUID) -> list[str]:
    rows = story.rows(tables.events, tables.events.c.job_id == job_id)
    return [row.kind for row in sorted(rows, key=lambda row: row.seq)]


def _arrive(story: Story, job_id: UUID) -> None:
    for one in _of_move(story, job_id):
        story.register(one.id)
    story.pass_time(60)


def _drain(story: Story, job_id: UUID) -> None:
    for instance_id in story.members(job_id):
        story.tell(instance_id, FactKind.TRAINER_ENDED, 1, outcome="drained", step=50)


def test_a_gang_acquires_saves_and_moves_and_the_old_machines_go(story: Story) -> None:
    job_id = _moving(story)
    old, new = story.members(job_id), _of_move(story, job_id)
    assert {one.pool for one in new} == {ZONE_B}
    assert story.attempt(job_id).state == "running"  # training goes on meanwhile
    begun = story.rows(tables.events, tables.events.c.kind == "migration_begun")
    assert "it saves" in begun[0].message
    decided = story.rows(tables.placement_decisions)
    assert [row.document["verdict"] for row in decided][-1] == "move"
    _arrive(story, job_id)
    assert story.tell(old[0]).directive.kind == "drain"
    assert len(story.living(job_id)) == 4  # nothing is given back before the save
    _drain(story, job_id)
    story.run()
    assert story.attempt(job_id).end_reason == "migrated"
    assert sorted(story.members(job_id, 2)) == sorted(one.id for one in new)
    story.pass_time(60)
    assert sorted(one.id for one in story.living(job_id)) == sorted(one.id for one in new)
    job = story.job(job_id)
    assert (job.moving_launch_id, job.retries_used) == (None, 0)
    story.train(job_id, 2, parent={"fence": 1, "step": 50, "digest": "d"})
    story.pass_time(REST - 60, every=300)  # and now it is left alone for a while
    assert len(story.launches(job_id)) == 2


@pytest.mark.parametrize(
    ("prices", "spec"),
    [
        ({**PRICES, ZONE_B: 950_000}, {}),  # not clearly cheaper
        (CHEAP, {"infra": "local/us-west-2/us-west-2a"}),
        (CHEAP, {"budget_usd": "5", **ESTIMATE}),  # does not bear both gangs
        (CHEAP, {"deadline": "30h", **ESTIMATE}),  # hardly any slack
    ],
)
def test_what_does_not_repay_or_may_not_be_stays(
    story: Story, prices: dict[Any, int], spec: dict[str, Any]
) -> None:
    job_id = _training(story, **spec)
    if "budget_usd" in spec:
        budget = tables.budgets.c.job_id == job_id
        (row,) = story.rows(tables.budgets, budget)
        story.set(tables.budgets, row.id, spent_microusd=4_850_000)
    story.quote(prices)
    story.run()
    assert len(story.launches(job_id)) == 1
    assert story.job(job_id).state == "running"


@pytest.mark.parametrize(
    ("safe_seconds", "start_up", "moves"),
    [
        (None, 0.0, True),
        (None, 3_600.0, False),  # both gangs are paid until the trainer has started
        (3_000.0, 0.0, True),
        (3_000.0, 1_000.0, False),  # the restart does not fit before the last safe moment
        (4_000.0, 1_000.0, True),
    ],
)
def test_the_start_up_of_the_trainer_is_part_of_a_move(
    story: Story, safe_seconds: float | None, start_up: float, moves: bool
) -> None:
    deadline: dict[str, Any] = {} if safe_seconds is None else {"deadline": "40h"}
    job_id = _training(story, **deadline, **ESTIMATE)
    story.set(tables.jobs, job_id, start_up_seconds=start_up)
    if safe_seconds is not None:
        last_safe_at = story.time + timedelta(seconds=safe_seconds)
        story.set(tables.jobs, job_id, last_safe_at=last_safe_at)
    story.quote(CHEAP)
    story.run()
    assert (story.job(job_id).moving_launch_id is not None) is moves


def test_a_share_of_one_switches_moves_off(engine: Engine, tmp_path: Path) -> None:
    story = _story(engine, tmp_path, Limits(migration_saving_share=1.0))
    job_id = _training(story)
    story.quote(CHEAP)
    story.run()
    assert len(story.launches(job_id)) == 1


def test_nobody_moves_right_after_a_start_or_without_having_saved(story: Story) -> None:
    job_id = story.submit()
    story.train(job_id)
    story.tell(story.members(job_id)[0], at_step=20)
    story.quote(CHEAP)
    story.pass_time(REST / 2, every=300)
    assert len(story.launches(job_id)) == 1
    story.pass_time(2 * REST, every=300)
    assert len(story.launches(job_id)) == 1


def test_a_warning_is_a_reason_to_look_at_once_but_not_to_run(story: Story) -> None:
    """What is about to be taken is not worth a move: its replacement costs as much later."""
    job_id, (only,) = story.training()
    story.quote(CHEAP)
    story.tell(only, at_step=1)
    story.sleep(120)
    story.checkpoint(only, 1, 19)
    story.tell(only, at_step=20)
    story.run()
    decisions = tables.placement_decisions
    assert [row.document["verdict"] for row in story.rows(decisions)] == ["spot"]
    story.tell(only, FactKind.REBALANCE, 1, source="ec2")
    story.run()
    assert [row.document["verdict"] for row in story.rows(decisions)] == ["spot", "stay"]
    assert len(story.launches(job_id)) == 1


def test_machines_that_do_not_come_change_nothing(story: Story) -> None:
    story.cloud.room = {ZONE_B: 1}
    job_id = _training(story)
    story.quote(CHEAP)
    story.pass_time(60)
    assert "migration_given_up" in _kinds(story, job_id)
    assert (story.job(job_id).state, story.attempt(job_id).state) == ("running", "running")
    assert sorted(one.id for one in story.living(job_id)) == sorted(story.members(job_id))
    launches = len(story.launches(job_id))
    story.pass_time(REST - 120, every=300)
    assert len(story.launches(job_id)) == launches  # not asked again at once


def test_one_that_dies_while_booting_ends_the_move_and_not_the_training(story: Story) -> None:
    job_id = _moving(story)
    first, second = _of_move(story, job_id)
    story.register(first.id)
    story.cloud.end(second.provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(120)
    assert "migration_given_up" in _kinds(story, job_id)
    assert story.attempt(job_id).state == "running"
    assert sorted(one.id for one in story.living(job_id)) == sorted(story.members(job_id))
    assert len(story.cloud.running()) == 2


def test_machines_that_never_register_are_forgotten(story: Story) -> None:
    job_id = _moving(story)
    story.pass_time(Limits().provisioning_seconds + 60, every=30)
    assert story.attempt(job_id).state == "running"
    assert sorted(one.id for one in story.living(job_id)) == sorted(story.members(job_id))


@pytest.mark.parametrize("left", [400_000, 200_000])
def test_a_move_is_given_up_before_both_gangs_use_up_the_budget(story: Story, left: int) -> None:
    """What is held for both machines of both gangs is $0.13; twice that must be left."""
    story.controllers = (*story.controllers, EnforceBudgets(story.runtime))
    job_id = _moving(story, budget_usd="5", **ESTIMATE)
    (row,) = story.rows(tables.budgets, tables.budgets.c.job_id == job_id)
    story.set(tables.budgets, row.id, spent_microusd=5_000_000 - left)
    story.pass_time(40)
    given_up = "migration_given_up" in _kinds(story, job_id)
    assert given_up == (left == 200_000)
    if given_up:
        story.set(tables.budgets, row.id, spent_microusd=5_000_000 - 120_000)
        story.pass_time(120)
        assert sorted(one.id for one in story.living(job_id)) == sorted(story.members(job_id))
    assert (story.job(job_id).state, story.job(job_id).stop_cause) == ("running", None)


def test_an_interruption_of_the_old_gang_hastens_the_move(story: Story) -> None:
    job_id = _moving(story)
    old, new = story.members(job_id), _of_move(story, job_id)
    story.tell(old[0], FactKind.NOTICE, 1, seconds_left=100.0, action="terminate")
    assert len(story.launches(job_id)) == 2  # no other replacement: one gang is on its way
    _drain(story, job_id)
    story.run()
    assert story.attempt(job_id).end_reason == "spot_interrupted"
    assert sorted(story.members(job_id, 2)) == sorted(one.id for one in new)
    story.pass_time(60)
    left = {one.id for one in story.living(job_id) if one.state != "interrupting"}
    assert left == {one.id for one in new}
    story.train(job_id, 2)


def test_new_machines_lost_while_the_old_gang_saves_leave_no_gang_in_two_places(
    story: Story,
) -> None:
    job_id = _moving(story)
    _arrive(story, job_id)
    lost = _of_move(story, job_id)[0]
    story.cloud.end(lost.provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    _drain(story, job_id)
    story.pass_time(60)
    pools = {story.instance(one).pool for one in story.members(job_id, 2)}
    assert pools == {ZONE_B}
    assert {one.pool for one in story.living(job_id)} == {ZONE_B}


@pytest.mark.parametrize("cause", [StopCause.USER, StopCause.BUDGET])
def test_a_stop_in_the_middle_leaves_nothing_behind(story: Story, cause: StopCause) -> None:
    job_id = _moving(story)
    story.stop(job_id, cause)
    story.pass_time(30)
    assert all(one.state in ("terminating", "terminated") for one in _of_move(story, job_id))
    _drain(story, job_id)
    story.pass_time(60)
    assert story.living(job_id) == []
    assert story.cloud.running() == []
    assert story.job(job_id).moving_launch_id is None


def test_a_failing_trainer_in_the_middle_goes_on_with_its_old_machines(story: Story) -> None:
    job_id = _moving(story)
    old = story.members(job_id)
    for instance_id in old:
        error = {"type": "ValueError", "message": "no"}
        story.tell(
            instance_id, FactKind.TRAINER_ENDED, 1, outcome="failed", exit_code=1, error=error
        )
    story.pass_time(300)
    assert sorted(story.members(job_id, 2)) == sorted(old)
    assert sorted(one.id for one in story.living(job_id)) == sorted(old)
    assert FAR not in {one.pool for one in story.instances(job_id)}
    assert {story.instance(one).pool for one in old} == {ZONE_A}
