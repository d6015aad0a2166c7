"""A slow start is not a slow job: what deadlines and the choice of market make of start-up.

Not here: the rate itself (tests/unit/orchestration/test_estimate_remaining.py), real processes
(tests/e2e).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, update

from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Pool
from app.domain.placement.methods.spot_return import may_return, spot_is_safe
from app.orchestration.estimates.attempt_measures import own_limits
from app.orchestration.estimates.estimate_job import estimate_job
from app.orchestration.frame.aggregate import open_job, parsed_spec
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.shrink_gang import hold_seconds
from app.orchestration.placement.decision_log import safe_until
from app.orchestration.placement.market_and_size import return_terms, size_terms, spot_room
from app.orchestration.placement.read_offers import offers_for
from app.orchestration.transitions.evaluate_moves import move_terms
from app.storage.schema import money_tables, tables
from tests.support.api.agent_api import BY_PERSON
from tests.support.stories.market_choice_story import market_choice_story
from tests.support.stories.orchestration_story import FAR, ON_DEMAND_A, ZONE_A, ZONE_B, Story
from trainer.protocol.agent_report import FactKind

SPOT = (ZONE_A, ZONE_B, FAR)
MOVES = ("moved_to_on_demand", "moved_to_spot")


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    made = market_choice_story(engine, tmp_path / "store", Limits())
    made.quote(dict.fromkeys(SPOT, 918_000), available=10)
    made.quote({ON_DEMAND_A: 3_060_000})
    return made


def _moves(story: Story, job_id: UUID) -> list[str]:
    found = story.rows(tables.events, tables.events.c.job_id == job_id)
    return [row.kind for row in sorted(found, key=lambda row: row.seq) if row.kind in MOVES]


def _steps(story: Story, job_id: UUID, first: int, last: int, seconds: float) -> None:
    """The live attempt makes steps at an even pace, and reports every ten seconds."""
    fence = max(row.fence for row in _attempts(story, job_id))
    (machine,) = story.members(job_id, fence)
    turns = max(1, round(seconds / 10))
    story.tell(machine, fence=fence, at_step=first)
    for turn in range(1, turns + 1):
        story.pass_time(seconds / turns, every=5)
        story.tell(machine, fence=fence, at_step=first + (last - first) * turn // turns)


def _attempts(story: Story, job_id: UUID) -> Any:
    return story.rows(tables.attempts, tables.attempts.c.job_id == job_id)


def _left_spot(story: Story, job_id: UUID) -> None:
    """A job that waits turns to on-demand machines, and trains on one."""
    turned = {"market_mode": "on_demand", "market_changed_at": story.time, "claimable_at": None}
    story.set(tables.jobs, job_id, **turned)
    story.train(job_id)
    _steps(story, job_id, 1, 30, 30)


def _trained_before(story: Story, start_up: float) -> None:
    """Another job of the same command took so long to start, and has failed since."""
    job_id = story.submit(name="before")
    story.train(job_id)
    story.pass_time(start_up)
    _steps(story, job_id, 1, 20, 20)
    (machine,) = story.members(job_id)
    story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.stop(job_id)
    story.pass_time(120)


def test_a_job_that_starts_for_two_minutes_stays_where_it_is(story: Story):
    job_id = story.submit(deadline="90m", market="auto", estimate={"hours": 0.3, "gpu": "V100"})
    story.pass_time(30)
    story.train(job_id)
    story.pass_time(120)
    _steps(story, job_id, 1, 300, 300)
    assert _moves(story, job_id) == []
    assert len(_attempts(story, job_id)) == 1
    job = story.job(job_id)
    assert (job.steps_per_second, job.eta_from) == (pytest.approx(1.0, rel=0.02), "measured")
    assert job.eta_at == pytest.approx(story.time + timedelta(seconds=700), abs=timedelta(0, 60))


def test_what_one_job_took_to_start_is_in_every_restart_of_the_next(story: Story):
    _trained_before(story, 300.0)
    spec = {"deadline": "6h", "market": "auto", "estimate": {"hours": 2.0, "gpu": "V100"}}
    job_id = story.submit(name="next", **spec)
    story.pass_time(30)
    limits, job = story.runtime.limits, story.job(job_id)
    assert (job.start_up_seconds, job.start_up_p95_seconds) == (300.0, 300.0)
    acquire = timedelta(seconds=limits.on_demand_acquire_seconds)
    others = limits.boot_p95_seconds + limits.restore_seconds + 300.0
    work = timedelta(hours=2, seconds=others)
    story.pass_time(60)
    assert story.job(job_id).last_safe_at == job.deadline_at - work - acquire
    with (
        story.runtime.begin() as uow,
        open_job(uow, story.runtime.entropy, job_id, BY_PERSON) as aggregate,
    ):
        assert aggregate is not None
        once = own_limits(aggregate, limits)
        assert own_limits(aggregate, once) == once, "never counted twice"
        assert once.restart_seconds == others
        terms = move_terms(once)
        assert terms.boot_seconds + terms.restore_seconds == others
    found = estimate_job(story.runtime, story.project_id, parsed_spec(job.spec), 0, paths=20)
    assert found.restart_seconds == others


@pytest.mark.parametrize(("start_up", "cheapest"), [(0.0, ZONE_A), (1_200.0, ZONE_B)])
def test_each_choice_of_machines_counts_with_the_start_up(
    story: Story, start_up: float, cheapest: Pool
):
    """Which pool, how many machines, how long survivors are kept, and whether spot is tried."""
    story.quote({ZONE_A: 600_000, ZONE_B: 1_000_000}, available=10)
    for pool, factor in ((ZONE_A, 3.0), (ZONE_B, 0.2)):  # the cheaper one is taken often
        known = update(money_tables.pools).where(money_tables.pools.c.pool == pool)
        with story.engine.begin() as connection:
            connection.execute(known.values(hazard_factor=factor))
    spec = {"deadline": "20h", "market": "auto", "estimate": {"hours": 10.0, "gpu": "V100"}}
    job_id, runtime = story.submit(**spec), story.runtime
    story.set(tables.jobs, job_id, start_up_seconds=start_up, start_up_p95_seconds=start_up)
    limits = replace(runtime.limits, survivor_hold_seconds=10_000.0)
    restart = limits.boot_p95_seconds + limits.restore_seconds + start_up
    with runtime.begin() as uow, open_job(uow, runtime.entropy, job_id, BY_PERSON) as found:
        assert found is not None
        assert found.job.deadline_at is not None
        first, *_ = offers_for(found, found.gang_need, 1, limits, anywhere=True)
        assert first.offer.pool == cheapest
        assert size_terms(found, found.gang_need, limits).restart_seconds == restart
        assert hold_seconds(found, limits) == restart
        needs = 36_000.0 + limits.on_demand_acquire_seconds + 3 * restart
        for room, safe in ((-60.0, False), (60.0, True)):
            found.job.deadline_at = found.now + timedelta(seconds=needs + room)
            assert spot_is_safe(spot_room(found, limits, 36_000.0)) is safe


def test_a_start_that_lasts_is_known_to_last_before_it_has_ended(story: Story):
    spec = {"deadline": "6h", "market": "auto", "estimate": {"hours": 2.0, "gpu": "V100"}}
    job_id = story.submit(**spec)
    story.pass_time(30)
    story.train(job_id)
    before = story.job(job_id).last_safe_at
    story.pass_time(600, every=10)
    waited = before - story.job(job_id).last_safe_at
    assert timedelta(seconds=560) <= waited <= timedelta(seconds=620)
    _steps(story, job_id, 1, 30, 30)
    assert story.job(job_id).unsafe_since_at is None
    assert story.job(job_id).eta_at is not None


def test_a_job_that_came_too_late_is_unsafe_since_its_submission_and_not_before(story: Story):
    job_id = story.submit(deadline="6h", market="auto", estimate={"hours": 20.0, "gpu": "V100"})
    story.pass_time(30)
    job = story.job(job_id)
    assert job.unsafe_since_at == job.submitted_at


def test_a_pace_that_is_slow_for_a_moment_moves_nothing(story: Story):
    """Its first ten steps say that it must leave spot now; half a minute later none does."""
    job_id = story.submit(deadline="62m", market="auto", estimate={"hours": 0.3, "gpu": "V100"})
    story.pass_time(30)
    story.train(job_id)
    story.pass_time(30)
    _steps(story, job_id, 1, 12, 55)
    story.pass_time(20)
    assert story.job(job_id).slower_since_at is not None
    _steps(story, job_id, 13, 400, 40)
    story.pass_time(60)
    assert story.job(job_id).slower_since_at is None
    assert _moves(story, job_id) == []


def test_a_job_that_left_spot_goes_back_after_half_an_hour_and_not_before(story: Story):
    story.quote(dict.fromkeys(SPOT, 918_000), available=0)
    job_id = story.submit(deadline="8h", market="auto", estimate={"hours": 5.0, "gpu": "V100"})
    story.pass_time(30)
    _left_spot(story, job_id)
    began = story.job(job_id).market_changed_at
    story.quote(dict.fromkeys(SPOT, 300_000), available=10)
    while story.time < began + timedelta(seconds=1_790):
        story.pass_time(120, every=20)
        if story.time < began + timedelta(seconds=1_800):
            assert story.job(job_id).market_mode == "on_demand"
    story.pass_time(240, every=20)
    assert story.job(job_id).market_mode == "spot"


def test_a_return_needs_room_for_two_restarts_and_a_tenth_of_the_work_left(story: Story):
    spec = {"deadline": "20h", "market": "auto", "estimate": {"hours": 10.0, "gpu": "V100"}}
    job_id = story.submit(**spec)
    runtime, seconds = story.runtime, 36_000.0
    for room, may in ((3_500.0, False), (3_700.0, True)):
        with runtime.begin() as uow, open_job(uow, runtime.entropy, job_id, BY_PERSON) as found:
            assert found is not None
            limits = own_limits(found, runtime.limits)
            assert 2 * limits.restart_seconds < 3_500, "a tenth of the work is what decides"
            last = safe_until(found, limits, seconds)
            assert last is not None
            assert found.job.deadline_at is not None
            found.job.deadline_at += found.now + timedelta(seconds=room) - last
            terms, since = return_terms(limits), found.job.market_changed_at
            left = spot_room(found, limits, seconds)
            assert may_return(left, terms, since, fruitless=False) is may


def test_a_return_that_saves_some_cents_is_none(story: Story):
    """An hour of work: ten cents and a tenth are not to be had once both gangs were paid."""
    story.quote(dict.fromkeys(SPOT, 918_000), available=0)
    job_id = story.submit(deadline="5h", market="auto", estimate={"hours": 0.5, "gpu": "V100"})
    story.pass_time(30)
    _left_spot(story, job_id)
    long_ago = story.time - timedelta(hours=2)
    story.set(tables.jobs, job_id, market_changed_at=long_ago)
    story.quote(dict.fromkeys(SPOT, 2_700_000), available=10)
    story.pass_time(600, every=20)
    assert story.job(job_id).market_mode == "on_demand"


def _planned_start_up(story: Story, job_id: UUID) -> float:
    with (
        story.runtime.begin() as uow,
        open_job(uow, story.runtime.entropy, job_id, BY_PERSON) as aggregate,
    ):
        assert aggregate is not None
        return own_limits(aggregate, story.runtime.limits).start_up_seconds


def test_a_start_that_was_cut_off_counts_until_one_is_measured(story: Story):
    spec = {"deadline": "6h", "market": "auto", "estimate": {"hours": 2.0, "gpu": "V100"}}
    job_id = story.submit(**spec)
    story.pass_time(30)
    story.train(job_id)
    story.pass_time(600, every=10)
    (machine,) = story.members(job_id)
    story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(120, every=10)
    assert story.job(job_id).start_up_seconds is None
    assert 560 <= _planned_start_up(story, job_id) <= 700
    story.train(job_id, fence=2)
    story.pass_time(40)
    _steps(story, job_id, 1, 20, 20)
    assert 30 <= _planned_start_up(story, job_id) <= 100, "a measured start is better than a guess"


SILENT = {"deadline": "12h", "market": "auto", "estimate": {"hours": 4.0, "gpu": "V100"}}


def _silent(story: Story, job_id: UUID, saves: tuple[float, ...], fence: int = 1) -> UUID:
    """A command that reports no steps saves so many seconds after its start; its machine."""
    story.train(job_id, fence=fence)
    (machine,) = story.members(job_id, fence)
    began = story.time
    for number, at in enumerate(saves, 1):
        left = timedelta(seconds=at) - (story.time - began)
        story.pass_time(left.total_seconds(), every=60)
        story.checkpoint(machine, fence, 100 * fence + number)
    return machine


def test_a_command_without_steps_shows_by_its_saves_how_long_it_starts(story: Story):
    """Ten minutes of start, then a save every five: none of the ten is training."""
    job_id = story.submit(**SILENT)
    story.pass_time(30)
    machine = _silent(story, job_id, (900.0,))
    assert story.attempt(job_id).start_up_seconds is None, "one save tells nothing"
    story.pass_time(300, every=60)
    story.checkpoint(machine, 1, 102)
    story.pass_time(60)
    assert story.attempt(job_id).start_up_seconds == pytest.approx(600)
    assert _planned_start_up(story, job_id) == pytest.approx(600), "so long would the next one take"
    limits = story.runtime.limits
    work = timedelta(seconds=4 * 3_600 - 600)
    others = limits.boot_p95_seconds + limits.restore_seconds + limits.on_demand_acquire_seconds
    restart = timedelta(seconds=others + 600)
    job = story.job(job_id)
    assert job.deadline_at - work - restart == pytest.approx(
        job.last_safe_at, abs=timedelta(seconds=2)
    )
    story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(120)
    job = story.job(job_id)
    assert job.saved_seconds == pytest.approx(600)
    assert (job.start_up_seconds, job.start_up_p95_seconds) == pytest.approx((600, 600))
    machine = _silent(story, job_id, (900.0,), fence=2)
    story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(120)
    assert story.job(job_id).saved_seconds == pytest.approx(900), "of 15 minutes, five"


def test_a_save_before_its_time_tells_no_start_up(story: Story):
    """One that a drain asks for comes soon after the last; steps are measured by agents."""
    job_id = story.submit(**SILENT)
    story.pass_time(30)
    machine = _silent(story, job_id, (900.0,))
    story.tell(machine, FactKind.NOTICE, 1, seconds_left=60.0)
    story.pass_time(20)
    story.checkpoint(machine, 1, 102)
    assert (story.attempt(job_id).committed_step, story.attempt(job_id).start_up_seconds) == (
        102,
        None,
    )
    steps = story.submit(name="steps", **SILENT)
    story.pass_time(30)
    story.train(steps)
    (machine,) = story.members(steps)
    for number in (1, 2, 3):
        story.pass_time(300, every=60)
        story.tell(machine, at_step=number)
        story.checkpoint(machine, 1, number)
    assert story.attempt(steps).start_up_seconds is None, "its contact has what was measured"


@pytest.mark.parametrize(("ago", "market"), [(1_700, "on_demand"), (1_900, "spot")])
def test_a_claim_returns_to_spot_no_sooner_than_a_job_that_trains(
    story: Story, ago: int, market: str
):
    """It has no machine, and spot costs a tenth: within half an hour it stays on-demand."""
    story.quote(dict.fromkeys(SPOT, 918_000), available=0)
    story.quote({ON_DEMAND_A: 3_060_000}, available=0)
    job_id = story.submit(deadline="20h", market="auto", estimate={"hours": 5.0, "gpu": "V100"})
    story.pass_time(30)
    assert story.living(job_id) == []
    changed = story.time - timedelta(seconds=ago)
    turned = {"market_mode": "on_demand", "market_changed_at": changed, "claimable_at": None}
    story.set(tables.jobs, job_id, **turned)
    story.quote(dict.fromkeys(SPOT, 300_000), available=10)
    story.quote({ON_DEMAND_A: 3_060_000}, available=10)
    story.run()
    [machine] = story.living(job_id)
    assert (machine.market, story.job(job_id).market_mode) == (market, market)


def test_a_job_that_has_just_returned_leaves_spot_again_at_its_last_safe_moment(story: Story):
    """The half hour is for a return alone: nothing delays what the deadline asks for."""
    limits = story.runtime.limits
    restart = limits.boot_p95_seconds + limits.restore_seconds + limits.on_demand_acquire_seconds
    deadline = f"{7_200 + round(restart) + 600}s"
    spec = {"deadline": deadline, "market": "auto", "estimate": {"hours": 2.0, "gpu": "V100"}}
    job_id = story.submit(**spec)
    story.pass_time(30)
    story.train(job_id)
    changed = story.time
    story.set(tables.jobs, job_id, market_changed_at=changed)
    story.pass_time(600, every=20)  # without a step: the moment comes nearer
    assert _moves(story, job_id) == ["moved_to_on_demand"]
    assert changed < story.job(job_id).market_changed_at < changed + timedelta(seconds=600)


@pytest.mark.full
def test_spot_that_lets_a_job_come_to_no_checkpoint_is_left_before_the_job_is_given_up(
    story: Story,
):
    """Each machine is taken in the start: how long that takes, nobody ever sees."""
    spec = {"deadline": "12h", "market": "auto", "estimate": {"hours": 2.0, "gpu": "V100"}}
    job_id = story.submit(**spec)
    story.pass_time(30)
    for fence in range(1, 6):
        assert story.job(job_id).market_mode == "spot"
        story.train(job_id, fence=fence)
        story.pass_time(100, every=20)
        (machine,) = story.members(job_id, fence)
        story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
        story.pass_time(60, every=20)
    assert story.job(job_id).attempts_without_progress == 5
    assert story.job(job_id).market_mode == "on_demand"
    assert _moves(story, job_id) == ["moved_to_on_demand"]
    story.train(job_id, fence=6)
    long_ago = story.time - timedelta(hours=2)
    story.set(tables.jobs, job_id, market_changed_at=long_ago)
    story.quote(dict.fromkeys(SPOT, 100_000), available=10)
    story.pass_time(1_200, every=240)
    assert story.job(job_id).market_mode == "on_demand", "it is not in its first step yet"


def test_a_gang_that_keeps_machines_leaves_a_spot_that_lets_it_save_nothing(story: Story):
    """It is never without machines, so no claim asks which market it had better be on."""
    spec = {"deadline": "12h", "market": "auto", "estimate": {"hours": 2.0, "gpu": "V100"}}
    job_id = story.submit(nodes=2, **spec)
    story.pass_time(30)
    for fence in range(1, 6):
        assert story.job(job_id).market_mode == "spot"
        story.train(job_id, fence=fence)
        story.pass_time(20)
        first, second = story.members(job_id, fence)
        story.tell(second, FactKind.NOTICE, fence, seconds_left=60.0)
        for machine in (first, second):
            story.tell(machine, FactKind.TRAINER_ENDED, fence, outcome="drained", exit_code=75)
        story.cloud.end(story.instance(second).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
        story.pass_time(30)
        assert {first, second} & set(story.members(job_id, fence + 1)), "one is kept"
    story.train(job_id, fence=6)
    story.pass_time(60, every=20)
    job = story.job(job_id)
    assert (job.attempts_without_progress, job.market_mode) == (5, "on_demand")
    assert _moves(story, job_id) == ["moved_to_on_demand"]
    assert job.state == "running", "the spot gang trains until the others have come"


def test_machines_that_fail_are_no_reason_to_leave_spot(story: Story):
    """On-demand ones are the same machines."""
    spec = {"deadline": "12h", "market": "auto", "estimate": {"hours": 2.0, "gpu": "V100"}}
    job_id = story.submit(**spec, retries=20)
    story.pass_time(30)
    for fence in range(1, 7):
        story.train(job_id, fence=fence)
        (machine,) = story.members(job_id, fence)
        story.cloud.end(story.instance(machine).provider_instance_id, EndedBy.CLOUD_FAILURE)
        story.pass_time(720, every=240)
    assert story.job(job_id).attempts_without_progress >= 5
    assert _moves(story, job_id) == []
