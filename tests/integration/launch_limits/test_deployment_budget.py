"""The deployment's budget of a month: all projects together are held to it."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from app.domain.access.roles import Role
from app.domain.billing.budget import BudgetOwner
from app.domain.launch_limits.monthly_budget import AtFull
from app.domain.notifications.triggers import Trigger
from app.domain.units.errors import Forbidden
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.gang.reserve_budget import read_headroom
from app.orchestration.money.accrue_costs import AccrueCosts
from app.orchestration.money.budget_months import ResumeForBudgets, WatchBudgetMonths
from app.orchestration.money.enforce_budgets import EnforceBudgets
from app.orchestration.money.set_budget import set_budget
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.storage.schema import tables
from app.storage.schema.money_tables import monthly_budgets
from tests.support.api.agent_api import BY_PERSON
from tests.support.api.people_api import make_project
from tests.support.stories.launch_limits_story import (
    admin_of,
    book,
    budget_of,
    entry,
    standing_of,
    submit_to,
)
from tests.support.stories.notification_story import NotificationStory
from tests.support.stories.orchestration_story import PRICES, ZONE_A, Story

USD = 1_000_000
APRIL = datetime(2026, 4, 1, tzinfo=UTC)
START = PRICES[ZONE_A] // 4
"""The first 15 minutes of a machine."""
ALL = BudgetOwner.DEPLOYMENT


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    made = Story(engine, tmp_path / "store")
    own = (EnforceBudgets, WatchBudgetMonths, ResumeForBudgets, AccrueCosts)
    made.controllers = (*made.controllers, *(one(made.runtime) for one in own))
    return made


def test_another_projects_machines_count_and_the_next_month_has_room_again(story: Story) -> None:
    theirs = submit_to(story, make_project(story.engine, "beta"))
    story.run()
    budget_of(story, 2 * START - 1, owner=ALL)
    mine = story.submit()
    story.run()
    job = story.job(mine)
    assert (job.state, job.end_reason) == ("paused", "budget_exhausted")
    assert job.end_message.startswith(
        "The deployment's budget of this month, until 2026-04-01 00:00:00 UTC: Over the budget"
    )
    story.stop(theirs)
    story.pass_time(60)
    assert story.launches(mine) == []
    story.time = APRIL + timedelta(minutes=1)
    story.quote()
    story.run()
    assert len(story.launches(mine)) == 1


def test_both_budgets_hold(story: Story) -> None:
    budget_of(story, 100 * USD, owner=ALL)
    budget_of(story, START - 1)
    job_id = story.submit()
    story.run()
    assert story.job(job_id).end_message.startswith("The project's budget of this month")


def test_more_money_takes_back_jobs_of_projects_without_a_budget(story: Story) -> None:
    budget_of(story, START - 1, owner=ALL)
    job_id = story.submit()
    story.run()
    assert story.job(job_id).state == "paused"
    story.sleep(1)
    budget_of(story, START, owner=ALL)
    story.run()
    assert len(story.launches(job_id)) == 1


@pytest.mark.parametrize("at_full", list(AtFull))
def test_jobs_of_all_projects_are_stopped_only_if_it_says_so(story: Story, at_full: AtFull) -> None:
    job_id, [machine] = story.training()
    budget_of(story, 5 * USD, at_full, ALL)
    elsewhere = make_project(story.engine, "beta")
    book(story, machine, story.time.replace(minute=0), 5 * USD, elsewhere)
    story.run()
    expected = "running" if at_full is AtFull.BLOCK_NEW else "stopping"
    assert story.job(job_id).state == expected


def test_it_counts_each_month_by_its_usage_and_forecasts_all_machines(story: Story) -> None:
    _, [machine] = story.training()
    march = story.time.replace(minute=0)
    book(story, machine, march, USD)
    budget_of(story, 50 * USD, owner=ALL)
    elsewhere = make_project(story.engine, "beta")
    book(story, machine, march, 3 * USD, elsewhere)
    book(story, machine, datetime(2026, 2, 28, 23, tzinfo=UTC), 20 * USD)
    found = standing_of(story, ALL)
    assert (found.budget.spent_microusd, found.project) == (4 * USD, None)
    assert found.microusd_per_hour == PRICES[ZONE_A]
    assert found.reserved_microusd > 0
    story.time = APRIL + timedelta(seconds=1)
    book(story, machine, APRIL, 7 * USD, elsewhere)
    story.controllers = (WatchBudgetMonths(story.runtime),)
    story.run()
    assert standing_of(story, ALL).budget.spent_microusd == 7 * USD
    assert standing_of(story, ALL).budget.month_at == APRIL


def test_what_is_booked_while_the_first_budget_is_set_counts(story: Story) -> None:
    """The booking has found no budget when it wrote, and is committed after it is asked for."""
    _, [machine] = story.training()
    hour, done = story.time.replace(minute=0), threading.Event()

    def set_it() -> None:
        budget_of(story, 50 * USD, owner=ALL)
        done.set()

    thread = threading.Thread(target=set_it)
    with story.runtime.begin() as booking:
        booking.money.append_entries([entry(story, machine, hour, USD)])
        thread.start()
        assert not done.wait(0.3), "it was set beside a booking that had not seen it"
    thread.join(10)
    assert standing_of(story, ALL).budget.spent_microusd == USD


def test_what_is_booked_while_its_month_begins_counts(story: Story) -> None:
    """The booking has found the month before, whose row it has not locked."""
    _, [machine] = story.training()
    budget_of(story, 50 * USD, owner=ALL)
    story.time, done = APRIL + timedelta(seconds=1), threading.Event()
    elsewhere = make_project(story.engine, "beta")

    def begin_it() -> None:
        run_controller(story.runtime, WatchBudgetMonths(story.runtime))
        done.set()

    thread = threading.Thread(target=begin_it)
    with story.runtime.begin() as booking:
        booking.money.append_entries([entry(story, machine, APRIL, USD, elsewhere)])
        thread.start()
        assert not done.wait(0.3), "the month began beside a booking that had not seen it"
    thread.join(10)
    assert standing_of(story, ALL).budget.spent_microusd == USD


def test_it_is_set_once_the_launches_that_are_being_written_are_there(story: Story) -> None:
    done = threading.Event()

    def set_it() -> None:
        budget_of(story, 50 * USD, owner=ALL)
        done.set()

    thread = threading.Thread(target=set_it)
    with story.runtime.begin() as launching:
        launching.launch_gate.open()
        thread.start()
        assert not done.wait(0.3), "it was set beside a launch that had not seen it"
    thread.join(10)
    assert done.is_set()


def test_only_admins_set_it(story: Story) -> None:
    maintainer = replace(admin_of(story), role=Role.MAINTAINER)
    with pytest.raises(Forbidden), story.runtime.begin() as uow:
        set_budget(uow, story.runtime.entropy, maintainer, USD, AtFull.BLOCK_NEW, ALL)


def test_admins_are_told_of_each_share_once(engine: Engine, tmp_path: Path) -> None:
    story = NotificationStory(engine, tmp_path)
    story.server.close()
    story.channel("ops")
    story.rule("ops", Trigger.DEPLOYMENT_BUDGET)
    story.rule("ops", Trigger.BUDGET)
    with story.runtime.begin() as uow:
        set_budget(uow, story.runtime.entropy, story.admin, 10 * USD, AtFull.BLOCK_NEW, ALL)
    spent = update(monthly_budgets).values(spent_microusd=8 * USD)
    with engine.begin() as connection:
        connection.execute(spent)
    watching = WatchBudgetMonths(story.runtime)
    for _ in range(2):
        run_controller(story.runtime, watching)
    told = [(row.kind, row.message["text"]) for row in story.deliveries()]
    assert sorted(told) == [
        ("deployment_budget", "50 % is spent: $8.00 of $10.00."),
        ("deployment_budget", "80 % is spent: $8.00 of $10.00."),
    ]


def test_launches_of_two_projects_wait_for_each_other(story: Story) -> None:
    """Else both would find the last money, which neither has reserved yet."""
    budget_of(story, 2 * START - 1, owner=ALL)
    mine = story.submit()
    # Not claimed beside this test, which would wait for its project's budget.
    story.set(tables.jobs, mine, claimable_at=story.time + timedelta(seconds=20))
    theirs, done = submit_to(story, make_project(story.engine, "beta")), threading.Event()

    def claim() -> None:
        run_controller(story.runtime, ClaimJobs(story.runtime))
        done.set()

    thread, limits = threading.Thread(target=claim), story.runtime.limits
    with (
        story.runtime.begin() as uow,
        open_job(uow, story.runtime.entropy, mine, BY_PERSON) as aggregate,
    ):
        assert aggregate is not None
        read_headroom(aggregate, limits)
        thread.start()
        assert not done.wait(0.5), "the other one has not waited for what is reserved here"
    thread.join(10)
    assert len(story.launches(theirs)) == 1
