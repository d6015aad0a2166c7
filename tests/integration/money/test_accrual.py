"""Booking in a real database: the ledger is the bill, however often it is closed."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from app.api.jobs.job_document import job_document
from app.cli.client.job_view import money
from app.domain.billing.machine_rating import RatedMachine
from app.domain.lifecycle.entities import Instance, Job
from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.domain.lifecycle.instance import EndedBy, InstanceState
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Offer
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import apply_phase, run_controller
from app.orchestration.market.refresh_prices import RefreshPrices
from app.orchestration.money.accrue_costs import DueBill
from app.orchestration.transitions.lose_instances import record_end
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.ports.price_source import PriceChange
from app.storage.money.cost_read_models import CostReports
from app.storage.money.money_repository import Billing
from app.storage.reports.job_facts import JobFilter
from app.storage.reports.job_read_models import JobReports
from app.storage.reports.page_read_models import PageReports
from tests.support.stories.money_story import LIMITS, POOL, PRICE, MoneyStory, locked_budgets
from tests.support.stories.presence import present


@pytest.fixture
def story(engine: Engine) -> MoneyStory:
    return MoneyStory(engine)


def test_every_sum_of_money_is_the_bill(story: MoneyStory) -> None:
    project = story.project(cap=10**9)
    job = story.job(project, cap=10**9)
    story.quote()
    first, second = story.machine(job), story.machine(job, 30)
    for seconds in (61, 130, 3500, 3700, 9000):
        story.quote(seconds, [(seconds - 7, PRICE + seconds)])
        story.accrue(seconds)
    story.end(first, 9000.4)
    story.end(second, 8800)
    story.quote(9010, [])
    story.accrue(9020)
    total = 0
    with story.begin() as uow:
        for machine in (first, second):
            stored = present(uow.instances.get(machine.id))
            rated = RatedMachine.of(
                stored,
                uow.instances.assignments(machine.id),
                uow.offers.price_points(present(stored.pool), stored.launched_at),
            )
            owed = sum(line.amount_microusd for line in rated.lines(story.time))
            assert story.booked(machine) == owed > 0
            assert stored.cost_final_at == story.time
            total += owed
    assert story.rolled_up() == story.booked() == total
    assert story.budget(job).spent_microusd == total
    assert story.project_budget(project).spent_microusd == total


def test_entries_name_who_pays_and_why(story: MoneyStory) -> None:
    project = story.project()
    job = story.job(project)
    attempt = story.attempt(job)
    story.quote()
    machine = story.machine(job)
    story.assign(machine, job, attempt, story.after(30))
    story.accrue(90)
    idle, working = story.ledger()
    assert (idle.amount_microusd, idle.attempt_id) == (30_000, None)
    assert (working.amount_microusd, working.attempt_id) == (60_000, attempt.id)
    assert {idle.job_id, working.job_id} == {job.id}
    assert {idle.project_id, working.project_id} == {project}
    assert (idle.rule_id, idle.price_source, idle.estimated) == ("ec2", "trace", False)
    assert idle.booked_at == story.time


def test_a_machine_is_due_each_period_and_when_it_ends(story: MoneyStory) -> None:
    story.quote()
    machine = story.machine(story.job(story.project()))
    billing = Billing(60, 5)

    def next_due() -> float | None:
        with story.begin() as uow:
            due = uow.instances.next_billable_at(billing)
        return None if due is None else (due - story.after(0)).total_seconds()

    assert next_due() == 60
    story.go_to(59)
    assert run_controller(story.runtime, story.accruing) == 0
    story.accrue(61)
    assert next_due() == 121
    story.end(machine, 70)
    assert next_due() == 70
    story.accrue(71)
    assert story.booked() == 70_000
    assert next_due() is None  # its prices up to the end are not known yet
    story.quote(72, [])
    assert next_due() == 75
    story.accrue(75)
    assert story.fresh(machine).cost_final_at == story.time
    assert next_due() is None


def test_prices_of_another_region_close_no_bill(story: MoneyStory) -> None:
    story.quote()
    machine = story.machine(story.job(story.project()))
    story.end(machine, 70)
    story.accrue(71)
    with story.begin() as uow:
        (known,) = [offer for offer, _ in uow.offers.all() if offer.pool == POOL]
        there = replace(POOL, region="us-east-1", zone="us-east-1a")
        elsewhere = replace(known, pool=there, quoted_at=story.after(80))
        uow.offers.record([elsewhere], [], story.after(80))
    story.accrue(90)
    assert story.fresh(machine).cost_final_at is None
    story.quote(91, [])
    story.accrue(95)
    assert story.fresh(machine).cost_final_at == story.time


def test_a_region_that_is_quoted_no_more_holds_up_no_final_bill(story: MoneyStory) -> None:
    story.quote()
    machine = story.machine(story.job(story.project()))
    story.end(machine, 70)
    story.accrue(71)
    late = story.after(70) + timedelta(days=1)
    with story.begin() as uow:
        (known,) = [offer for offer, _ in uow.offers.all() if offer.pool == POOL]
        there = replace(POOL, region="us-east-1", zone="us-east-1a")
        uow.offers.record([replace(known, pool=there, quoted_at=late)], [], late)
    story.time = late
    run_controller(story.runtime, story.accruing)
    assert story.fresh(machine).cost_final_at == late


def test_an_end_that_lies_before_what_is_booked_is_booked_at_once(story: MoneyStory) -> None:
    job = story.job(story.project())
    story.quote()
    machine = story.machine(job)
    story.accrue(200)
    assert story.booked() == 200_000
    actor = Actor(ActorKind.CLOUD, "test")
    with story.begin() as uow, open_job(uow, story.entropy, job.id, actor) as aggregate:
        assert aggregate is not None
        stored = present(uow.instances.get(machine.id))
        aggregate.adopt(stored)
        record_end(
            aggregate,
            stored,
            ended_at=story.after(190),
            ended_source="provider_record",
            ended_by=EndedBy.US,
            limits=LIMITS,
        )
    # Prices of after the end may be an hour away.
    story.accrue(201)
    assert story.booked() == 190_000


def listed(story: MoneyStory, job: Job) -> Mapping[str, Any]:
    """The job's row in the list of jobs."""
    wanted = JobFilter(job.project_id, 1, ids=(job.id,))
    [row] = PageReports(story.engine).list_jobs(wanted, story.now())["items"]
    return dict(row)


