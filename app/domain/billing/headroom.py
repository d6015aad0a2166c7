"""What the budgets of a job cover beside the machines that it has: read once, asked many times.

Lives here: which bids they cover, and whether they cover two gangs for a while. Not here: the
arithmetic of one budget (`budget`), or reading and writing its row (`reserve_budget`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.billing.budget import (
    BudgetCheck,
    BudgetOwner,
    LiveInstance,
    ReserveWindow,
    claim_allowed,
    name_budget,
    reserve_microusd,
    start_microusd,
)
from app.domain.billing.egress import Restore, restore_microusd
from app.domain.launch_limits.monthly_budget import MonthlyBudget
from app.domain.lifecycle.entities import Budget
from app.domain.lifecycle.job import BudgetKind
from app.domain.market.offer import Offer


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """One budget that pays for the job. reserved_by_others: what other jobs hold of it.
    month_ends_at: of a budget of a month, when the next one begins.
    """

    owner: BudgetOwner
    cap_microusd: int | None
    spent_microusd: int
    reserved_by_others: int = 0
    month_ends_at: datetime | None = None

    @staticmethod
    def of(budget: Budget, reserved_by_others: int = 0) -> BudgetLine:
        """A job's own budget, or a project's."""
        owner = BudgetOwner.PROJECT if budget.job_id is None else BudgetOwner.JOB
        return BudgetLine(owner, budget.cap_microusd, budget.spent_microusd, reserved_by_others)

    @staticmethod
    def of_month(
        owner: BudgetOwner, month: MonthlyBudget, reserved_by_others: int = 0
    ) -> BudgetLine:
        """A budget of this month, of a project or of the deployment."""
        cap, spent = month.cap_microusd, month.spent_microusd
        return BudgetLine(owner, cap, spent, reserved_by_others, month.ends_at)

    @property
    def kind(self) -> BudgetKind:
        """Which budget it is."""
        if self.month_ends_at is None:
            return BudgetKind.JOB if self.owner is BudgetOwner.JOB else BudgetKind.PROJECT
        of_project = self.owner is BudgetOwner.PROJECT
        return BudgetKind.PROJECT_MONTH if of_project else BudgetKind.DEPLOYMENT_MONTH

    def name(self, sentence: str) -> str:
        """The sentence, saying which budget it speaks of."""
        return name_budget(sentence, self.owner, self.month_ends_at)


@dataclass(frozen=True, slots=True)
class CoveredBids:
    """The bids that a launch may be made with; none: check says which budget is short.

    reserved_microusd: what is then held for the job, its live machines included: of the launch
    what its start needs in the dearest pool.
    """

    check: BudgetCheck
    bids: tuple[Offer, ...] = ()
    reserved_microusd: int = 0


@dataclass(frozen=True)
class Headroom:
    """held_microusd: what the job's live machines can still cost.

    window: for how long a machine may cost money after a look. restore: what each new machine
    brings first, at the price of its pool.
    """

    lines: tuple[BudgetLine, ...]
    held_microusd: int
    window: ReserveWindow
    restore: Restore | None = None

    def nothing_more(self) -> CoveredBids:
        """Whether every budget covers the live machines alone."""
        return CoveredBids(self._covers(self.held_microusd, 0), (), self.held_microusd)

    def bids_covered(self, bids: Sequence[Offer], count: int) -> CoveredBids:
        """Which of the bids may a launch of `count` machines be made with?

        A launch may end in any of its pools, so the money is held for the dearest one. Pools that
        the budgets do not cover are left out; when they cover none, the sentence is the cheapest
        one's.
        """
        check = BudgetCheck(False, "No pool is offered.")
        speed = max((bid.billing_speed for bid in bids), default=1)
        needs = [(bid, self._start(bid, count)) for bid in bids]
        for most in sorted({need for _, need in needs}, reverse=True):
            check = self._covers(self.held_microusd, most, speed)
            if check.yes:
                covered = tuple(bid for bid, need in needs if need <= most)
                return CoveredBids(check, covered, self.held_microusd + most)
        return CoveredBids(check)

    def covers_both(self, coming: Iterable[Offer] = ()) -> bool:
        """Whether every budget covers twice what is held for these machines, and for those to come.

        While it does, some of them can be given back without the job coming to its cap: what all of
        them cost until those are gone is the one window, the other holds for those that stay.
        coming: an offer for each machine that would be requested.
        """
        held = self.held_microusd
        for offer in coming:
            machine = LiveInstance(offer.cost_microusd_per_hour, billed_seconds=0)
            held += reserve_microusd([machine], self.window.at_speed(offer.billing_speed))
        return self._covers(2 * held, 0).yes

    def _covers(
        self, held_microusd: int, start_microusd: int, billing_speed: int = 1
    ) -> BudgetCheck:
        check = BudgetCheck(True, "No budget is set.")
        for line in self.lines:
            said = claim_allowed(
                spent_microusd=line.spent_microusd,
                reserve_microusd=line.reserved_by_others + held_microusd,
                start_microusd=start_microusd,
                budget_microusd=line.cap_microusd,
                billing_speed=billing_speed,
            )
            if not said.yes:
                return BudgetCheck(False, line.name(said.sentence), line.kind)
            if line.cap_microusd is not None:
                check = BudgetCheck(True, line.name(said.sentence))
        return check

    def _start(self, bid: Offer, count: int) -> int:
        """What must be left for it; the restore falls into the first 15 minutes as a whole."""
        window = self.window.at_speed(bid.billing_speed)
        restores = count * restore_microusd(self.restore, bid.pool)
        return start_microusd([bid.cost_microusd_per_hour] * count, window) + restores
