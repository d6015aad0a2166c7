"""Rollup and ledger are compared machine by machine, slice by slice, and reports tell of it."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import select, text

from app.domain.billing.books_check import BooksCheck, BooksVerdict
from app.orchestration.money import check_books
from app.orchestration.money.accrue_costs import AccrueCosts
from app.orchestration.money.check_books import CheckBooks
from app.storage.money.cost_figures import PeriodCosts
from app.storage.schema.money_tables import books_differences
from tests.support.servers.table_rows import execute, rows_of
from tests.support.stories.money_story import MoneyStory

DAY = timedelta(days=1)


@pytest.fixture
def checking(story: MoneyStory) -> CheckBooks:
    return CheckBooks(story.runtime)


def booked_project(story: MoneyStory, name: str, machines: int) -> UUID:
    """A project with a job whose machines have booked something."""
    project_id = story.project(name)
    job = story.job(project_id)
    for _ in range(machines):
        story.assign(story.machine(job, 0), job, None, story.after(0))
    return project_id


def period(story: MoneyStory, project_id: UUID | None = None) -> PeriodCosts:
    day = story.time.date()
    return story.reports.period_costs(day, day, project_id=project_id)


def falsify(story: MoneyStory, project_id: UUID) -> None:
    """One entry of the ledger changes behind everybody's back."""
    with story.engine.begin() as connection:
        connection.execute(text("ALTER TABLE ledger_entries DISABLE TRIGGER USER"))
        connection.execute(
            text(
                "UPDATE ledger_entries SET amount_microusd = amount_microusd + 7 WHERE id = "
                "(SELECT min(id::text)::uuid FROM ledger_entries WHERE project_id = :project)"
            ),
            {"project": project_id},
        )


def test_a_report_tells_when_the_books_were_compared(story: MoneyStory, checking: CheckBooks):
    project_id = booked_project(story, "alpha", 2)
    story.accrue(100)
    before = period(story, project_id)
    assert before.total_microusd > 0
    assert (before.books.difference_microusd, before.books.checked_at) == (0, None)
    assert (before.books.checked_microusd, before.books.checked_entries) == (0, 0)
    assert before.books.unchecked_microusd == before.total_microusd
    assert story.run(checking) == 1
    after = period(story, project_id)
    assert (after.books.difference_microusd, after.books.checked_at) == (0, story.time)
    assert story.run(checking) == 0


def test_a_pass_over_nothing_says_nothing_of_what_is_booked_later(
    story: MoneyStory, checking: CheckBooks
):
    """The check of an empty ledger once made every later report "closed"."""
    project_id = story.project("alpha")
    assert period(story, project_id).books.verdict is BooksVerdict.NOTHING_BOOKED
    story.run(checking)
    checked_at = story.time
    assert period(story, project_id).books.verdict is BooksVerdict.NOTHING_BOOKED
    job = story.job(project_id)
    machine = story.machine(job, 0)
    nobodys = story.machine(None, 0)
    story.accrue(100)
    first_at = story.time
    assert first_at > checked_at
    story.sleep(1)
    job_cost = story.reports.job_cost(job.id)
    assert job_cost is not None
    for found in (period(story, project_id), job_cost):
        assert found.books == BooksCheck(checked_at, 0, 0, story.booked(machine), 1, 0, first_at)
        assert found.books.verdict is BooksVerdict.NOT_CHECKED
    whole = period(story).books
    assert (whole.unchecked_microusd, whole.unchecked_entries) == (story.booked(), 2)
    assert whole.unchecked_from_at == first_at
    assert story.booked(nobodys) > 0


def test_what_was_booked_since_the_check_is_told_apart(story: MoneyStory, checking: CheckBooks):
    alpha, beta = story.project("alpha"), story.project("beta")
    jobs = [story.job(alpha, "a"), story.job(alpha, "b"), story.job(beta, "c")]
    ended, running, _ = [story.machine(job, 0) for job in jobs]
    story.accrue(100)
    before = story.booked(ended) + story.booked(running)
    story.sleep(1)
    story.run(checking)
    assert period(story, alpha).books.verdict is BooksVerdict.CLOSED
    # One machine's bill becomes final after the check: what is booked at its end is new all the
    # same.
    story.end(ended, 110)
    story.quote(120, [])
    story.accrue(161)
    assert story.fresh(ended).cost_final_at is not None
    found = period(story, alpha).books
    since = story.booked(ended) + story.booked(running) - before
    assert since > 0
    assert (found.checked_microusd, found.unchecked_microusd) == (before, since)
    assert found.verdict is BooksVerdict.PARTLY_CHECKED
    day = story.time.date()
    earlier = story.reports.period_costs(day - DAY, day - DAY)
    assert earlier.books.verdict is BooksVerdict.NOTHING_BOOKED
    story.sleep(check_books.BETWEEN_SMALL_PASSES.total_seconds())
    story.run(checking)
    assert period(story, alpha).books.verdict is BooksVerdict.CLOSED
    assert period(story, alpha).books.checked_microusd == before + since