def test_a_cost_that_falls_is_told_in_the_history_and_beside_the_money(story: MoneyStory) -> None:
    """The second machine was booked for 130 s when the cloud took it after 160 s."""
    job = story.job(story.project(), cap=5_000_000)
    story.quote()
    story.machine(job)
    taken = story.machine(job)
    story.accrue(130)
    jobs = JobReports(story.engine)
    before = job_document(jobs.job(job.id), story.now())["money"]
    assert (before["spent_microusd"], before["waived_microusd"]) == (260_000, 0)
    assert listed(story, job)["waived"] is False
    story.end(taken, 160, EndedBy.CLOUD_INTERRUPTION)
    story.accrue(200)
    story.accrue(260)
    assert listed(story, job)["waived"] is True
    [told] = [one for one in jobs.events(job.id, 0, 100) if one["kind"] == JobEventKind.COST_WAIVED]
    assert (told["noun_id"], told["machine"]) == (taken.id, "m2")
    assert told["data"] == {"waived_microusd": 160_000}
    assert "does not charge for its time: $0.160" in told["message"]
    shown = job_document(jobs.job(job.id), story.now())["money"]
    found = CostReports(story.engine).job_cost(job.id)
    assert found is not None
    assert shown["spent_microusd"] == found.statement.total_microusd == 260_000
    assert shown["waived_microusd"] == found.statement.waived_microusd == 160_000
    assert found.instances[1].waived_microusd == 160_000
    assert money(shown) == "$0.260 of $5.00, $3.600/h, $0.160 waived"


