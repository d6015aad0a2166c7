"""Budgets in a real database: reservations, claims that do not fit, and orders to stop."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.domain.billing.budget import BudgetCheck
from app.domain.lifecycle.entities import Job
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobState, StopCause
from app.domain.market.offer import Offer
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.gang.reserve_budget import (
    live_reserve,
    read_headroom,
    write_reservation,
)
from tests.support.api.agent_api import BY_PERSON
from tests.support.stories.money_story import (
    LIMITS,
    ON_DEMAND_PRICE,
    POOL,
    PRICE,
    START,
    V100,
    MoneyStory,
    locked_budgets,
)

WINDOW = 60 + 90 + 15 + 30
"""Seconds: accrual period, drain with its grace, observation gap."""
FIRST = 900
A_SECOND = 1_000
OFFER = Offer(POOL, V100, PRICE, ON_DEMAND_PRICE, "ec2", START, "trace")


def claim(story: MoneyStory, job: Job, new: int = 1) -> BudgetCheck:
    with story.begin() as uow:
        budgets = locked_budgets(uow, job)
        with open_job(uow, story.entropy, job.id, BY_PERSON, looking=True) as aggregate:
            assert aggregate is not None
            headroom = read_headroom(aggregate, LIMITS, budgets)
        covered = headroom.bids_covered([OFFER], new) if new else headroom.nothing_more()
        if covered.check.yes:
            write_reservation(uow, budgets, job.id, covered.reserved_microusd)
        return covered.check


def reserve(story: MoneyStory, job: Job) -> int:
    with story.begin() as uow:
        return live_reserve(uow, uow.instances.of_job(job.id), LIMITS, uow.now)


def state(story: MoneyStory, job: Job) -> JobState:
    state: JobState = story.fresh(job).state
    return state


def test_the_reserve_is_price_times_window_and_what_is_missing_to_the_minimum(
    story: MoneyStory,
) -> None:
    job = story.job(story.project())
    story.machine(job, 0)
    story.go_to(10)
    assert reserve(story, job) == (WINDOW + 50) * A_SECOND
    story.go_to(100)
    assert reserve(story, job) == WINDOW * A_SECOND
    story.machine(job, 100, billing_speed=60)
    assert reserve(story, job) == (WINDOW + 60 * WINDOW + 60) * A_SECOND


def test_a_machine_that_is_only_asked_for_counts_at_its_dearest_bid(story: MoneyStory) -> None:
    job = story.job(story.project())
    launch = story.launch(job, 2 * PRICE)
    story.machine(job, None, pool=None, launch_id=launch.id)
    assert reserve(story, job) == 2 * (WINDOW + 60) * A_SECOND


@pytest.mark.parametrize(("short_by", "allowed"), [(0, True), (1, False)])
def test_a_claim_fits_to_the_micro_dollar(story: MoneyStory, short_by: int, allowed: bool) -> None:
    job = story.job(story.project(), cap=2 * FIRST * A_SECOND - short_by)
    verdict = claim(story, job, 2)
    assert verdict.yes is allowed
    reserved = 2 * FIRST * A_SECOND if allowed else 0
    assert story.budget(job).reserved_microusd == reserved
    if not allowed:
        assert verdict.sentence.startswith("Over the budget of $1.80 by $0.000001")


def test_what_is_spent_and_live_counts_against_a_claim(story: MoneyStory) -> None:
    project = story.project()
    cap = (600 + WINDOW + FIRST) * A_SECOND
    job, short = story.job(project, cap=cap), story.job(project, "short", cap=cap - 1)
    for one in (job, short):
        story.machine(one)
    story.accrue(600)
    assert claim(story, job).yes
    assert not claim(story, short).yes


def test_without_a_budget_a_claim_is_allowed_and_reserved_all_the_same(story: MoneyStory) -> None:
    job = story.job(story.project())
    assert claim(story, job) == BudgetCheck(True, "No budget is set.")
    assert story.budget(job).reserved_microusd == FIRST * A_SECOND


def test_jobs_share_their_projects_cap(story: MoneyStory) -> None:
    project = story.project(cap=2 * FIRST * A_SECOND)
    first, second, third = (story.job(project, name, cap=10**12) for name in ("a", "b", "c"))
    other = story.job(story.project("beta"))
    assert claim(story, first).yes
    assert claim(story, other).yes
    assert claim(story, second).yes
    assert story.project_budget(project).reserved_microusd == 2 * FIRST * A_SECOND
    refused = claim(story, third)
    assert not refused.yes
    assert refused.sentence.startswith("The project's budget: Over the budget of $1.80 by $0.90")
    assert claim(story, first, 0).yes  # gives its first stretch back
    assert claim(story, third).yes
    assert story.project_budget(project).reserved_microusd == 2 * FIRST * A_SECOND


def test_accruing_keeps_the_reservation_at_what_is_live(story: MoneyStory) -> None:
    project = story.project(cap=10**12)
    job, other = story.job(project), story.job(project, "other")
    claim(story, job, 2)
    claim(story, other)
    machine = story.machine(job)
    story.machine(job)
    story.accrue(61)
    assert story.budget(job).reserved_microusd == 2 * WINDOW * A_SECOND
    assert story.project_budget(project).reserved_microusd == (2 * WINDOW + FIRST) * A_SECOND
    story.end(machine, 70)
    story.accrue(71)
    assert story.budget(job).reserved_microusd == WINDOW * A_SECOND


def test_a_job_is_stopped_when_spent_and_reserve_reach_its_cap(story: MoneyStory) -> None:
    cap = (FIRST + 300) * A_SECOND
    job = story.job(story.project(), cap=cap)
    story.machine(job, attempt=story.attempt(job))
    assert claim(story, job, 0).yes
    stopped_at = 0
    for seconds in range(60, 1500, 60):
        story.accrue(seconds)
        story.run(story.enforcing)
        if state(story, job) is JobState.STOPPING:
            stopped_at = seconds
            break
    spent = story.budget(job).spent_microusd
    assert stopped_at * A_SECOND == spent
    assert spent - 60 * A_SECOND + WINDOW * A_SECOND < cap <= spent + WINDOW * A_SECOND
    stored = story.fresh(job)
    assert stored.stop_cause is StopCause.BUDGET
    assert run_controller(story.runtime, story.enforcing) == 0
    assert "enforce_budgets" in story.wakeups.rung


def test_a_claim_at_the_very_cap_is_not_stopped_at_once(story: MoneyStory) -> None:
    job = story.job(story.project(), cap=FIRST * A_SECOND, state=JobState.STARTING)
    starting = story.attempt(job)
    assert claim(story, job).yes
    launch = story.launch(job)
    story.machine(job, None, pool=None, launch_id=launch.id, attempt=starting)
    assert story.run(story.enforcing) == 1
    assert state(story, job) is JobState.STARTING
    assert story.budget(job).reserved_microusd == (WINDOW + 60) * A_SECOND
    assert run_controller(story.runtime, story.enforcing) == 0


def test_nobody_is_stopped_for_what_another_job_might_have_cost(story: MoneyStory) -> None:
    project = story.project(cap=(WINDOW + 60 + FIRST) * A_SECOND)
    working, new = story.job(project, "a"), story.job(project, "b", state=JobState.STARTING)
    story.machine(working, attempt=story.attempt(working))
    starting = story.attempt(new)
    assert claim(story, working, 0).yes
    assert claim(story, new).yes
    launch = story.launch(new)
    story.machine(new, None, pool=None, launch_id=launch.id, attempt=starting)
    story.accrue(60)
    story.run(story.enforcing)
    assert (state(story, working), state(story, new)) == (JobState.RUNNING, JobState.STARTING)
    expected = WINDOW + (WINDOW + 60)
    assert story.project_budget(project).reserved_microusd == expected * A_SECOND


def test_a_projects_cap_stops_its_jobs_and_no_other(story: MoneyStory) -> None:
    project = story.project(cap=(120 + 2 * WINDOW) * A_SECOND)
    jobs = [story.job(project, name) for name in ("a", "b")]
    bystander = story.job(story.project("beta"), "c", cap=10**12)
    for job in (*jobs, bystander):
        story.machine(job, attempt=story.attempt(job))
    story.accrue(61)
    story.run(story.enforcing)
    assert [state(story, job) for job in jobs] == [JobState.STOPPING] * 2
    assert state(story, bystander) is JobState.RUNNING
    message = _stop_message(story, jobs[0].id)
    assert message.startswith("The project's budget: Stopping, so that saving and releasing")
    assert "within the budget of $0.51: $0.12 is spent" in message


def test_a_waiver_is_not_counted_on(story: MoneyStory) -> None:
    job = story.job(story.project(), cap=(300 + WINDOW) * A_SECOND)
    story.machine(
        job,
        attempt=story.attempt(job),
        state=InstanceState.INTERRUPTING,
        notice_deadline_at=story.after(310),
    )
    story.accrue(300)
    story.run(story.enforcing)
    assert state(story, job) is JobState.STOPPING


def _stop_message(story: MoneyStory, job_id: UUID) -> str:
    from sqlalchemy import select

    from app.storage.schema.tables import events

    with story.engine.connect() as connection:
        rows = connection.execute(
            select(events.c.message).where(
                events.c.job_id == job_id, events.c.kind == "stop_ordered"
            )
        )
        return str(rows.scalar_one())
