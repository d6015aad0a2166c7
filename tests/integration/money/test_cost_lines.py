"""The lines of a period from a real database: they add up to its report, cell by cell."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, timedelta
from fractions import Fraction

import pytest

from app.domain.billing.billing import Component
from app.domain.billing.cost_statement import Activity
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Contact
from app.domain.lifecycle.job import JobState
from app.domain.market.attachments import Attachments, AttachmentsDocument
from app.domain.units.errors import InvalidValue
from app.storage.money import cost_lines
from app.storage.money.cost_figures import CostGroup, CostLine, CostStatus
from tests.support.stories.money_story import POOL, START, MoneyStory

DAY = date(2026, 3, 1)
NEXT = DAY + timedelta(days=1)
A_SECOND = 1_000


def attached() -> AttachmentsDocument:
    """A disk of 73 GB at $0.10 per GB-month, and a public address at $0.0036 an hour."""
    return Attachments(
        disk_gb=73, disk_microusd_per_gb_month=100_000, public_ip_microusd_per_hour=3_600,
        source="list", captured_at=START,
    ).to_json()  # fmt: skip


def by_cell(lines: list[CostLine]) -> dict[tuple[Component, Activity], CostLine]:
    found = {(line.component, line.activity): line for line in lines}
    assert len(found) == len(lines)
    return found


def test_a_machines_day_is_told_by_component_and_activity(story: MoneyStory) -> None:
    job = story.job(story.project("alpha"), "digits", labels={"team": "nlp"})
    machine = story.machine(job, 0, attachments=attached())
    story.phases(machine, job, (12, "train", 1, 0))
    with story.begin() as uow:
        uow.traffic.add_transfer(
            machine.id, 1, story.after(5), 2**30, estimated=False, microusd_per_gb=20_000,
            source="list", captured_at=START,
        )  # fmt: skip
    story.accrue(20)
    story.end(machine, 24)
    story.quote(30, [])
    story.accrue(30)
    lines = story.reports.cost_lines(DAY, DAY)
    found = by_cell(lines)
    computed = {
        activity: (line.amount_microusd, line.hours * 3600)
        for (component, activity), line in found.items()
        if component is Component.COMPUTE
    }
    assert computed == {
        Activity.BOOT: (12 * A_SECOND, Fraction(12)),
        Activity.USEFUL: (12 * A_SECOND, Fraction(12)),
        Activity.MINIMUM_CHARGE: (36 * A_SECOND, Fraction(36)),
    }
    disk = found[Component.DISK, Activity.USEFUL]
    assert disk.hours == Fraction(12, 3600)
    assert disk.quantity == Fraction(12, 3600) * Fraction(73, 730)
    egress = found[Component.EGRESS, Activity.EGRESS]
    assert egress.amount_microusd == 20_000
    assert (egress.quantity, egress.hours) == (Fraction(1), Fraction(0))
    whole = story.reports.period_costs(DAY, DAY).total_microusd
    assert sum(line.amount_microusd for line in lines) == whole == story.booked()
    [head] = {
        (line.day, line.job, line.project, line.provider, line.pool, line.provider_instance_id)
        for line in lines
    }
    assert head == (DAY, "digits", "alpha", "local", POOL, machine.provider_instance_id)
    assert {line.labels["team"] for line in lines} == {"nlp"}
    assert {line.status for line in lines} == {CostStatus.FINAL}


def test_a_bill_whose_clock_runs_faster_is_compared_with_one_that_does_too(
    story: MoneyStory,
) -> None:
    """As in a demonstration: on-demand's seconds would have been minutes, too."""
    job = story.job(story.project("alpha"), "digits")
    story.set_job(job, node_count=2)
    machine = story.machine(job, 0, billing_speed=60)
    story.phases(machine, job, (2, "train", 1, 0))
    story.end(machine, 10)
    story.quote(16, [])
    story.accrue(16)
    found = by_cell(story.reports.cost_lines(DAY, DAY))
    assert {
        activity: (line.amount_microusd, line.hours * 3600) for (_, activity), line in found.items()
    } == {
        Activity.BOOT: (120 * A_SECOND, Fraction(120)),
        Activity.USEFUL: (480 * A_SECOND, Fraction(480)),
    }
    report = story.reports.job_cost(job.id)
    assert report is not None
    # Two machines would have shared the 8 s of work, and each would have begun for 2 s.
    assert report.statement.on_demand_comparison_microusd == 3 * 2 * 60 * (4 + 2) * A_SECOND
    assert report.billing_speed == report.instances[0].billing_speed == 60
    assert story.reports.period_costs(DAY, DAY).billing_speed == 60
    before = DAY - timedelta(days=9)
    assert story.reports.period_costs(before, before).billing_speed == 1


