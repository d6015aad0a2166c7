"""What a job would cost and when it would end, before it is submitted: many imagined runs of it.

Lives here: the imagined run and the figures over many of them. It decides as the product does: the
cheapest pool that has machines, waiting where none has, on-demand machines from the last safe
moment on. Not here: lifetimes of pools (`pool_life`), the rule of the last safe moment
(`deadline_policy`), or where prices and experience come from (`app.orchestration`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.domain.pool_life import (
    BACK_PER_HOUR,
    NO_EXPERIENCE,
    TAKEN_PER_HOUR,
    Experience,
    empty_chance,
    hazard_factor,
    seconds_until,
)

PATHS = 1_000
TURNS_MAX = 2_000
"""Machines that one imagined run may lose; a run that loses more counts as never ending."""

CURVE_FACTORS = (1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)
CURVE_PATHS = 200
TURNS_PER_PATH = 20
PATHS_LEAST = 20
"""A long job takes many machines in each run, and its runs differ little: fewer of them tell as
much. Without this bound one question takes minutes."""


@dataclass(frozen=True)
class PoolQuote:
    """A pool that fits: its price per hour for the whole gang, and what is known of its life.

    speed: work done in a second, relative to the machine that `Question.work_seconds` is told for.
    """

    key: str
    microusd_per_hour: int
    speed: float = 1.0
    experience: Experience = NO_EXPERIENCE


@dataclass(frozen=True)
class Question:
    """One job. Durations in seconds, money in micro-USD for the whole gang.

    spot: pools that fit, cheapest work first. on_demand: None where it is not allowed or not had.
    boot_seconds: from the request to training, each time a machine is rented, restore included.
    rework_seconds: work lost with a machine that is taken without a notice in time.
    """

    work_seconds: float
    spot: tuple[PoolQuote, ...]
    on_demand: PoolQuote | None
    boot_seconds: float
    acquire_seconds: float
    rework_seconds: float = 0.0
    deadline_seconds: float | None = None
    budget_microusd: int | None = None


@dataclass(frozen=True)
class Outcome:
    """One imagined run: `finish_seconds` is infinite when it never ends."""

    microusd: float
    finish_seconds: float
    interruptions: int


@dataclass(frozen=True)
class Estimate:
    """Figures over many runs of one way to rent.

    Chances are None where there is no deadline or budget. `finish_p90_seconds` may be infinite.
    """

    market: str
    cost_p50_microusd: int
    cost_p90_microusd: int
    finish_p50_seconds: float
    finish_p90_seconds: float
    interruptions_mean: float
    deadline_chance: float | None
    budget_chance: float | None

    @property
    def risk_chance(self) -> float:
        """The smaller of the two chances; 1 where nothing was promised."""
        return min(
            (c for c in (self.deadline_chance, self.budget_chance) if c is not None), default=1.0
        )


@dataclass(frozen=True)
class CurvePoint:
    """What a deadline costs: `estimate` of the product's own way, for that deadline."""

    deadline_seconds: float
    estimate: Estimate


def estimates(
    question: Question, draw: Callable[[], float], paths: int = PATHS
) -> tuple[Estimate, ...]:
    """Auto (as the product does), spot alone, and on-demand alone, as far as each is possible.

    draw: uniform in [0, 1); a seeded one gives the same figures again.
    """
    found = []
    if question.spot and question.on_demand is not None and question.deadline_seconds is not None:
        found.append(estimate("auto", question, draw, paths))
    if question.spot:
        found.append(estimate("spot", replace(question, on_demand=None), draw, paths))
    if question.on_demand is not None:
        found.append(estimate("on_demand", replace(question, spot=()), draw, 1))
    return tuple(found)


def deadline_curve(question: Question, draw: Callable[[], float]) -> tuple[CurvePoint, ...]:
    """The cost of deadlines from just possible to leisurely; empty where spot cannot be left."""
    if not question.spot or question.on_demand is None:
        return ()
    shortest = earliest_finish_seconds(question)
    points = []
    for factor in CURVE_FACTORS:
        asked = replace(question, deadline_seconds=shortest * factor)
        found = estimate("auto", asked, draw, CURVE_PATHS)
        points.append(CurvePoint(shortest * factor, found))
    return tuple(points)


