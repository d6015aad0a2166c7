"""Reports from a real database: every table sums to what is booked, and a wrong sum is found."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest
from sqlalchemy import text, update

from app.domain.billing.cost_statement import Activity
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Contact, Instance, Job
from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.job import JobState
from app.domain.units.errors import InvalidValue
from app.storage.money.cost_figures import (
    UNALLOCATED,
    CostGroup,
    CostStatus,
    InstanceCost,
    Invoices,
    JobCost,
)
from app.storage.reports.job_facts import JobFilter
from app.storage.reports.page_read_models import PageReports
from app.storage.schema import tables
from tests.support.stories.money_story import ON_DEMAND_PRICE, POOL, PRICE, MoneyStory
from tests.support.stories.presence import present

DAY = date(2026, 3, 1)
A_SECOND = 1_000


def finish(story: MoneyStory, job: Job, seconds: float) -> None:
    """The job has ended, its machines too, and all that can be known is known."""
    story.set_job(job, state=JobState.SUCCEEDED, ended_at=story.after(seconds))
    story.quote(seconds + 6, [])
    story.accrue(seconds + 6)
    story.run(story.closing)


def report(story: MoneyStory, job: Job) -> JobCost:
    found = story.reports.job_cost(job.id)
    assert found is not None
    statement = found.statement
    for table in (statement.by_component, statement.by_activity, statement.by_instance):
        assert sum(table.values()) == statement.total_microusd == found.budget.spent_microusd
    assert sum(row.booked_microusd for row in found.instances) == statement.total_microusd
    for row in found.instances:
        assert sum(row.by_activity.values()) == row.booked_microusd
    return found


def nonzero(row: InstanceCost) -> dict[Activity, int]:
    return {activity: amount for activity, amount in row.by_activity.items() if amount}


def interrupted_job(story: MoneyStory) -> tuple[Job, list[Instance]]:
    """m1 works throughout, m2 is taken in its first hour, m3 replaces it.

    The first attempt trains steps 1 to 100; the second resumes at 80 and ends at 200.
    """
    job = story.job(story.project(), cap=5_000_000)
    first = story.attempt(job, 1, state="interrupted", best_step=100)
    second = story.attempt(job, 2, state="succeeded", parent_step=80, best_step=200)
    m1 = story.machine(job, 0, registered_at=story.after(20))
    story.assign(m1, job, first, story.after(20))
    m2 = story.machine(job, 0, attempt=first, registered_at=story.after(40))
    story.phases(
        m1, job,
        (10, "boot", None, None), (20, "setup", 1, None), (30, "restore", 1, None),
        (40, "train", 1, 0), (140, "checkpoint", 1, 100), (150, "drain", 1, 100),
        (160, "idle", None, None), (200, "restore", 2, None), (210, "train", 2, 80),
        (330, "checkpoint", 2, 200), (340, "idle", None, None),
    )  # fmt: skip
    story.accrue(130)
    story.assign(m1, job, None, story.after(160))
    story.end(m2, 160, EndedBy.CLOUD_INTERRUPTION)
    m3 = story.machine(job, 165, registered_at=story.after(195))
    story.assign(m3, job, second, story.after(195))
    story.assign(m1, job, second, story.after(195))
    story.accrue(300)
    story.end(m1, 350)
    story.end(m3, 350)
    return job, [m1, m2, m3]


def test_the_statement_of_an_interrupted_job(story: MoneyStory) -> None:
    job, machines = interrupted_job(story)
    assert report(story, job).status is CostStatus.ACCRUING
    finish(story, job, 350)
    found = report(story, job)
    assert found.status is CostStatus.FINAL
    assert [(row.label, row.instance_id) for row in found.instances] == [
        (f"m{number}", machine.id) for number, machine in enumerate(machines, 1)
    ]
    m1, m2, m3 = found.instances
    assert nonzero(m1) == {
        Activity.BOOT: 20 * A_SECOND,
        Activity.SETUP: 10 * A_SECOND,
        Activity.RESTORE: 20 * A_SECOND,
        Activity.USEFUL: 200 * A_SECOND,  # 100 s, then 100 of the 120 s of steps 81 to 200
        Activity.REWORK: 20 * A_SECOND,
        Activity.CHECKPOINT: 20 * A_SECOND,
        Activity.DRAIN: 10 * A_SECOND,
        Activity.IDLE: 50 * A_SECOND,
    }
    assert (m2.booked_microusd, m2.waived_microusd) == (0, 160 * A_SECOND)
    assert m2.ended_by == "cloud_interruption"
    assert nonzero(m3) == {Activity.BOOT: 185 * A_SECOND}  # its agent told nothing
    assert (m3.from_at, m3.to_at) == (story.after(165), story.after(350))
    assert m1.pool == POOL.key
    total = (350 + 185) * A_SECOND
    assert found.statement.total_microusd == total
    assert found.statement.waived_microusd == 160 * A_SECOND
    assert (found.budget.cap_microusd, found.budget.spent_microusd) == (5_000_000, total)
    # On demand costs three times as much; the first gang's machines were paid 40 s before
    # the first step.
    assert found.statement.on_demand_comparison_microusd == 3 * (200 + 40) * A_SECOND
    assert found.statement.rate_saved_ratio == Fraction(2, 3)
    assert found.unbilled == ()
    assert "disk" in found.not_metered
    assert "compute" not in found.not_metered
    # Had it failed, it would be compared with nothing, and only what it had saved was useful.
    story.set_job(job, state=JobState.FAILED, committed_step=150)
    failed = report(story, job).statement
    assert failed.by_activity[Activity.USEFUL] == 150 * A_SECOND
    assert (failed.on_demand_comparison_microusd, failed.net_saved_ratio) == (None, None)


def short_job(story: MoneyStory, name: str, state: AttemptState) -> tuple[Job, Instance]:
    """A command that tells no step: it began 1.2 s after its machine, and ended after 18 s."""
    job = story.job(story.project(name), name)
    attempt = story.attempt(job, state=state)
    machine = story.machine(job, 0, attempt=attempt)
    story.phases(machine, job, (1, "setup", 1, None), (1.2, "train", 1, None))
    story.end(machine, 18)
    return job, machine


def test_a_short_job_pays_the_minimum_and_so_would_on_demand(story: MoneyStory) -> None:
    job, _ = short_job(story, "plain", AttemptState.SUCCEEDED)
    finish(story, job, 18)
    found = report(story, job)
    [row] = found.instances
    assert nonzero(row) == {
        Activity.BOOT: A_SECOND,
        Activity.SETUP: A_SECOND // 5,
        Activity.USEFUL: 16_800,
        Activity.MINIMUM_CHARGE: 42 * A_SECOND,
    }
    assert found.statement.total_microusd == 60 * A_SECOND
    assert found.statement.on_demand_comparison_microusd == 3 * 60 * A_SECOND
    assert found.statement.net_saved_ratio == Fraction(2, 3)


def test_a_failed_job_has_saved_nothing_and_its_work_was_not_useful(story: MoneyStory) -> None:
    job, _ = short_job(story, "broken", AttemptState.FAILED)
    finish(story, job, 18)
    story.set_job(job, state=JobState.FAILED)
    statement = report(story, job).statement
    assert statement.by_activity[Activity.USEFUL] == 0
    assert statement.by_activity[Activity.REWORK] == 16_800
    assert statement.on_demand_comparison_microusd is None
    assert statement.net_saved_microusd is None
    assert statement.net_saved_ratio is None
    # A figure that an earlier release has kept is not listed either.
    story.set_job(job, on_demand_comparison_microusd=1)
    wanted = JobFilter(job.project_id, 10)
    [listed] = PageReports(story.engine).list_jobs(wanted, datetime.now(UTC))["items"]
    assert (listed["net_saved_microusd"], listed["net_saved_ratio"]) == (None, None)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("state", [AttemptState.RUNNING, AttemptState.INTERRUPTED])
def test_a_command_without_steps_has_lost_what_nothing_can_bring_back(
    story: MoneyStory, state: AttemptState, committed: bool
) -> None:
    job = story.job(story.project())
    saved_at = story.after(60) if committed else None
    machine = story.machine(job, 0, attempt=story.attempt(job, state=state, committed_at=saved_at))
    story.phases(machine, job, (10, "train", 1, None))
    story.accrue(100)
    lost = state is AttemptState.INTERRUPTED and not committed
    useful = report(story, job).statement.by_activity[Activity.USEFUL]
    assert useful == (0 if lost else 90 * A_SECOND)


def test_a_commands_start_up_is_no_work_and_on_demand_would_have_paid_it_once(
    story: MoneyStory,
) -> None:
    job = story.job(story.project())
    first = story.attempt(
        job, 1, state=AttemptState.INTERRUPTED, first_step=1, start_up_seconds=40.0, best_step=60
    )
    second = story.attempt(job, 2, parent_step=60, best_step=90)
    # Dearer on demand than the second one: the cheapest recorded price is what counts.
    m1 = story.machine(job, 0, attempt=first, on_demand_microusd_per_hour=2 * ON_DEMAND_PRICE)
    with story.engine.begin() as connection:  # asked for long before the cloud started it
        connection.execute(update(tables.instances).values(requested_at=story.after(-30)))
    story.phases(m1, job, (10, "train", 1, None))
    story.end(m1, 110)
    m2 = story.machine(job, 120, attempt=second)
    story.phases(m2, job, (130, "train", 2, None))
    with story.begin() as uow:
        uow.instances.add_contact(
            Contact(
                m2.id,
                "s",
                1,
                story.after(220),
                "train",
                fence=2,
                step=90,
                first_step=61,
                start_up_seconds=50.0,
            )
        )
    story.accrue(220)
    rows = [nonzero(row) for row in report(story, job).instances]
    assert rows == [
        {
            Activity.BOOT: 10 * A_SECOND,
            Activity.SETUP: 40 * A_SECOND,
            Activity.USEFUL: 60 * A_SECOND,
        },
        {
            Activity.BOOT: 10 * A_SECOND,
            Activity.SETUP: 50 * A_SECOND,
            Activity.USEFUL: 40 * A_SECOND,
        },
    ]
    statement = report(story, job).statement
    # 100 s of work, and the 50 s that the first machine took to its first step, once.
    assert statement.on_demand_comparison_microusd == 3 * (100 + 50) * A_SECOND
    lanes = PageReports(story.engine).timeline(job.id, story.after(220)).lanes
    assert [[span.phase.value for span in lane.spans] for lane in lanes] == [
        ["boot", "setup", "train"]
    ] * 2


def test_the_list_of_jobs_shows_the_final_statements_saving(story: MoneyStory) -> None:
    job, _ = interrupted_job(story)
    idle = story.job(job.project_id, "idle")
    pages = PageReports(story.engine)

    def saved() -> dict[str, tuple[int | None, float | None]]:
        items = pages.list_jobs(JobFilter(job.project_id, 10), datetime.now(UTC))["items"]
        return {one["name"]: (one["net_saved_microusd"], one["net_saved_ratio"]) for one in items}

    assert saved() == {"digits": (None, None), "idle": (None, None)}
    story.set_job(idle, state=JobState.CANCELLED, ended_at=story.after(10))
    finish(story, job, 350)
    statement = report(story, job).statement
    assert statement.net_saved_microusd is not None
    assert statement.net_saved_ratio is not None
    found = saved()
    assert found["digits"][0] == statement.net_saved_microusd
    assert found["digits"][1] == pytest.approx(float(statement.net_saved_ratio), abs=1e-6)
    assert found["idle"] == (None, None)

    story.set_job(job, cost_final_at=None)
    assert saved()["digits"] == (None, None)


def test_the_clouds_own_bill_makes_a_final_report_reconciled(story: MoneyStory) -> None:
    job, machines = interrupted_job(story)
    bill = {present(machine.provider_instance_id): {"compute": 0} for machine in machines}
    bill[present(machines[0].provider_instance_id)] = {"compute": 350 * A_SECOND}
    bill[present(machines[2].provider_instance_id)] = {"compute": 185 * A_SECOND}

    def status(invoices: Invoices) -> CostStatus:
        return present(story.reports.job_cost(job.id, invoices)).status

    assert status({"local": bill}) is CostStatus.ACCRUING
    finish(story, job, 350)
    assert status({"local": bill}) is CostStatus.RECONCILED
    bill[present(machines[2].provider_instance_id)] = {"compute": 185 * A_SECOND - 1}
    assert status({"local": bill}) is CostStatus.FINAL
    assert status({}) is CostStatus.FINAL


def test_a_job_without_machines_and_one_that_is_unknown(story: MoneyStory) -> None:
    job = story.job(story.project(cap=77), state=JobState.QUEUED)
    found = report(story, job)
    assert (found.status, found.instances) == (CostStatus.ACCRUING, ())
    assert found.project_budget is not None
    assert found.project_budget.cap_microusd == 77
    assert found.statement.on_demand_comparison_microusd is None
    assert (found.budget.cap_microusd, found.budget.spent_microusd) == (None, 0)
    assert story.reports.job_cost(story.entropy.new_id()) is None


def test_a_machine_without_a_price_is_named(story: MoneyStory) -> None:
    job = story.job(story.project())
    machine = story.machine(job, -3600)
    story.accrue(100)
    found = report(story, job)
    assert found.unbilled == (machine.id,)
    assert [row.booked_microusd for row in found.instances] == [0]
    assert story.reports.verify().unbilled == (machine.id,)
    assert not story.reports.verify().closed
    assert story.reports.period_costs(DAY, DAY).unbilled == (machine.id,)


def test_a_job_pays_for_its_own_time_on_a_shared_machine(story: MoneyStory) -> None:
    project = story.project()
    first, second = story.job(project, "a"), story.job(project, "b")
    machine = story.machine(first)
    story.assign(machine, second, None, story.after(100))
    story.accrue(160)
    story.end(machine, 150, EndedBy.CLOUD_INTERRUPTION)
    assert report(story, first).statement.total_microusd == 100 * A_SECOND
    assert report(story, second).statement.total_microusd == 60 * A_SECOND
    story.quote(170, [])
    story.accrue(170)
    for job, waived in ((first, 100), (second, 50)):
        statement = report(story, job).statement
        assert (statement.total_microusd, statement.waived_microusd) == (0, waived * A_SECOND)


def test_a_period_closes_over_every_grouping(story: MoneyStory) -> None:
    alpha, beta = story.project("alpha"), story.project("beta")
    jobs = [
        story.job(alpha, "a", labels={"team": "vision"}),
        story.job(alpha, "b", labels={"team": "speech"}),
        story.job(beta, "c"),
    ]
    for number, job in enumerate(jobs):
        story.machine(job, 100 * number)
    story.machine(None)
    story.quote(43_200, [(43_000, 2 * PRICE)])
    story.accrue(50_000)  # into the next day
    expected = {
        CostGroup.PROJECT: {"alpha", "beta"},
        CostGroup.JOB: {"a", "b", "c"},
        CostGroup.LABEL: {"vision", "speech", "(no label)"},
        CostGroup.POOL: {POOL.key},
        CostGroup.GPU: {"V100"},
    }
    whole = story.booked()
    for group, names in expected.items():
        label = "team" if group is CostGroup.LABEL else None
        found = story.reports.period_costs(DAY, DAY + timedelta(1), group, label=label)
        assert {row.name for row in found.rows[:-1]} == names
        assert found.total_microusd == sum(row.amount_microusd for row in found.rows) == whole
        assert found.books.difference_microusd == 0
        assert sum(found.by_day.values()) == sum(found.by_status.values()) == whole
        assert list(found.by_day) == [DAY, DAY + timedelta(1)]
        assert found.rows[-1].key == UNALLOCATED
        assert found.rows[-1].amount_microusd == whole - sum(
            report(story, job).statement.total_microusd for job in jobs
        )
        one_day = story.reports.period_costs(DAY, DAY, group, label=label)
        assert one_day.total_microusd == found.by_day[DAY] < whole
        assert one_day.books.difference_microusd == 0
        only = story.reports.period_costs(
            DAY, DAY + timedelta(1), group, label=label, project_id=beta
        )
        assert only.total_microusd == report(story, jobs[2]).statement.total_microusd
        assert only.rows[-1].amount_microusd == only.books.difference_microusd == 0


def test_a_period_without_costs_still_prints_what_is_unallocated(story: MoneyStory) -> None:
    found = story.reports.period_costs(DAY, DAY)
    assert [(row.key, row.amount_microusd) for row in found.rows] == [(UNALLOCATED, 0)]
    assert (found.total_microusd, found.books.difference_microusd) == (0, 0)
    assert story.reports.cost_lines(DAY, DAY) == []


def test_a_period_that_cannot_be_is_refused(story: MoneyStory) -> None:
    with pytest.raises(InvalidValue, match="ends before it begins"):
        story.reports.period_costs(DAY, DAY - timedelta(1))
    with pytest.raises(InvalidValue, match="needs the label's name"):
        story.reports.period_costs(DAY, DAY, CostGroup.LABEL)
    with pytest.raises(InvalidValue, match="ends before it begins"):
        story.reports.cost_lines(DAY, DAY - timedelta(1))


def test_verifying_finds_nothing_where_nothing_is_wrong(story: MoneyStory) -> None:
    job, _ = interrupted_job(story)
    story.machine(None)
    finish(story, job, 350)
    found = story.reports.verify()
    assert found.closed
    assert (found.machines, found.invoiced, found.booked_microusd) == (4, 0, story.booked())
    assert (found.without_invoice, found.open) == (4, 0)
    assert story.reports.verify(job_id=job.id).machines == 3


def test_verifying_finds_a_wrong_entry_rollup_and_budget(story: MoneyStory) -> None:
    job, machines = interrupted_job(story)
    finish(story, job, 350)
    with story.engine.begin() as connection:
        connection.execute(text("ALTER TABLE ledger_entries DISABLE TRIGGER USER"))
        connection.execute(
            text(
                "UPDATE ledger_entries SET amount_microusd = amount_microusd + 1 WHERE id = "
                "(SELECT min(id::text)::uuid FROM ledger_entries WHERE instance_id = :machine)"
            ),
            {"machine": machines[2].id},
        )
    found = story.reports.verify().differences
    assert [(one.instance_id, one.difference_microusd) for one in found] == [
        (machines[2].id, 1), (None, 1), (None, 1),
    ]  # fmt: skip
    assert "differs from the bill recalculated" in found[0].what
    assert "rollup" in found[1].what
    assert str(job.id) in found[2].what
    assert [one.what for one in story.reports.verify(job_id=job.id).differences] == [
        one.what for one in found
    ]


def test_what_was_just_learned_is_no_difference_until_the_bill_is_final(story: MoneyStory) -> None:
    machine = story.machine(story.job(story.project()))
    story.accrue(100)
    story.quote(101, [(50, 2 * PRICE)])
    found = story.reports.verify()
    assert (found.revised, found.differences) == (1, ())
    story.end(machine, 120)
    story.quote(130, [])
    story.accrue(130)
    found = story.reports.verify()
    assert (found.revised, found.differences) == (0, ())
    story.quote(131, [(60, 3 * PRICE)])
    found = story.reports.verify()
    assert found.revised == 0
    assert [one.difference_microusd for one in found.differences] == [-60 * A_SECOND]


def test_verifying_against_the_clouds_own_bill(story: MoneyStory) -> None:
    job = story.job(story.project())
    ended, running = story.machine(job), story.machine(job)
    story.accrue(61)
    story.end(ended, 70)
    story.quote(80, [])
    story.accrue(80)
    ended_id, running_id = (present(one.provider_instance_id) for one in (ended, running))
    bill = {
        ended_id: {"compute": 70 * A_SECOND},
        running_id: {"compute": 1},  # it runs: the bills are not comparable
        "i-nobody": {"compute": 0},
    }
    assert story.reports.verify({"local": bill}).closed
    found_now = story.reports.verify({"local": bill})
    assert (found_now.invoiced, found_now.open, found_now.without_invoice) == (1, 1, 0)
    bill[ended_id] = {"compute": 70 * A_SECOND + 2, "disk": 5}
    bill["i-stranger"] = {"compute": 9}
    found = story.reports.verify({"local": bill}).differences
    assert [(one.component, one.difference_microusd) for one in found] == [
        ("compute", -2), ("disk", -5), (None, -9),
    ]  # fmt: skip
    assert "i-stranger" in found[2].what
