"""What cost reports for people hold. Every table in one sums exactly to what is booked.

Not here: the queries (`cost_read_models`), and how a page or the terminal shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from fractions import Fraction
from uuid import UUID

from app.domain.billing.billing import Component
from app.domain.billing.books_check import BooksCheck
from app.domain.billing.cost_statement import Activity, JobCostStatement
from app.domain.market.offer import Pool

Invoices = Mapping[str, Mapping[str, Mapping[str, int]]]
"""The clouds' own bills: provider -> machine id at the provider -> component -> micro-dollars."""


class CostStatus(StrEnum):
    """How firm a figure is."""

    ACCRUING = "accruing"  # something still runs
    PROVISIONAL = "provisional"  # all has ended; late facts may still change it
    FINAL = "final"
    RECONCILED = "reconciled"  # final, and equal to the cloud's own bill


@dataclass(frozen=True)
class BudgetFigures:
    """A cap and what counts against it, micro-dollars; without a cap there is no limit."""

    cap_microusd: int | None
    spent_microusd: int
    reserved_microusd: int


@dataclass(frozen=True)
class InstanceCost:
    """One machine's part in a job's cost.

    label: m1, m2, … in the order in which we learned of their starts. billing_speed: billed seconds
    of one second. to_at: its end, or up to when
    it is booked. waived_microusd: what the cloud did not charge.
    """

    instance_id: UUID
    label: str
    provider: str
    provider_instance_id: str | None
    pool: str | None
    market: str
    from_at: datetime
    to_at: datetime
    booked_microusd: int
    waived_microusd: int
    by_activity: Mapping[Activity, int]
    billing_speed: int
    ended_by: str | None
    status: CostStatus


@dataclass(frozen=True)
class JobCost:
    """What a job cost so far, where it went, and what it would have cost on demand.

    ended_at: None while the job may go on and cost more, even if all that it ran is final.
    billing_speed: the most seconds that one second of its machines was billed as.
    booked_until_at: up to when every machine is booked, None when none ran. unbilled: machines
    that cannot be billed because no price is known for their start. not_metered: components that
    no price is recorded for, so that they are missing here. books: how much of it was compared with
    the ledger.
    """

    job_id: UUID
    project_id: UUID
    name: str
    ended_at: datetime | None
    status: CostStatus
    statement: JobCostStatement
    instances: tuple[InstanceCost, ...]
    budget: BudgetFigures
    project_budget: BudgetFigures | None
    booked_until_at: datetime | None
    unbilled: tuple[UUID, ...]
    not_metered: tuple[str, ...]
    books: BooksCheck
    billing_speed: int


class CostGroup(StrEnum):
    """What a period's costs can be grouped by; `label` needs the label's name."""

    PROJECT = "project"
    JOB = "job"
    LABEL = "label"
    POOL = "pool"
    GPU = "gpu"


UNALLOCATED = "unallocated"
"""Costs that no job pays: orphans, and seconds nobody was assigned."""
NO_LABEL = "(no label)"
"""Costs of jobs without the label that a report is by."""


@dataclass(frozen=True)
class PeriodRow:
    """One group's costs. `key` is an id, a label's value, a pool or a GPU's name."""

    key: str
    name: str
    amount_microusd: int
    by_component: Mapping[str, int]


@dataclass(frozen=True)
class PeriodCosts:
    """Costs of whole UTC days, `from_day` to `to_day` inclusive, by usage.

    rows: dearest first; the last one is always the unallocated row, printed even at 0. books: how
    much of it was compared with the ledger, and what that found. billing_speed: the most seconds
    that one second of a machine was billed as.
    """

    from_day: date
    to_day: date
    group: CostGroup
    rows: tuple[PeriodRow, ...]
    total_microusd: int
    books: BooksCheck
    by_day: Mapping[date, int]
    by_status: Mapping[CostStatus, int]
    billing_speed: int = 1
    unbilled: tuple[UUID, ...] = ()


@dataclass(frozen=True)
class CostLine:
    """What one machine cost one job on one UTC day, of one component and for one activity.

    job, project: names, None for what no job pays. hours: billed machine time. quantity: in the
    component's own unit: hours of compute and public_ip, GB-months of disk, GiB of egress.
    """

    day: date
    job: str | None
    project: str | None
    labels: Mapping[str, str]
    provider: str
    pool: Pool | None
    provider_instance_id: str | None
    component: Component
    activity: Activity
    hours: Fraction
    quantity: Fraction
    amount_microusd: int
    status: CostStatus


@dataclass(frozen=True)
class Difference:
    """Two figures that should be equal and are not. `what` says which, for people."""

    what: str
    instance_id: UUID | None
    component: str | None
    booked_microusd: int
    expected_microusd: int

    @property
    def difference_microusd(self) -> int:
        """Booked less expected."""
        return self.booked_microusd - self.expected_microusd


@dataclass(frozen=True)
class Verification:
    """What was compared, and every difference found.

    unbilled: machines without a known price. invoiced: machines compared with a cloud's own bill.
    revised: machines about which something was learned since their last closing; the next one
    books it, so their bills are not compared now. open: machines that run, or are not booked to
    their end, of which a cloud's own bill says more or less than is booked; without_invoice: those
    of clouds whose own bill cannot be read here.
    """

    machines: int
    invoiced: int
    revised: int
    open: int
    without_invoice: int
    booked_microusd: int
    differences: tuple[Difference, ...] = ()
    unbilled: tuple[UUID, ...] = ()

    @property
    def closed(self) -> bool:
        """Whether everything agrees to the micro-dollar."""
        return not self.differences and not self.unbilled
