"""Whether a budget bears more: the reserve, the test before a claim, and the order to stop.

Lives here: integer arithmetic and the sentence that explains it. Not here: locking the budget's
row or ordering anything (orchestration). A waiver is never counted on before it is booked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import Final

from app.domain.lifecycle.job import BudgetKind
from app.domain.units.apportionment import divide_up
from app.domain.units.durations import billed_as
from app.domain.units.instants import format_instant
from app.domain.units.money import format_usd

SECONDS_PER_HOUR = 3600
_CENT_MICROUSD = 10_000
FIRST_STRETCH_SECONDS = 900
"""A claim must afford the new gang's first 15 minutes, on the clock of the bill: see
`start_microusd` for what else."""
WITHIN_BUDGET: Final = "so that saving and releasing the machines stays within the budget"
"""Why a job is stopped while some of its budget is left."""


@dataclass(frozen=True, slots=True)
class LiveInstance:
    """A machine that costs money now, or will once its launch is accepted.

    `billed_seconds` has passed since its start (billed time, 0 when it has not started);
    `minimum_seconds` is what its cloud charges at least.
    """

    microusd_per_hour: int
    billed_seconds: int
    minimum_seconds: int = 60


@dataclass(frozen=True, slots=True)
class ReserveWindow:
    """For how long a machine may still cost money after we look: all in wall seconds.

    The accrual period (what is not booked yet), the time a drain may take, and how long the
    cloud's word of an ended machine may be late.
    """

    accrual_period_seconds: int
    drain_reserve_seconds: int
    observation_gap_seconds: int
    billing_speed: Fraction = Fraction(1)

    @property
    def billed_seconds(self) -> Fraction:
        """The window in billed seconds."""
        wall = (
            self.accrual_period_seconds + self.drain_reserve_seconds + self.observation_gap_seconds
        )
        return wall * self.billing_speed

    def at_speed(self, billing_speed: int) -> ReserveWindow:
        """The same time, of a machine whose bill runs so much faster than the real clock."""
        return replace(self, billing_speed=Fraction(billing_speed))


@dataclass(frozen=True, slots=True)
class BudgetCheck:
    """Yes or no, with the sentence for people. short: of no, which budget is short."""

    yes: bool
    sentence: str
    short: BudgetKind | None = None


def reserve_microusd(live: Iterable[LiveInstance], window: ReserveWindow) -> int:
    """What the live machines can still cost before they are gone and billed, rounded up.

    Σ price × window, plus what is missing to each machine's minimum charge.
    """
    seconds = window.billed_seconds
    total = 0
    for machine in live:
        unmet = max(0, machine.minimum_seconds - machine.billed_seconds)
        total += _cost_up(machine.microusd_per_hour, seconds + unmet)
    return total


def first_segment_microusd(prices_microusd_per_hour: Iterable[int]) -> int:
    """What a new gang costs in its first 15 billed minutes, one price per machine, rounded up."""
    return sum(_cost_up(price, FIRST_STRETCH_SECONDS) for price in prices_microusd_per_hour)


def start_microusd(prices_microusd_per_hour: Iterable[int], window: ReserveWindow) -> int:
    """What must be left for a new gang to start, or it would be stopped as soon as it runs.

    Its first 15 billed minutes. These are minutes of work only where the bill runs at the real
    clock. A faster bill reserves more than that for saving and releasing the machines, so there the
    reserve comes on top. One price per machine; window: at the billing speed of the pool.
    """
    prices = list(prices_microusd_per_hour)
    first = first_segment_microusd(prices)
    if window.billing_speed <= 1:
        return first
    return first + reserve_microusd((LiveInstance(price, 0) for price in prices), window)


def first_segment_words(billing_speed: int) -> str:
    """What `first_segment_microusd` pays for; the bill's clock may be faster than the real one."""
    if billing_speed <= 1:
        return "the first 15 minutes"
    return f"the first 15 minutes of the bill{billed_as(billing_speed)},"