def test_the_minimum_is_added_once_where_a_short_run_spans_two_hours(story: MoneyStory) -> None:
    job = story.job(story.project("alpha"), "digits")
    machine = story.machine(job, 3_590)
    story.phases(machine, job, (3_590, "train", 1, 0))
    story.end(machine, 3_610)
    story.quote(3_616, [])
    story.accrue(3_616)
    found = by_cell(story.reports.cost_lines(DAY, DAY))
    assert {
        activity: (line.amount_microusd, line.hours * 3600) for (_, activity), line in found.items()
    } == {
        Activity.USEFUL: (20 * A_SECOND, Fraction(20)),
        Activity.MINIMUM_CHARGE: (40 * A_SECOND, Fraction(40)),
    }


def test_lines_add_up_over_days_projects_and_what_nobody_pays(
    story: MoneyStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_lines, "MACHINES_PER_PAGE", 2)
    alpha, beta = story.project("alpha"), story.project("beta")
    jobs = [story.job(alpha, "a"), story.job(alpha, "b"), story.job(beta, "0")]
    shared = story.machine(jobs[0], 0)
    story.assign(shared, jobs[2], None, story.after(100))
    with story.begin() as uow:
        for number in (1, 2):
            uow.traffic.add_transfer(
                shared.id, number, story.after(80 * number), number * 2**30, estimated=False,
                microusd_per_gb=20_000, source="list", captured_at=START,
            )  # fmt: skip
    for number, job in enumerate(jobs):
        story.machine(job, 100 * number)
    story.machine(None)
    story.quote(43_200)
    story.accrue(50_000)  # into the next day
    lines = story.reports.cost_lines(DAY, NEXT)
    assert lines == sorted(lines, key=lambda line: (line.day, line.project or "", line.job or ""))
    of_day: dict[date, int] = defaultdict(int)
    of_job: dict[str | None, int] = defaultdict(int)
    for line in lines:
        of_day[line.day] += line.amount_microusd
        of_job[line.job] += line.amount_microusd
    report = story.reports.period_costs(DAY, NEXT)
    assert of_day == report.by_day
    assert {name or "unallocated": amount for name, amount in of_job.items()} == {
        row.name: row.amount_microusd for row in report.rows
    }
    moved = {line.job: line.quantity for line in lines if line.component is Component.EGRESS}
    assert moved == {"a": 1, "0": 2}
    one_day = story.reports.cost_lines(NEXT, NEXT)
    assert one_day == [line for line in lines if line.day == NEXT]
    only = story.reports.cost_lines(DAY, NEXT, project_id=beta)
    assert only == [line for line in lines if line.project == "beta"]


def test_a_job_beside_one_that_started_slowly_has_the_activities_of_its_own_report(
    story: MoneyStory,
) -> None:
    project = story.project()
    quick, slow = story.job(project, "quick"), story.job(project, "slow")
    for job, start_up in ((quick, None), (slow, 50.0)):
        attempt = story.attempt(job, 1, state=AttemptState.SUCCEEDED)
        machine = story.machine(job, 0, attempt=attempt)
        story.phases(machine, job, (10, "train", 1, None))
        contact = Contact(
            machine.id, "s", 1, story.after(90), "train", fence=1, start_up_seconds=start_up
        )
        with story.begin() as uow:
            uow.instances.add_contact(contact)
    story.accrue(100)
    lines = story.reports.cost_lines(DAY, DAY)
    for job in (quick, slow):
        found = story.reports.job_cost(job.id)
        assert found is not None
        told = {name: amount for name, amount in found.statement.by_activity.items() if amount}
        assert told == {one.activity: one.amount_microusd for one in lines if one.job == job.name}
    assert {one.activity for one in lines if one.job == "quick"} == {Activity.BOOT, Activity.USEFUL}