def test_a_waiver_gives_back_what_was_booked(story: MoneyStory) -> None:
    job = story.job(story.project(), cap=10**9)
    story.quote()
    machine = story.machine(job)
    story.accrue(600)
    assert story.budget(job).spent_microusd == 600_000
    story.end(machine, 700, EndedBy.CLOUD_INTERRUPTION)
    story.quote(710, [])
    story.accrue(710)
    assert story.booked() == story.rolled_up() == story.budget(job).spent_microusd == 0
    assert [entry.reason for entry in story.ledger()] == [None, "waiver"]


def test_a_price_learned_late_moves_the_past_before_the_bill_is_final(story: MoneyStory) -> None:
    story.quote()
    machine = story.machine(story.job(story.project()))
    story.accrue(120)
    story.end(machine, 180)
    story.accrue(200)
    assert story.booked() == 180_000
    assert story.fresh(machine).cost_final_at is None
    story.quote(201, [(90, 2 * PRICE)])
    story.accrue(201)
    assert story.booked() == 90_000 + 2 * 90_000
    assert story.fresh(machine).cost_final_at == story.time
    assert "price_revised" in [entry.reason for entry in story.ledger()]


def test_a_machine_without_a_price_waits_and_is_not_lost(
    story: MoneyStory, caplog: pytest.LogCaptureFixture
) -> None:
    machine = story.machine(story.job(story.project()))
    story.accrue(600)
    assert story.ledger() == []
    assert "runs unbilled" in caplog.text
    with story.begin() as uow:
        assert [one.id for one in uow.instances.unpriced(10)] == [machine.id]
    story.quote(601)
    story.accrue(602)
    assert story.booked() == 602_000
    with story.begin() as uow:
        assert uow.instances.unpriced(10) == []


@pytest.mark.parametrize("cloud", [None, "elsewhere"])
def test_a_machine_of_an_unknown_cloud_waits_as_well(story: MoneyStory, cloud: str | None) -> None:
    story.quote()
    machine = story.machine(story.job(story.project()), cloud=cloud)
    story.accrue(600)
    assert story.ledger() == []
    with story.begin() as uow:
        assert [one.id for one in uow.instances.unpriced(10)] == [machine.id]


def test_a_machine_that_never_ran_costs_nothing_and_is_final_at_once(story: MoneyStory) -> None:
    job = story.job(story.project(), cap=10**9)
    story.quote()
    refused = story.machine(job, None, pool=None, state=InstanceState.LAUNCH_FAILED)
    with story.begin() as uow:
        for budget in locked_budgets(uow, job):
            budget.reserved_microusd = 123
    story.accrue(1)
    assert story.fresh(refused).cost_final_at == story.time
    assert story.ledger() == []
    assert story.budget(job).reserved_microusd == 0


def test_an_end_before_the_start_pays_the_minimum(story: MoneyStory) -> None:
    story.quote()
    machine = story.machine(story.job(story.project()), 10)
    story.end(machine, 9.5)
    story.quote(20, [])
    story.accrue(20)
    (entry,) = story.ledger()
    assert (entry.amount_microusd, entry.reason) == (60_000, "minimum")
    assert entry.job_id is not None
    assert story.fresh(machine).cost_final_at is not None


def test_an_orphan_of_nobody_is_booked_to_nobody(story: MoneyStory) -> None:
    project = story.project(cap=10**9)
    story.quote()
    orphan = story.machine(None, origin="adopted")
    story.accrue(100)
    (entry,) = story.ledger(orphan)
    assert (entry.amount_microusd, entry.job_id, entry.project_id) == (100_000, None, None)
    assert story.project_budget(project).spent_microusd == 0
    assert story.rolled_up() == 100_000


