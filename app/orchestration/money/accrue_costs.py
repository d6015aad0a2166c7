"""Book what machines cost: bring the ledger to the bill, machine by machine, until it is final.

Lives here: the transaction around one closing. Not here: the bill and the entries (pure, in
`app.domain`), or what a used-up budget means (`enforce_budgets`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.billing.billing import Component
from app.domain.billing.billing_rules import REGION_SILENCE_SECONDS
from app.domain.billing.ledger import Entry, LedgerKey
from app.domain.billing.machine_rating import RatedMachine, never_ran
from app.domain.launch_limits.monthly_budget import crossed
from app.domain.lifecycle.entities import Assignment, Budget, Instance, Job
from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.domain.lifecycle.instance import TERMINAL_INSTANCE_STATES
from app.domain.market.price_book import UnknownPrice
from app.domain.units.money import format_usd
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.controller_frame import RowController
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.tell_channels import tell_of_job_budget
from app.orchestration.gang.reserve_budget import is_used_up, live_reserve, write_reservation
from app.storage.money.money_repository import Billing, LedgerRow, Payer
from app.storage.unit_of_work import UnitOfWork

log = logging.getLogger(__name__)

ACCRUE_CONTROLLER = "accrue_costs"
BUDGET_CONTROLLER = "enforce_budgets"
CLOSE_CONTROLLER = "close_job_costs"
UNPRICED_SHOWN_MAX = 20
_ACTOR = Actor(ActorKind.CONTROLLER, ACCRUE_CONTROLLER)


@dataclass(frozen=True)
class DueBill:
    """A machine with something to book or to close."""

    instance_id: UUID
    job_id: UUID | None


class AccrueCosts(RowController[DueBill]):
    """The controller of the ledger."""

    name = ACCRUE_CONTROLLER
    limit = 100

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        limits = runtime.limits
        self._billing = Billing(limits.accrual_seconds, limits.cost_settle_seconds)

    def select(self, uow: UnitOfWork, limit: int) -> list[DueBill]:
        """Machines whose bill is due; the locks are taken when each is applied."""
        for instance in uow.instances.unpriced(UNPRICED_SHOWN_MAX):
            log.warning(
                "instance %s runs unbilled: no price, or no billing rule, of %s is known at its "
                "start; it is billed as soon as one is recorded",
                instance.id,
                instance.pool.key if instance.pool is not None else "its pool",
            )
        return [DueBill(*row) for row in uow.instances.billable(uow.now, self._billing, limit)]

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first bill is due."""
        return uow.instances.next_billable_at(self._billing)

    def apply(self, uow: UnitOfWork, work: DueBill, result: None) -> None:
        """Close one machine's books: budgets, then its job, then the machine are locked."""
        payers = uow.money.payers(work.instance_id)
        budgets = {payer.job_id: _lock_budgets(uow, payer) for payer in payers}
        own = [one for locked in budgets.values() for one in locked if one.job_id is not None]
        spent = [(one, one.spent_microusd) for one in own]
        job = None
        if work.job_id is not None:
            job = uow.jobs.lock(work.job_id, skip_locked=True)
            if job is None:
                return
        instance = uow.instances.lock(work.instance_id, skip_locked=True)
        if instance is None or instance.cost_final_at is not None:
            return
        if never_ran(instance):
            instance.cost_final_at = uow.now
        elif not self._book(uow, instance, payers, job):
            return
        self._tell(uow, spent)
        if job is not None:
            self._reserve(uow, budgets[job.id], job)
        if instance.cost_final_at is not None:
            uow.notify_after_commit(CLOSE_CONTROLLER)
        if any(is_used_up(budget) for locked in budgets.values() for budget in locked):
            uow.notify_after_commit(BUDGET_CONTROLLER)

    def _book(
        self, uow: UnitOfWork, instance: Instance, payers: Sequence[Payer], job: Job | None
    ) -> bool:
        """Append what is missing; False when the machine has to wait for another look."""
        spans = uow.instances.assignments(instance.id)
        projects = {payer.job_id: payer.project_id for payer in payers}
        if instance.pool is None or any(
            span.job_id is not None and span.job_id not in projects for span in spans
        ):
            return False  # a payer came between our look and the locks
        points = uow.offers.price_points(instance.pool, instance.launched_at)
        brought = uow.traffic.transfers(instance.id)
        machine = RatedMachine.of(instance, spans, points, brought)
        booked = {
            LedgerKey(instance.id, Component(component), assignment_id, hour): amount
            for (component, assignment_id, hour), amount in uow.money.booked(instance.id).items()
        }
        try:
            closed = machine.close(booked, uow.now)
        except UnknownPrice as unknown:
            log.warning("instance %s is not billed yet: %s", instance.id, unknown)
            return False
        uow.money.append_entries(
            [self._row(entry, spans, projects, uow.now) for entry in closed.entries]
        )
        instance.rating = closed.basis.to_json()
        instance.billed_until_at = closed.basis.until_at
        if closed.entries and job is not None and job.cost_final_at is not None:
            job.cost_final_at = None  # a machine turned up late: the job's cost is open again
        was_waived = machine.previous is not None and machine.previous.waived
        if job is not None and not was_waived:
            self._record_waiver(uow, job, instance, replace(machine, previous=closed.basis))
        if self._is_settled(uow, instance):
            instance.cost_final_at = uow.now
        return True

    def _tell(self, uow: UnitOfWork, spent: Sequence[tuple[Budget, int]]) -> None:
        """Tell of the thresholds that jobs' own budgets have come to. spent: of each, before."""
        for budget, before in spent:
            if budget.cap_microusd is None or budget.job_id is None:
                continue
            for percent in crossed(before, budget.spent_microusd, budget.cap_microusd):
                job = uow.jobs.get(budget.job_id)
                if job is not None:
                    tell_of_job_budget(uow, self._runtime.entropy, job, budget, percent)

    def _record_waiver(
        self, uow: UnitOfWork, job: Job, instance: Instance, machine: RatedMachine
    ) -> None:
        """Say in the job's history why its cost falls.

        machine: as it is booked now.
        """
        amount = machine.waived_microusd(job.id)
        if amount:
            JobAggregate(uow, self._runtime.entropy, job, _ACTOR, looking=True).record(
                JobEventKind.COST_WAIVED,
                "The cloud ended this machine so early that it does not charge for its time: "
                f"{format_usd(amount, 3)} are waived.",
                about=instance,
                waived_microusd=amount,
            )

    def _row(
        self,
        entry: Entry,
        spans: Sequence[Assignment],
        projects: dict[UUID, UUID],
        booked_at: datetime,
    ) -> LedgerRow:
        """The entry as the ledger stores it."""
        key = entry.key
        span = next((one for one in spans if one.id == key.assignment_id), None)
        job_id = None if span is None else span.job_id
        return {
            "id": self._runtime.entropy.new_id(),
            "instance_id": key.instance_id,
            "component": key.component.value,
            "assignment_id": key.assignment_id,
            "usage_hour_at": key.usage_hour_at,
            "job_id": job_id,
            "project_id": None if job_id is None else projects[job_id],
            "attempt_id": None if span is None else span.attempt_id,
            "kind": entry.kind.value,
            "reason": None if entry.reason is None else entry.reason.value,
            "amount_microusd": entry.amount_microusd,
            "usage_from_at": entry.usage_from_at,
            "usage_to_at": entry.usage_to_at,
            "booked_at": booked_at,
            "price_source": entry.price_source,
            "price_captured_at": entry.price_captured_at,
            "rule_id": entry.rule_id,
            "estimated": entry.estimated,
        }

    def _is_settled(self, uow: UnitOfWork, instance: Instance) -> bool:
        """Ended, late facts had their time, and the prices up to the end are known."""
        ended = instance.ended_at
        if ended is None or instance.state not in TERMINAL_INSTANCE_STATES:
            return False
        settle = timedelta(seconds=self._runtime.limits.cost_settle_seconds)
        region = None if instance.pool is None else instance.pool.region
        quoted = uow.offers.last_quoted_at(instance.provider, region)
        if quoted is None or quoted < ended:
            # A region that left the settings is quoted no more: its last known prices hold.
            silence = timedelta(seconds=REGION_SILENCE_SECONDS)
            newest = uow.offers.last_quoted_at(instance.provider)
            if newest is None or newest < ended + silence:
                return False
        return uow.now - ended >= settle

    def _reserve(self, uow: UnitOfWork, budgets: Sequence[Budget], job: Job) -> None:
        """Keep the job's reservation at what its live machines can still cost."""
        live = uow.instances.of_job(job.id)
        reserve = live_reserve(uow, live, self._runtime.limits, uow.now)
        write_reservation(uow, budgets, job.id, reserve)


def _lock_budgets(uow: UnitOfWork, payer: Payer) -> list[Budget]:
    return uow.money.lock_budgets(payer.project_id, payer.budget_id)