def earliest_finish_seconds(question: Question) -> float:
    """When the work could be done with on-demand machines from the first moment on.

    ValueError where no on-demand pool is at hand: then nothing can be said.
    """
    if question.on_demand is None:
        raise ValueError("the earliest finish is that of on-demand machines, and there are none")
    work = question.work_seconds / question.on_demand.speed
    return question.acquire_seconds + question.boot_seconds + work


def estimate(
    market: str, question: Question, draw: Callable[[], float], paths: int = PATHS
) -> Estimate:
    """Figures over at most `paths` imagined runs; P50 and P90 by nearest rank."""
    runs = _imagined_runs(question, draw, paths)
    costs = sorted(run.microusd for run in runs)
    finishes = sorted(run.finish_seconds for run in runs)
    deadline, budget = question.deadline_seconds, question.budget_microusd
    return Estimate(
        market=market,
        cost_p50_microusd=round(_rank(costs, 0.5)),
        cost_p90_microusd=round(_rank(costs, 0.9)),
        finish_p50_seconds=_rank(finishes, 0.5),
        finish_p90_seconds=_rank(finishes, 0.9),
        interruptions_mean=sum(run.interruptions for run in runs) / len(runs),
        deadline_chance=_share([run.finish_seconds <= deadline for run in runs])
        if deadline
        else None,
        budget_chance=_share([run.microusd <= budget for run in runs]) if budget else None,
    )


def _imagined_runs(question: Question, draw: Callable[[], float], most: int) -> list[Outcome]:
    """At most so many runs, and fewer where each takes long to imagine."""
    runs: list[Outcome] = []
    turns = 0
    while len(runs) < most and (turns < most * TURNS_PER_PATH or len(runs) < PATHS_LEAST):
        runs.append(imagined_run(question, draw))
        turns += runs[-1].interruptions + 1
    return runs


def imagined_run(question: Question, draw: Callable[[], float]) -> Outcome:
    """One run from submission to end."""
    now, left, spent, taken = 0.0, question.work_seconds, 0.0, 0
    for _ in range(TURNS_MAX):
        wait_most = _wait_most(question, now, left)
        if not question.spot or wait_most <= 0:
            return _on_demand(question, now, left, spent, taken)
        pool, waited = _next_pool(question.spot, draw)
        if waited > wait_most:
            return _on_demand(question, now + wait_most, left, spent, taken)
        now += waited
        life = seconds_until(TAKEN_PER_HOUR, hazard_factor(pool.experience), draw())
        needed = question.boot_seconds + left / pool.speed
        used = min(life, needed)
        spent += pool.microusd_per_hour * used / 3_600
        now += used
        if used >= needed:
            return Outcome(spent, now, taken)
        taken += 1
        worked = max(0.0, used - question.boot_seconds) * pool.speed
        left -= max(0.0, worked - question.rework_seconds * draw())
    return Outcome(spent, math.inf, taken)


def _wait_most(question: Question, now: float, left: float) -> float:
    """How long on-demand may still be put off; infinite without deadline or on-demand pool."""
    if question.deadline_seconds is None or question.on_demand is None:
        return math.inf
    needed = question.acquire_seconds + question.boot_seconds + left / question.on_demand.speed
    # A spot machine that is taken while it boots has used the time without any work.
    return question.deadline_seconds - needed - question.boot_seconds - now


def _on_demand(question: Question, now: float, left: float, spent: float, taken: int) -> Outcome:
    pool = question.on_demand
    if pool is None:
        return Outcome(spent, math.inf, taken)
    used = question.boot_seconds + left / pool.speed
    return Outcome(spent + pool.microusd_per_hour * used / 3_600, now + used, taken)


def _next_pool(pools: Sequence[PoolQuote], draw: Callable[[], float]) -> tuple[PoolQuote, float]:
    """The first pool that has machines, else the first to have some again, and the wait for it."""
    for pool in pools:
        if draw() >= empty_chance(pool.experience):
            return pool, 0.0
    waits = [(seconds_until(BACK_PER_HOUR, 1.0, draw()), place) for place in range(len(pools))]
    waited, place = min(waits)
    return pools[place], waited


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _share(met: Sequence[bool]) -> float:
    return sum(met) / len(met)
