"""When a job with a deadline must leave spot: the simplest rule that is safe.

Lives here: the last safe moment, and what to do about it now. Not here: estimates of remaining
work and boot times (callers bring them), acquiring machines (orchestration).

The rule: stay on spot until the last moment at which switching still makes the deadline, then
get on-demand machines, and let the spot attempt go only when they are registered. Leaving spot
earlier, or going back with time to spare, is a matter of cost and not of this rule
(`placement_choice`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from app.domain.market.offer import Market
from app.domain.units.durations import format_duration

ON_DEMAND_ACQUIRE_RESERVE_SECONDS = 1800
"""How long on-demand may take to be had, until a shorter or longer time has been learned."""


class DeadlineAction(StrEnum):
    """What the deadline asks for now."""

    SPOT = "spot"  # go on, or wait, as price and capacity say
    ACQUIRE_ON_DEMAND = "acquire_on_demand"  # rent on-demand; a running spot attempt goes on
    YIELD_TO_ON_DEMAND = "yield_to_on_demand"  # it is registered: drain the spot attempt now
    STAY_ON_DEMAND = "stay_on_demand"


@dataclass(frozen=True, slots=True)
class StartTimes:
    """From the request of on-demand machines until the trainer steps there, in seconds.

    They follow each other: until there are machines (acquire), until they register (boot), until
    the trainer's process starts (restore), and until its first step has ended (start-up).
    """

    restore_seconds: int
    boot_p95_seconds: int
    start_up_p95_seconds: int = 0
    acquire_reserve_seconds: int = ON_DEMAND_ACQUIRE_RESERVE_SECONDS

    @property
    def in_all(self) -> int:
        """All of them."""
        return (
            self.acquire_reserve_seconds
            + self.boot_p95_seconds
            + self.restore_seconds
            + self.start_up_p95_seconds
        )


@dataclass(frozen=True, slots=True)
class DeadlineView:
    """A job with respect to its deadline.

    `remaining_seconds` is the work left, on the on-demand machines it would move to; None while
    no estimate exists. `start_left_seconds`: until an attempt on on-demand machines steps.
    `running_on` is the market of the attempt that trains or prepares, None when there is none.
    `look_again_seconds`: until the next decision, at most.
    `estimated_seconds`: the work left by the estimate alone, None without one.
    `slower_since_at`: since when what was measured forces the job off spot, and the estimate would
    not; such a measurement is acted on after `sure_after_seconds`, looked at again.
    """

    deadline_at: datetime | None
    remaining_seconds: int | None
    start: StartTimes
    start_left_seconds: int = 0
    running_on: Market | None = None
    moving_to_on_demand: bool = False
    on_demand_registered: bool = False
    on_demand_allowed: bool = True
    look_again_seconds: int = 0
    estimated_seconds: int | None = None
    slower_since_at: datetime | None = None
    sure_after_seconds: int = 0


@dataclass(frozen=True, slots=True)
class DeadlineDecision:
    """What to do, why, and the instants behind it.

    `last_safe_at` is None without a deadline or an estimate. `unsafe_since_at` is set when the
    deadline can no longer be promised: from then on it depends on luck.
    """

    action: DeadlineAction
    sentence: str
    last_safe_at: datetime | None = None
    unsafe_since_at: datetime | None = None


def last_safe_moment(deadline_at: datetime, remaining_seconds: int, start: StartTimes) -> datetime:
    """The latest instant at which asking for on-demand still makes the deadline.

    deadline - (remaining work + restore + start-up p95 + boot p95 + time to get the machines).
    """
    return deadline_at - timedelta(seconds=remaining_seconds + start.in_all)


def decide(view: DeadlineView, now: datetime) -> DeadlineDecision:
    """What the deadline asks for at `now`."""
    if view.running_on == Market.ON_DEMAND:
        return _on_demand(view, now)
    if view.deadline_at is None:
        return DeadlineDecision(DeadlineAction.SPOT, "No deadline: using the cheapest machines.")
    if now >= view.deadline_at:
        return _missed(view.deadline_at, now)
    if view.remaining_seconds is None:
        return DeadlineDecision(
            DeadlineAction.SPOT,
            "The remaining work is unknown, so the switch to on-demand cannot be planned: "
            "give an estimate, or report total_steps.",
        )
    last_safe_at = _last_safe(view, view.deadline_at, view.remaining_seconds)
    slack = int((last_safe_at - now).total_seconds())
    moving = view.moving_to_on_demand or view.on_demand_registered
    if not moving and now + timedelta(seconds=view.look_again_seconds) < last_safe_at:
        return DeadlineDecision(
            DeadlineAction.SPOT,
            f"Spot is safe for another {format_duration(slack)}.",
            last_safe_at,
        )
    if not moving and not _is_sure(view, now):
        return DeadlineDecision(
            DeadlineAction.SPOT,
            "At the measured speed the last safe moment has come, by the estimate it has not: "
            "the speed is measured again before the job leaves spot.",
            last_safe_at,
        )
    return _past_the_last_safe_moment(view, last_safe_at, now)


def without_launches(decision: DeadlineDecision, why: str, now: datetime) -> DeadlineDecision:
    """The same while no machine can be requested: nothing is acquired, so that spot is not safe.

    why: as a part of a sentence. On-demand machines that are registered already still serve.
    """
    may_acquire = (DeadlineAction.SPOT, DeadlineAction.ACQUIRE_ON_DEMAND)
    if decision.last_safe_at is None or decision.action not in may_acquire:
        return decision
    return DeadlineDecision(
        DeadlineAction.SPOT,
        f"The deadline is not safe: no on-demand machines can be requested, as {why}.",
        decision.last_safe_at,
        decision.unsafe_since_at or now,
    )


def seems_slower(view: DeadlineView, now: datetime) -> bool:
    """Whether what was measured will force the job off spot, soon or now, before the estimate does.

    Soon: when it could have been looked at again. So a pace that stays slow costs no time.
    """
    if view.deadline_at is None or view.remaining_seconds is None:
        return False
    ahead = timedelta(seconds=view.look_again_seconds + view.sure_after_seconds)
    soon = now + ahead >= _last_safe(view, view.deadline_at, view.remaining_seconds)
    return soon and not _estimate_agrees(view, view.deadline_at, now)


def _is_sure(view: DeadlineView, now: datetime) -> bool:
    """Whether the last safe moment rests on more than one look at the pace of a few steps."""
    if view.deadline_at is None or view.sure_after_seconds == 0:
        return True
    if _estimate_agrees(view, view.deadline_at, now):
        return True
    since = view.slower_since_at
    return since is not None and now >= since + timedelta(seconds=view.sure_after_seconds)


def _estimate_agrees(view: DeadlineView, deadline_at: datetime, now: datetime) -> bool:
    """Whether the last safe moment by the estimate has come too; without one nothing says so."""
    if view.estimated_seconds is None:
        return False
    last = _last_safe(view, deadline_at, view.estimated_seconds)
    return now + timedelta(seconds=view.look_again_seconds) >= last


def _past_the_last_safe_moment(
    view: DeadlineView, last_safe_at: datetime, now: datetime
) -> DeadlineDecision:
    promised_until_at = last_safe_at
    if view.on_demand_allowed and (view.moving_to_on_demand or view.on_demand_registered):
        # The request is under way: it may take all of its reserve before the promise breaks.
        promised_until_at += timedelta(seconds=view.start.acquire_reserve_seconds)
    unsafe = promised_until_at if now > promised_until_at else None
    if not view.on_demand_allowed:
        return DeadlineDecision(
            DeadlineAction.SPOT,
            "The deadline is no longer safe and the job may not use on-demand machines; "
            "set market to auto to allow them.",
            last_safe_at,
            unsafe,
        )
    if view.on_demand_registered:
        if view.running_on is None:
            action, what = DeadlineAction.STAY_ON_DEMAND, "the next attempt starts on them"
        else:
            action, what = DeadlineAction.YIELD_TO_ON_DEMAND, "the spot attempt saves and stops"
        return DeadlineDecision(
            action, f"On-demand machines are registered: {what}.", last_safe_at, unsafe
        )
    meanwhile = (
        "the spot attempt continues until they are registered"
        if view.running_on is not None
        else "the job waits for them"
    )
    return DeadlineDecision(
        DeadlineAction.ACQUIRE_ON_DEMAND,
        f"The last safe moment has come: on-demand machines are needed now, {meanwhile}.",
        last_safe_at,
        unsafe,
    )


def _on_demand(view: DeadlineView, now: datetime) -> DeadlineDecision:
    """On-demand work is safe while what is left fits, without getting machines again."""
    if view.deadline_at is None or view.remaining_seconds is None:
        return DeadlineDecision(DeadlineAction.STAY_ON_DEMAND, "The job runs on-demand.")
    needs = view.remaining_seconds + view.start_left_seconds
    must_train_by = view.deadline_at - timedelta(seconds=needs)
    if now <= must_train_by:
        slack = format_duration((must_train_by - now).total_seconds())
        return DeadlineDecision(
            DeadlineAction.STAY_ON_DEMAND, f"The job runs on-demand with {slack} to spare."
        )
    late = format_duration((now - must_train_by).total_seconds())
    return DeadlineDecision(
        DeadlineAction.STAY_ON_DEMAND,
        f"The job runs on-demand and will end about {late} after its deadline.",
        None,
        must_train_by,
    )


def _missed(deadline_at: datetime, now: datetime) -> DeadlineDecision:
    late = format_duration((now - deadline_at).total_seconds())
    return DeadlineDecision(
        DeadlineAction.SPOT,
        f"The deadline passed {late} ago; the job continues at the lowest price.",
        None,
        deadline_at,
    )


def _last_safe(view: DeadlineView, deadline_at: datetime, remaining_seconds: int) -> datetime:
    return last_safe_moment(deadline_at, remaining_seconds, view.start)
