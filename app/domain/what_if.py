"""What a job would cost and when it would end, before it is submitted: many imagined runs of it.

Lives here: the figures over many runs. Not here: one run (`imagined_run`), the pools it meets
(`imagined_pools`), or where prices and experience come from (`app.orchestration`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.domain.imagined_pools import posterior
from app.domain.imagined_run import Outcome, Question, imagined_run

PATHS = 1_000
CURVE_FACTORS = (1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)
CURVE_PATHS = 200
TURNS_PER_PATH = 20
COST_MARGIN = 1.01
"""On the P90 of cost: whole billed ticks, and restarts between markets that the imagined rule does
not make. This and the shares below were fitted to replays, `lowtide backtest --calibration`."""

WAITS_SHARE_ALONE = 0.67
WAITS_SHARE = 0.985
"""How far towards the deadline the P90 of the finish lies from the imagined one, with one pool and
with several: while it has slack, the product waits for better machines whenever that costs less."""

PATHS_LEAST = 20
"""A long job takes many machines in each run, and its runs differ little: fewer of them tell as
much. Without this bound one question takes minutes."""


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
    chosen = COST_MARGIN if question.spot and question.on_demand is not None else 1.0
    return Estimate(
        market=market,
        cost_p50_microusd=round(_rank(costs, 0.5)),
        cost_p90_microusd=round(_rank(costs, 0.9) * chosen),
        finish_p50_seconds=_rank(finishes, 0.5),
        finish_p90_seconds=_with_waits(question, _rank(finishes, 0.9)),
        interruptions_mean=sum(run.interruptions for run in runs) / len(runs),
        deadline_chance=_share([run.finish_seconds <= deadline for run in runs])
        if deadline
        else None,
        budget_chance=_share([run.microusd <= budget for run in runs]) if budget else None,
    )


def _with_waits(question: Question, finish_seconds: float) -> float:
    """A P90 of the imagined rule, with what the product waits on purpose while there is slack."""
    deadline = question.deadline_seconds
    if deadline is None or question.on_demand is None or not question.spot:
        return finish_seconds
    share = WAITS_SHARE_ALONE if len(question.spot) == 1 else WAITS_SHARE
    return finish_seconds + share * max(0.0, deadline - finish_seconds)


def _imagined_runs(question: Question, draw: Callable[[], float], most: int) -> list[Outcome]:
    """At most so many runs, and fewer where each takes long to imagine."""
    runs: list[Outcome] = []
    turns = 0
    known = [posterior(pool.experience) for pool in question.spot]
    while len(runs) < most and (turns < most * TURNS_PER_PATH or len(runs) < PATHS_LEAST):
        runs.append(imagined_run(question, known, draw))
        turns += runs[-1].interruptions + 1
    return runs


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _share(met: Sequence[bool]) -> float:
    return sum(met) / len(met)