def test_seconds_that_nobody_was_assigned_are_lines_of_their_own(story: MoneyStory) -> None:
    machine = story.machine(story.job(story.project(), "a"), 0)
    with story.begin() as uow:
        [span] = uow.instances.assignments(machine.id)
        span.to_at = story.after(60)
    story.accrue(100)
    found = {line.job: line for line in story.reports.cost_lines(DAY, DAY)}
    assert (found["a"].hours, found["a"].amount_microusd) == (Fraction(60, 3600), 60 * A_SECOND)
    rest = found[None]
    assert (rest.hours, rest.amount_microusd) == (Fraction(40, 3600), 40 * A_SECOND)
    assert (rest.project, rest.labels) == (None, {})
    assert {line.status for line in found.values()} == {CostStatus.ACCRUING}
    story.end(machine, 110)
    assert {line.status for line in story.reports.cost_lines(DAY, DAY)} == {CostStatus.PROVISIONAL}


def test_hours_without_a_cost_are_a_line_unless_six_decimals_show_none_of_them(
    story: MoneyStory,
) -> None:
    """A disk of 1 GB costs 0.04 micro-dollars in a second: hours alone tell of that second."""
    small = Attachments(
        disk_gb=1, disk_microusd_per_gb_month=100_000, public_ip_microusd_per_hour=0,
        source="list", captured_at=START,
    ).to_json()  # fmt: skip
    job = story.job(story.project("alpha"), "digits")
    seen, unseen = (story.machine(job, 0, attachments=small) for _ in range(2))
    story.phases(seen, job, (1, "train", 1, 0))
    story.phases(unseen, job, (0.001, "train", 1, 0))
    story.accrue(3_600)
    told = {
        (line.provider_instance_id, line.activity): line
        for line in story.reports.cost_lines(DAY, DAY)
        if line.component is Component.DISK
    }
    boot = told[seen.provider_instance_id, Activity.BOOT]
    assert (boot.amount_microusd, round(boot.quantity * 1_000_000)) == (0, 0)
    assert boot.hours == Fraction(1, 3_600)
    assert (unseen.provider_instance_id, Activity.BOOT) not in told
    assert {activity for _, activity in told} == {Activity.BOOT, Activity.USEFUL}


def test_too_many_lines_are_refused(story: MoneyStory, monkeypatch: pytest.MonkeyPatch) -> None:
    story.machine(story.job(story.project()), 0)
    story.accrue(100)
    monkeypatch.setattr(cost_lines, "LINES_MAX", 0)
    with pytest.raises(InvalidValue, match="give a shorter period"):
        story.reports.cost_lines(DAY, DAY)
    with pytest.raises(InvalidValue, match="ends before it begins"):
        story.reports.cost_lines(NEXT, DAY)


def test_a_job_is_as_firm_as_the_machines_that_the_period_counts(story: MoneyStory) -> None:
    job = story.job(story.project())
    machine = story.machine(job, 0)
    story.phases(machine, job, (10, "train", 1, 0))
    story.accrue(60)
    story.end(machine, 100)
    story.quote(106, [])
    story.accrue(106)
    for state, told in (
        (JobState.PAUSED, CostStatus.FINAL),
        (JobState.SUCCEEDED, CostStatus.FINAL),  # before its own cost is closed, too
        (JobState.RECOVERING, CostStatus.ACCRUING),  # it may rent another machine
    ):
        ended_at = story.after(100) if state is JobState.SUCCEEDED else None
        story.set_job(job, state=state, ended_at=ended_at)
        found = story.reports.job_cost(job.id)
        assert found is not None
        assert (found.status, found.instances[0].status) == (told, CostStatus.FINAL)
    by_status = story.reports.period_costs(DAY, DAY, CostGroup.JOB).by_status
    assert {status for status, amount in by_status.items() if amount} == {CostStatus.FINAL}