def test_what_is_booked_before_a_check_and_committed_after_it_is_not_checked(
    story: MoneyStory, checking: CheckBooks
):
    """The pass could not see it, on a connection of its own, though it was booked in time."""
    alpha = story.project("alpha")
    machine = story.machine(story.job(alpha), 0)
    accruing = AccrueCosts(story.runtime)
    story.accrue(100)
    story.run(checking)
    before = story.booked(machine)
    assert period(story, alpha).books.verdict is BooksVerdict.CLOSED
    story.sleep(check_books.BETWEEN_SMALL_PASSES.total_seconds())
    with story.begin() as uow:
        [due] = accruing.select(uow, 10)
        accruing.apply(uow, due, None)
        uow.flush()
        assert story.run(checking) == 1
    found = period(story, alpha).books
    job_cost = story.reports.job_cost(due.job_id) if due.job_id else None
    assert job_cost is not None
    assert (job_cost.books.checked_microusd, job_cost.books.verdict) == (
        before,
        BooksVerdict.PARTLY_CHECKED,
    )
    assert (found.checked_microusd, found.verdict) == (before, BooksVerdict.PARTLY_CHECKED)
    assert found.unchecked_microusd == story.booked(machine) - before > 0
    story.sleep(check_books.BETWEEN_SMALL_PASSES.total_seconds())
    story.run(checking)
    assert period(story, alpha).books.verdict is BooksVerdict.CLOSED


def test_an_old_open_transaction_takes_nothing_back(story: MoneyStory, checking: CheckBooks):
    """What one pass has seen, the next one sees, however little it can be sure of itself."""
    alpha = booked_project(story, "alpha", 1)
    story.accrue(100)
    with story.engine.connect() as open_since_before:
        open_since_before.execute(select(books_differences))
        time.sleep(0.01)
        story.run(checking)
        first = period(story, alpha).books.checked_at
        assert first is not None
        assert first < story.time
        with story.begin() as uow:
            progress = uow.books.progress()
            assert progress is not None
            uow.books.save_progress(replace(progress, checked_at=story.time, next_at=story.time))
        story.run(checking)
        assert period(story, alpha).books.checked_at == story.time


def test_a_jobs_own_report_tells_its_own_difference(story: MoneyStory, checking: CheckBooks):
    alpha = story.project("alpha")
    jobs = [story.job(alpha, "a"), story.job(alpha, "b")]
    shared = story.machine(jobs[0], 0)
    story.assign(shared, jobs[1], None, story.after(50))
    story.accrue(100)
    execute(
        story.engine,
        "UPDATE cost_rollups SET amount_microusd = amount_microusd + 7 WHERE job_id = :a",
        a=jobs[0].id,
    )
    story.sleep(1)
    story.run(checking)
    reports = story.reports
    wrong, right = (reports.job_cost(job.id) for job in jobs)
    assert wrong is not None
    assert right is not None
    assert (wrong.books.difference_microusd, wrong.books.verdict) == (7, BooksVerdict.NOT_CLOSED)
    assert (right.books.difference_microusd, right.books.verdict) == (0, BooksVerdict.CLOSED)


def test_a_difference_is_found_shown_to_its_project_and_taken_back(
    story: MoneyStory, checking: CheckBooks
):
    alpha, beta = booked_project(story, "alpha", 2), booked_project(story, "beta", 1)
    story.accrue(100)
    falsify(story, alpha)
    story.run(checking)
    assert period(story).books.difference_microusd == -7
    assert period(story, alpha).books.difference_microusd == -7
    assert period(story, beta).books.difference_microusd == 0
    execute(
        story.engine,
        "UPDATE cost_rollups SET amount_microusd = amount_microusd + 7 WHERE "
        "rollup_key IN (SELECT rollup_key FROM books_differences) AND "
        "instance_id IN (SELECT instance_id FROM books_differences)",
    )
    story.sleep(check_books.BETWEEN_SMALL_PASSES.total_seconds() - 1)
    assert story.run(checking) == 0
    story.sleep(1)
    assert story.run(checking) == 1
    assert period(story, alpha).books.difference_microusd == 0
    assert rows_of(story.engine, books_differences) == []


def test_errors_that_even_out_are_found_all_the_same(story: MoneyStory, checking: CheckBooks):
    """Two machines whose rollups were exchanged: the sums of everything agree."""
    booked_project(story, "alpha", 2)
    story.accrue(100)
    with story.engine.begin() as connection:
        connection.execute(text("UPDATE cost_rollups SET amount_microusd = amount_microusd + "
                                "CASE WHEN instance_id = (SELECT min(instance_id::text)::uuid "
                                "FROM cost_rollups) THEN 5 ELSE -5 END"))  # fmt: skip
    story.run(checking)
    found = rows_of(story.engine, books_differences)
    assert sorted(row.rolled_up_microusd - row.booked_microusd for row in found) == [-5, 5]


def test_many_machines_are_compared_slice_by_slice(
    story: MoneyStory, checking: CheckBooks, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(check_books, "MACHINES_PER_SLICE", 2)
    project_id = booked_project(story, "alpha", 5)
    story.accrue(100)
    falsify(story, project_id)
    begun_at = story.time
    for _ in range(2):
        assert story.run(checking) == 1
        assert period(story).books.checked_at is None
        with story.begin() as uow:
            assert checking.next_due(uow) == story.time + check_books.BETWEEN_SLICES
        assert story.run(checking) == 0
        story.sleep(check_books.BETWEEN_SLICES.total_seconds())
    assert story.run(checking) == 1
    assert period(story).books.checked_at == begun_at
    assert period(story).books.difference_microusd == -7
    with story.begin() as uow:
        progress = uow.books.progress()
    assert progress is not None
    assert progress.checked_machines == 5