def start_words(billing_speed: int) -> str:
    """What `start_microusd` pays for."""
    words = first_segment_words(billing_speed)
    return words if billing_speed <= 1 else f"{words} with saving and releasing the machines"


def left_microusd(
    budget_microusd: int | None, spent_microusd: int, reserve_microusd: int = 0
) -> int | None:
    """What a budget still allows: nothing more at 0, less than 0 above the cap; None without one.

    reserve_microusd: what is held for machines that run or are to be rented.
    """
    return None if budget_microusd is None else budget_microusd - spent_microusd - reserve_microusd


def claim_allowed(
    *,
    spent_microusd: int,
    reserve_microusd: int,
    start_microusd: int,
    budget_microusd: int | None,
    billing_speed: int = 1,
) -> BudgetCheck:
    """May a gang be rented: spent + reserve + what its start needs must fit the cap."""
    left = left_microusd(budget_microusd, spent_microusd, reserve_microusd + start_microusd)
    if left is None or budget_microusd is None:
        return BudgetCheck(True, "No budget is set.")
    figures = (
        f"{format_usd(spent_microusd)} is spent, {format_usd(reserve_microusd)} is reserved for "
        f"running machines and {start_words(billing_speed)} would cost "
        f"{format_usd(start_microusd)}"
    )
    cap = format_usd(budget_microusd)
    if left >= 0:
        return BudgetCheck(True, f"Within the budget of {cap}: {figures}.")
    return BudgetCheck(
        False,
        f"Over the budget of {cap} by {enough_text(-left)}: {figures}. It can continue with a "
        f"budget of at least {enough_text(budget_microusd - left)} at the prices of now.",
    )


class BudgetOwner(StrEnum):
    """Whose a budget is."""

    JOB = "job"
    PROJECT = "project"
    DEPLOYMENT = "deployment"


def name_budget(sentence: str, owner: BudgetOwner, month_ends_at: datetime | None = None) -> str:
    """The sentence, saying whose budget it speaks of when that is not the job's own.

    month_ends_at: of a budget of a month, when the next one begins.
    """
    if month_ends_at is not None:
        until = f"until {format_instant(month_ends_at)}"
        return f"The {owner}'s budget of this month, {until}: {sentence}"
    return sentence if owner is BudgetOwner.JOB else f"The {owner}'s budget: {sentence}"


def enough_text(microusd: int) -> str:
    """An amount that is enough: rounded up to the cent, where it is a cent or more."""
    if microusd < _CENT_MICROUSD:
        return format_usd(microusd, 6)
    return format_usd(-(-microusd // _CENT_MICROUSD) * _CENT_MICROUSD)


def stop_ordered(
    *, spent_microusd: int, reserve_microusd: int, budget_microusd: int | None
) -> BudgetCheck:
    """Must running work stop now: spent + reserve has reached the cap."""
    left = left_microusd(budget_microusd, spent_microusd, reserve_microusd)
    if left is None or budget_microusd is None:
        return BudgetCheck(False, "No budget is set.")
    cap = format_usd(budget_microusd)
    figures = (
        f"{format_usd(spent_microusd)} is spent, and saving and releasing may take "
        f"{format_usd(reserve_microusd)}"
    )
    if left <= 0:
        used_up = spent_microusd >= budget_microusd
        why = (
            f"The budget of {cap} is used up" if used_up else f"Stopping, {WITHIN_BUDGET} of {cap}"
        )
        return BudgetCheck(True, f"{why}: {figures}.")
    return BudgetCheck(False, f"{format_usd(left)} of the budget of {cap} is left: {figures}.")


def _cost_up(microusd_per_hour: int, seconds: Fraction | int) -> int:
    cost = microusd_per_hour * Fraction(seconds)
    return divide_up(cost.numerator, SECONDS_PER_HOUR * cost.denominator)
