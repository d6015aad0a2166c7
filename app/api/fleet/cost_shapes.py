"""The shapes of answers about money: one job's cost, a period's, and the check of the books.

Money is whole micro-USD. Not here: the CSV of a period, which `costs` writes.
"""

from __future__ import annotations

from datetime import date, datetime
from uuid import UUID

from app.api.serving.shapes import Shape
from app.domain.billing.billing import Component
from app.domain.billing.books_check import BooksVerdict
from app.domain.billing.cost_statement import Activity
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.storage.money.cost_figures import CostGroup, CostStatus


class BooksShape(Shape):
    """How much of a report was compared with the ledger. `sentence`: the verdict for people.

    `unchecked_from_at`: when the first of what is not compared yet was booked; null for nothing.
    """

    verdict: BooksVerdict
    sentence: str
    checked_at: datetime | None
    checked_microusd: int
    checked_entries: int
    unchecked_microusd: int
    unchecked_entries: int
    difference_microusd: int
    unchecked_from_at: datetime | None


class StatementShape(Shape):
    """Where a job's money went, and what it would have cost on demand.

    `on_demand_comparison_microusd` and the ratios are null where there is nothing to compare with.
    """

    total_microusd: int
    by_component: dict[Component, int]
    by_activity: dict[Activity, int]
    by_instance: dict[UUID, int]
    waived_microusd: int
    useful_seconds: int
    billed_seconds: int
    on_demand_comparison_microusd: int | None
    net_saved_microusd: int | None
    net_saved_ratio: float | None
    rate_saved_ratio: float | None


class InstanceCostShape(Shape):
    """One machine's part. `to_at`: its end, or the time up to which it is booked.

    `billing_speed`: billed seconds of one second.
    """

    instance_id: UUID
    label: str
    provider: str
    provider_instance_id: str | None
    pool: str | None
    market: Market
    billing_speed: int
    from_at: datetime
    to_at: datetime
    booked_microusd: int
    waived_microusd: int
    by_activity: dict[Activity, int]
    ended_by: EndedBy | None
    status: CostStatus


class BudgetShape(Shape):
    """A cap and what counts against it; `cap_microusd` is null without a limit."""

    cap_microusd: int | None
    spent_microusd: int
    reserved_microusd: int


class JobCostShape(Shape):
    """What a job cost so far. `unbilled`: machines without a known price.

    `ended_at`: null while the job may go on and cost more, even where `status` is final.
    `not_metered`: components that are missing because no price is recorded for them.
    `billing_speed`: the most seconds that one second of a machine was billed as.
    """

    job_id: UUID
    project_id: UUID
    name: str
    ended_at: datetime | None
    status: CostStatus
    statement: StatementShape
    instances: list[InstanceCostShape]
    budget: BudgetShape
    project_budget: BudgetShape | None
    booked_until_at: datetime | None
    unbilled: list[UUID]
    not_metered: list[str]
    books: BooksShape
    billing_speed: int


class PeriodRowShape(Shape):
    """One group's costs. `key`: an id, a label's value, a pool or a GPU's name."""

    key: str
    name: str
    amount_microusd: int
    by_component: dict[Component, int]


class PeriodCostsShape(Shape):
    """Costs of whole UTC days. `rows`: dearest first; the last one is what no job pays.

    `billing_speed`: the most seconds that one second of a machine was billed as.
    """

    from_day: date
    to_day: date
    group: CostGroup
    rows: list[PeriodRowShape]
    total_microusd: int
    by_day: dict[date, int]
    by_status: dict[CostStatus, int]
    unbilled: list[UUID]
    difference_microusd: int
    checked_at: datetime | None
    books: BooksShape
    billing_speed: int


class DifferenceShape(Shape):
    """Two figures that should be equal and are not."""

    what: str
    instance_id: UUID | None
    component: Component | None
    booked_microusd: int
    expected_microusd: int


class VerificationShape(Shape):
    """What was compared. `closed`: everything agrees, and every machine has a price.

    `invoiced`: machines that were compared with a cloud's own bill. `revised`: machines whose bill
    changes at the next closing, so that it was not compared. Not compared with a cloud's own bill:
    `open`, machines that run or are not booked to their end, and `without_invoice`, those of clouds
    whose own bill cannot be read here.
    """

    verified_at: datetime
    machines: int
    invoiced: int
    revised: int
    open: int
    without_invoice: int
    booked_microusd: int
    differences: list[DifferenceShape]
    unbilled: list[UUID]
    closed: bool