def test_two_workers_book_a_machine_once(story: MoneyStory) -> None:
    job = story.job(story.project(cap=10**9), cap=10**9)
    story.quote()
    machine = story.machine(job)
    orphan = story.machine(None)
    for seconds in range(61, 1200, 61):
        story.go_to(seconds)
        start = threading.Barrier(4)

        def close(work: DueBill, start: threading.Barrier = start) -> None:
            start.wait(60)
            apply_phase(story.runtime, story.accruing, work, None)

        works = [DueBill(machine.id, job.id), DueBill(orphan.id, None)] * 2
        threads = [threading.Thread(target=close, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert story.booked(machine) == story.booked(orphan) == seconds * 1000
    assert story.budget(job).spent_microusd == story.booked(machine)


def test_a_locked_job_is_left_for_the_next_run(story: MoneyStory) -> None:
    job = story.job(story.project())
    story.quote()
    story.machine(job)
    story.go_to(100)
    with story.begin() as uow:
        uow.jobs.lock(job.id)
        assert run_controller(story.runtime, story.accruing) == 1
        assert story.ledger() == []
    story.accrue(100)
    assert story.booked() == 100_000


def test_a_loaded_budget_shows_what_was_appended_after_its_lock(story: MoneyStory) -> None:
    job = story.job(story.project(cap=10**9), cap=10**9)
    story.quote()
    story.machine(job)
    story.accrue(100)
    (entry,) = story.ledger()
    with story.begin() as uow:
        budgets = locked_budgets(uow, job)
        row = entry._asdict() | {"id": story.entropy.new_id(), "amount_microusd": 11}
        uow.money.append_entries([row])
        assert [budget.spent_microusd for budget in budgets] == [100_011, 100_011]
        budgets[1].reserved_microusd = 7
    assert story.budget(job).spent_microusd == 100_011
    assert story.budget(job).reserved_microusd == 7


def test_a_job_is_closed_when_all_its_machines_are_and_opened_by_a_late_one(
    story: MoneyStory,
) -> None:
    job = story.job(story.project())
    story.quote()
    machine = story.machine(job)
    story.set_job(job, state=JobState.SUCCEEDED, ended_at=story.after(100))
    story.end(machine, 100)
    story.accrue(101)
    assert story.run(story.closing) == 0
    story.quote(110, [])
    story.accrue(110)
    assert story.run(story.closing) == 1
    assert story.fresh(job).cost_final_at == story.time

    late = story.machine(job, 50, origin="adopted")
    story.accrue(200)
    assert story.fresh(job).cost_final_at is None
    story.end(late, 210)
    story.quote(220, [])
    story.accrue(220)
    assert story.run(story.closing) == 1
    assert story.fresh(job).cost_final_at == story.time


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 4))]
)
def test_whatever_happens_the_books_are_closed_after_every_step(
    story: MoneyStory, engine: Engine, seed: int
) -> None:
    dice = random.Random(seed)
    reports = CostReports(engine)
    project = story.project(cap=10**12)
    jobs = [story.job(project, name, cap=10**12) for name in ("a", "b")]
    story.quote()
    running: list[tuple[Instance, Job | None]] = []
    seconds = 0.0
    for _ in range(30):
        seconds += dice.choice([0.25, 7, 59.5, 61, 1800])
        story.go_to(seconds)
        match dice.choice(["start", "start", "end", "assign", "price"]):
            case "start":
                job = dice.choice([*jobs, None])
                at = max(0.0, seconds - dice.choice([0, 3.3]))
                running.append((story.machine(job, at), job))
            case "end" if running:
                machine, _job = running.pop(dice.randrange(len(running)))
                story.end(machine, seconds, dice.choice(list(EndedBy)))
            case "assign" if running:
                machine, job = dice.choice(running)
                if job is not None:
                    story.assign(machine, dice.choice(jobs), None, story.time)
            case "price":
                price = dice.randrange(1, 9_999_999)
                story.quote(seconds, [(seconds - dice.choice([0, 31.7]), price)])
        story.accrue(seconds)
        found = reports.verify()
        assert found.differences == ()
        assert found.unbilled == ()
        assert found.booked_microusd == story.booked()
    for machine, _ in running:
        story.end(machine, seconds)
    story.quote(seconds + 10, [])
    story.accrue(seconds + 10)
    with story.begin() as uow:
        assert uow.instances.next_billable_at(Billing(60, 5)) is None
    assert story.project_budget(project).reserved_microusd == 0


