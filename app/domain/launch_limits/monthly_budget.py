"""The budget of a calendar month in UTC, of a project or of the deployment: its periods, its
thresholds and its forecast.

Lives here: dates, and integer arithmetic. Not here: whether it covers a launch
(`billing.headroom`), or who sets it (`money.set_budget`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from app.domain.units.apportionment import divide_up
from app.domain.units.errors import InvalidValue

DEPLOYMENT_PAYER: Final = UUID(int=0)
"""Stands for the deployment where a budget names the project that it is of."""
THRESHOLDS: Final = (50, 80, 100)
"""Percent of a budget, also of a job's; each is told once a month, or once of a job's."""
_HOUR_SECONDS: Final = 3_600


class AtFull(StrEnum):
    """What happens once the month's money is spent or reserved. Values are stored and shown."""

    BLOCK_NEW = "block_new"
    """No machine is requested; those that run go on, beyond the budget if need be."""
    DRAIN_AND_PAUSE = "drain_and_pause"
    """Jobs save and pause, too."""


def read_at_full(written: str) -> AtFull:
    """As people write it. Raises InvalidValue."""
    if written not in set(AtFull):
        known = ", ".join(AtFull)
        raise InvalidValue(f"at_100: {written[:40]!r} is not known; use {known}", "at_100")
    return AtFull(written)


def month_of(at: datetime) -> datetime:
    """The first instant of its month in UTC."""
    day = at.astimezone(UTC)
    return datetime(day.year, day.month, 1, tzinfo=UTC)


def next_month(at: datetime) -> datetime:
    """The first instant of the month after, whatever the day."""
    day = at.astimezone(UTC)
    return datetime(day.year + day.month // 12, day.month % 12 + 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MonthlyBudget:
    """A budget, with what is booked for the usage of its month; money in micro-USD.

    month_at: the first instant of the month that spent is of.
    """

    cap_microusd: int
    at_full: AtFull
    month_at: datetime
    spent_microusd: int

    @property
    def ends_at(self) -> datetime:
        """When the month is over."""
        return next_month(self.month_at)

    @property
    def percent(self) -> int:
        """What is spent of it, rounded down, so that 80 is never told before it is reached."""
        return self.spent_microusd * 100 // self.cap_microusd

    def when_full(self, until: str) -> str:
        """What happens at 100 %, as a sentence. until: when that ends, in words."""
        told = "Once all of it is spent or reserved,"
        if self.at_full is AtFull.DRAIN_AND_PAUSE:
            return f"{told} jobs save and pause until {until}."
        return f"{told} no machine is requested until {until}; those that run go on."

    def passed(self, told: Collection[int] = ()) -> tuple[int, ...]:
        """The thresholds that are reached and were not told this month."""
        return tuple(one for one in THRESHOLDS if one <= self.percent and one not in told)

    def forecast(self, microusd_per_hour: int, now: datetime) -> int:
        """What the month will have cost if machines go on at this price to its end."""
        seconds = max(0, int((self.ends_at - now).total_seconds()))
        return self.spent_microusd + divide_up(microusd_per_hour * seconds, _HOUR_SECONDS)


def crossed(before_microusd: int, after_microusd: int, cap_microusd: int) -> tuple[int, ...]:
    """The thresholds of a budget that spending has come to, from one sum to the next."""
    return tuple(
        one
        for one in THRESHOLDS
        if before_microusd * 100 < cap_microusd * one <= after_microusd * 100
    )
