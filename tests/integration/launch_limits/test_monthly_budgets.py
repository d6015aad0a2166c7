"""A project's budget of a month: what it blocks, whom it pauses, and what the next month brings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from app.domain.launch_limits.monthly_budget import AtFull
from app.domain.lifecycle.job import StopCause
from app.orchestration.money.accrue_costs import AccrueCosts
from app.orchestration.money.budget_months import ResumeForBudgets, WatchBudgetMonths
from app.orchestration.money.enforce_budgets import EnforceBudgets
from app.orchestration.money.set_budget import remove_budget
from app.storage.schema import tables
from app.storage.schema.money_tables import budget_thresholds, monthly_budgets
from tests.support.stories.launch_limits_story import admin_of, book, budget_of, standing_of
from tests.support.stories.orchestration_story import PRICES, ZONE_A, Story
from trainer.protocol.agent_report import FactKind

USD = 1_000_000
APRIL = datetime(2026, 4, 1, tzinfo=UTC)
QUARTER = 4
"""A claim needs the first 15 minutes: a quarter of the price of an hour."""


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    made = Story(engine, tmp_path / "store")
    own = (EnforceBudgets, WatchBudgetMonths, ResumeForBudgets)
    made.controllers = (*made.controllers, *(one(made.runtime) for one in own))
    return made


def to_april(story: Story) -> None:
    """The month ends; whoever waits has been looked at in the next one."""
    story.time = APRIL + timedelta(minutes=1)
    story.quote()
    story.run()


def test_at_its_end_no_machine_is_requested_and_the_next_month_brings_them(story: Story) -> None:
    story.controllers = (*story.controllers, AccrueCosts(story.runtime))
    running, [machine] = story.training()
    budget_of(story, PRICES[ZONE_A] // QUARTER)
    waiting = story.submit()
    story.run()
    job = story.job(waiting)
    assert (job.state, job.end_reason) == ("paused", "budget_exhausted")
    assert job.end_message.startswith(
        "The project's budget of this month, until 2026-04-01 00:00:00 UTC: Over the budget"
    )
    assert story.job(running).state == "running"
    story.stop(running)
    story.tell(machine, FactKind.TRAINER_ENDED, outcome="drained", exit_code=75, step=4)
    story.pass_time(60)
    assert story.launches(waiting) == [], "what is free again this month takes nobody back"
    to_april(story)
    assert len(story.launches(waiting)) == 1
    events = tables.events
    kinds = [row.kind for row in story.rows(events, events.c.job_id == waiting)]
    assert "budget_period_began" in kinds


@pytest.mark.parametrize("at_full", list(AtFull))
def test_a_job_that_runs_is_stopped_only_if_the_budget_says_so(
    story: Story, at_full: AtFull
) -> None:
    job_id, [machine] = story.training()
    budget_of(story, 2 * USD, at_full)
    book(story, machine, story.time.replace(minute=0), 2 * USD)
    story.run()
    job = story.job(job_id)
    if at_full is AtFull.BLOCK_NEW:
        assert (job.state, job.stop_cause) == ("running", None)
        return
    assert (job.state, job.stop_cause) == ("stopping", "budget")
    story.tell(machine, FactKind.TRAINER_ENDED, outcome="drained", exit_code=75, step=4)
    story.run()
    assert story.job(job_id).state == "paused"
    to_april(story)
    assert len(story.launches(job_id)) == 2


def test_what_is_booked_late_counts_for_the_month_of_its_use(story: Story) -> None:
    _, [machine] = story.training()
    budget_of(story, 50 * USD)
    march, february = story.time.replace(minute=0), datetime(2026, 2, 28, 23, tzinfo=UTC)
    book(story, machine, march, 3 * USD)
    book(story, machine, february, 20 * USD)
    assert standing_of(story).budget.spent_microusd == 3 * USD
    # Booked before anybody has noticed that the month is over.
    story.time = APRIL + timedelta(seconds=1)
    book(story, machine, APRIL, 5 * USD)
    assert standing_of(story).budget.spent_microusd == 3 * USD
    with story.runtime.begin() as uow:
        assert uow.monthly_budgets.spent_in(story.project_id, APRIL) == 5 * USD
    story.controllers = (WatchBudgetMonths(story.runtime),)
    story.run()
    assert (standing_of(story).budget.month_at, standing_of(story).budget.spent_microusd) == (
        APRIL,
        5 * USD,
    )
    book(story, machine, march, USD)
    assert standing_of(story).budget.spent_microusd == 5 * USD


def test_each_share_is_told_once_a_month(story: Story) -> None:
    _, [machine] = story.training()
    story.controllers = (WatchBudgetMonths(story.runtime),)
    budget_of(story, 10 * USD)
    hour = story.time.replace(minute=0)
    for microusd, told in ((4 * USD, []), (USD, [50]), (6 * USD, [50, 80, 100])):
        book(story, machine, hour, microusd)
        story.run()
        assert [row.percent for row in story.rows(budget_thresholds)] == told
    budget_of(story, 20 * USD)
    book(story, machine, hour, 20 * USD)
    story.run()
    assert len(story.rows(budget_thresholds)) == 3
    story.time = APRIL + timedelta(seconds=1)
    book(story, machine, APRIL, 10 * USD)
    story.run()
    assert [row.percent for row in story.rows(budget_thresholds)] == [50, 80, 100, 50]
    assert [one.percent for one in standing_of(story).thresholds] == [50]


def test_more_money_takes_back_who_paused_for_it_and_nobody_else(story: Story) -> None:
    budget_of(story, PRICES[ZONE_A] // QUARTER - 1)
    starved, poor = story.submit(), story.submit(budget_usd=5, estimate={"hours": 1})
    by_person = story.submit()
    story.stop(by_person, StopCause.PAUSE)
    story.run()
    states = [story.job(one).state for one in (starved, poor, by_person)]
    assert states == ["paused", "paused", "paused"]
    story.set(tables.budgets, story.job(poor).budget_id, spent_microusd=5 * USD)
    story.sleep(1)
    budget_of(story, 100 * USD)
    story.run()
    assert len(story.launches(starved)) == 1
    assert [story.job(one).state for one in (poor, by_person)] == ["paused", "paused"]


def test_whom_its_own_budget_paused_below_its_cap_no_month_takes_back(story: Story) -> None:
    """What its machines may still cost has reached the cap: it would be paused again each month."""
    job_id, [machine] = story.training(budget_usd=5, estimate={"hours": 1})
    budget_of(story, 100 * USD)
    own = story.job(job_id).budget_id
    story.set(tables.budgets, own, spent_microusd=5 * USD - 1)
    story.run()
    story.tell(machine, FactKind.TRAINER_ENDED, outcome="drained", exit_code=75, step=4)
    story.run()
    job = story.job(job_id)
    assert (job.state, job.paused_by_budget) == ("paused", "job")
    to_april(story)
    assert story.job(job_id).state == "paused"


def test_without_the_budget_those_that_it_has_paused_go_on(story: Story) -> None:
    budget_of(story, PRICES[ZONE_A] // QUARTER - 1)
    job_id = story.submit()
    story.run()
    assert story.job(job_id).paused_by_budget == "project_month"
    with story.runtime.begin() as uow:
        remove_budget(uow, story.runtime.entropy, admin_of(story))
    story.run()
    job = story.job(job_id)
    assert (len(story.launches(job_id)), job.paused_by_budget) == (1, None)


def test_a_budget_that_is_set_before_its_new_month_is_noticed_takes_back_all_the_same(
    story: Story,
) -> None:
    budget_of(story, PRICES[ZONE_A])
    _, [machine] = story.training()
    book(story, machine, story.time.replace(minute=0), PRICES[ZONE_A])
    job_id = story.submit()
    story.run()
    assert story.job(job_id).state == "paused"
    story.time = APRIL + timedelta(seconds=1)
    budget_of(story, PRICES[ZONE_A])
    to_april(story)
    assert len(story.launches(job_id)) == 1


def test_to_set_it_again_counts_what_another_release_has_booked(story: Story) -> None:
    _, [machine] = story.training()
    budget_of(story, 50 * USD)
    book(story, machine, story.time.replace(minute=0), 3 * USD)
    with story.engine.begin() as connection:
        connection.execute(update(monthly_budgets).values(spent_microusd=USD))
    budget_of(story, 50 * USD)
    assert standing_of(story).budget.spent_microusd == 3 * USD


def test_the_forecast_counts_the_machines_of_now(story: Story) -> None:
    story.training(2)
    budget_of(story, 5_000 * USD)
    found = standing_of(story)
    assert found.microusd_per_hour == 2 * PRICES[ZONE_A]
    hours = (APRIL - story.time).total_seconds() / 3_600
    expected = found.budget.spent_microusd + round(2 * PRICES[ZONE_A] * hours)
    assert found.forecast_microusd == pytest.approx(expected, abs=1)
    assert found.reserved_microusd > 0


def test_a_first_budget_takes_nobody_back(story: Story) -> None:
    """It gives no money: whoever paused before had used up a budget of its own."""
    poor = story.submit(budget_usd=5, estimate={"hours": 1})
    story.run()
    story.set(tables.budgets, story.job(poor).budget_id, spent_microusd=5 * USD)
    story.run()
    story.pass_time(60)
    story.set(tables.budgets, story.job(poor).budget_id, spent_microusd=5 * USD - 1)
    assert story.job(poor).state != "running"
    before = len(story.rows(tables.events, tables.events.c.job_id == poor))
    story.sleep(1)
    budget_of(story, 100 * USD)
    story.run()
    assert len(story.rows(tables.events, tables.events.c.job_id == poor)) == before