class Source:
    """A price source that says what it is told to, or fails."""

    def __init__(self, story: MoneyStory) -> None:
        self.story = story
        self.fails = False
        self.asked: list[float] = []

    def offers(self) -> tuple[Offer, ...]:
        if self.fails:
            raise ProviderError(RefusalKind.UNAVAILABLE, "down")
        with self.story.begin() as uow:
            stored = [offer for offer, _ in uow.offers.all()]
        return tuple(replace(offer, quoted_at=self.story.time) for offer in stored)

    def changes_since(self, since: datetime) -> tuple[PriceChange, ...]:
        self.asked.append((since - self.story.after(0)).total_seconds())
        return ()


def test_prices_are_asked_for_each_period_and_when_a_bill_waits_for_them(story: MoneyStory) -> None:
    source = Source(story)
    runtime = story.make_runtime(LIMITS, {"local": source})
    refreshing = RefreshPrices(runtime)
    story.quote(0)
    machine = story.machine(story.job(story.project()))
    story.go_to(59)
    assert run_controller(runtime, refreshing) == 0
    story.go_to(60)
    assert run_controller(runtime, refreshing) == 1
    assert source.asked == [-60]
    story.end(machine, 70)
    story.accrue(71)
    with story.begin() as uow:
        assert refreshing.next_due(uow) == story.after(75)
    story.go_to(75)
    assert run_controller(runtime, refreshing) == 1
    assert run_controller(runtime, refreshing) == 0
    story.accrue(75)
    assert story.fresh(machine).cost_final_at == story.time


def test_a_provider_that_fails_is_asked_again_after_a_period(
    story: MoneyStory, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(story)
    source.fails = True
    runtime = story.make_runtime(LIMITS, {"local": source})
    refreshing = RefreshPrices(runtime)
    story.quote(0)
    story.go_to(100)
    assert run_controller(runtime, refreshing) == 1
    assert "stay as they were: unavailable: down" in caplog.text
    assert run_controller(runtime, refreshing) == 0
    story.go_to(160)
    source.fails = False
    assert run_controller(runtime, refreshing) == 1
    with story.begin() as uow:
        assert uow.offers.last_quoted_at("local") == story.time


def test_the_history_is_asked_for_back_to_a_machine_without_a_price(story: MoneyStory) -> None:
    source = Source(story)
    runtime = story.make_runtime(LIMITS, {"local": source})
    story.quote(0, [(50, PRICE)])
    story.machine(story.job(story.project()), -86_400)
    story.go_to(100)
    run_controller(runtime, RefreshPrices(runtime))
    assert source.asked == [-86_400]


def test_price_points_start_with_the_one_in_effect(story: MoneyStory) -> None:
    story.quote(0, [(at, PRICE + at) for at in (-60, 0, 60, 120)])
    with story.begin() as uow:
        pool = uow.offers.all()[1][0].pool
        for since, kept in ((-100, 4), (-60, 4), (59, 3), (60, 2), (500, 1)):
            points = uow.offers.price_points(pool, story.after(since))
            assert len(points) == kept
            assert points == uow.offers.price_points(pool)[-kept:]
        assert story.after(0) - points[0][0] == timedelta(seconds=-120)
