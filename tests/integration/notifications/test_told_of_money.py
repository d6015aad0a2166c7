"""Shares of budgets, and books that differ, reach a real server: each once, by several workers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.launch_limits.monthly_budget import AtFull
from app.domain.notifications.triggers import Trigger
from app.orchestration.frame.controller_frame import AnyController, apply_phase, select_phase
from app.orchestration.money.budget_months import WatchBudgetMonths
from app.orchestration.money.check_books import CheckBooks
from app.orchestration.money.set_budget import set_budget
from tests.support.stories.listening_channel import ListeningChannel, listening
from tests.support.stories.money_story import MoneyStory

USD = 1_000_000
HOUR = 3_600
TIMES = (4_000, 5_400, 7_200, 8_100, 12_000, 14_000)
"""Seconds after which the story's machine has cost 4.00, 5.40, 7.20, 8.10, 12.00, 14.00 dollars."""


@pytest.fixture
def story(engine: Engine) -> MoneyStory:
    made = MoneyStory(engine)
    made.quote()
    return made


@pytest.fixture
def project(story: MoneyStory) -> UUID:
    return story.project("alpha")


@pytest.fixture
def channel(
    story: MoneyStory, project: UUID, engine: Engine, tmp_path: Path
) -> Iterator[ListeningChannel]:
    with listening(engine, story.runtime, project, tmp_path) as made:
        made.rule(Trigger.BUDGET)
        yield made


def month_of_ten(story: MoneyStory, project: UUID, at_full: AtFull = AtFull.BLOCK_NEW) -> None:
    admin = Principal(None, "root", project, "alpha", Role.ADMIN)
    with story.begin() as uow:
        set_budget(uow, story.entropy, admin, 10 * USD, at_full)


def by_two_workers(story: MoneyStory, controller: AnyController) -> int:
    """Both pick the same work before either does it; how much that was."""
    picked = [select_phase(story.runtime, controller) for _ in range(2)]
    assert picked[0] == picked[1]
    with ThreadPoolExecutor(2) as workers:
        for work in zip(*picked, strict=True):
            list(workers.map(lambda one: apply_phase(story.runtime, controller, one, None), work))
    return len(picked[0])


def test_shares_of_a_month_are_told_once_each_by_two_workers(
    story: MoneyStory, project: UUID, channel: ListeningChannel
):
    month_of_ten(story, project)
    machine = story.machine(story.job(project), 0)
    watch, sent = WatchBudgetMonths(story.runtime), []
    for seconds in TIMES:
        story.accrue(seconds)
        while by_two_workers(story, watch):
            pass
        sent.append(channel.sent())
    assert story.booked(machine) == 14 * USD
    assert [len(some) for some in sent] == [0, 1, 0, 1, 1, 0]
    [half], [most], [whole] = sent[1], sent[3], sent[4]
    assert half.startswith("*Project alpha has spent 50 % of its budget of this month*")
    assert "$5.40 of $10.00 is spent. Once all of it is spent or reserved, no machine is" in half
    assert "until 2026-04-01 00:00:00 UTC; those that run go on." in half
    assert "spent 80 %" in most
    assert "/projects/alpha|Open in Lowtide>" in most
    assert "spent 100 %" in whole


def test_what_a_full_month_does_is_told(
    story: MoneyStory, project: UUID, channel: ListeningChannel
):
    month_of_ten(story, project, AtFull.DRAIN_AND_PAUSE)
    story.machine(story.job(project), 0)
    story.accrue(5_400)
    story.run(WatchBudgetMonths(story.runtime))
    [told] = channel.sent()
    assert "jobs save and pause until 2026-04-01 00:00:00 UTC." in told


def test_shares_of_a_jobs_budget_are_told_once_each_by_two_workers(
    story: MoneyStory, project: UUID, channel: ListeningChannel
):
    job, other = story.job(project, "bert", cap=10 * USD), story.job(project, "gpt")
    machine, _ = story.machine(job, 0), story.machine(other, 0)
    sent = []
    for seconds in TIMES:
        story.go_to(seconds)
        assert by_two_workers(story, story.accruing) == 2
        story.accrue(seconds)
        sent.append(channel.sent())
    assert story.booked(machine) == 14 * USD
    assert [len(some) for some in sent] == [0, 1, 0, 1, 1, 0]
    assert sent[1][0].startswith("*Job bert has spent 50 % of its budget*\n$5.40 of $10.00")
    assert f"/jobs/{job.id}|Open in Lowtide>" in sent[1][0]
    assert "spent 80 %" in sent[3][0]
    assert "spent 100 %" in sent[4][0]


def test_of_a_larger_budget_its_own_shares_are_told(
    story: MoneyStory, project: UUID, channel: ListeningChannel
):
    job = story.job(project, "bert", cap=10 * USD)
    story.machine(job, 0)
    story.accrue(8_100)
    assert len(channel.sent()) == 2
    with story.begin() as uow:
        [budget] = uow.money.lock_budgets(project, job.budget_id)
        budget.cap_microusd = 20 * USD
    story.accrue(16_200)
    assert sorted(told.partition("*\n")[0] for told in channel.sent()) == [
        "*Job bert has spent 50 % of its budget",
        "*Job bert has spent 80 % of its budget",
    ]


def test_books_that_differ_are_told_once_a_day(
    story: MoneyStory, project: UUID, channel: ListeningChannel, engine: Engine
):
    channel.rule(Trigger.BOOKS_DIFFER)
    story.machine(story.job(project), 0)
    story.accrue(100)
    checking = CheckBooks(story.runtime)
    story.run(checking)
    assert channel.sent() == []
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE ledger_entries DISABLE TRIGGER USER"))
        connection.execute(text("UPDATE ledger_entries SET amount_microusd = amount_microusd + 7"))
    told = []
    for hours in (1, 2, 24):
        story.sleep(hours * HOUR)
        assert story.run(checking) == 1
        told.append([one.partition("*\n")[0] for one in channel.sent()])
    differ = ["*Reports of costs differ from the ledger"]
    assert told == [differ, [], differ]
