"""What a job would cost and when it would end, before it is submitted: many simulated runs of it.

Lives here: the figures over many runs. Not here: one run (`simulated_run`), the pools it meets
(`simulated_pools`), or where prices and experience come from (`app.orchestration`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.domain.availability.hazard_models import posterior
from app.domain.estimate.simulated_run import TURNS_MAX, EstimateInput, SimulatedRun, simulated_run

PATHS = 1_000
CURVE_FACTORS = (1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)
CURVE_PATHS = 200
TURNS_MOST = 10_000
CURVE_TURNS = 1_200
CURVE_TURNS_MAX = 100
"""Machines that all runs of one question, and of one point of the curve, lose together at most: a
long job takes many in each run, and its runs differ little, so that fewer of them tell as much.
Also what one run of the curve loses one by one; other runs as of `simulated_run.TURNS_MAX`."""

COST_MARGIN_ALONE = 1.01
COST_MARGIN = 1.045
"""On the P90 of cost, with one pool and with several: whole billed ticks, and restarts between
markets that the simulated rule does not make. These and the shares below were fitted to replays,
`lowtide backtest --calibration`."""

WAITS_SHARE_ALONE = 0.4
WAITS_SHARE = 0.87
"""How far towards the deadline the P90 of the finish lies from the simulated one, with one pool and
with several: while it has slack, the product waits for better machines whenever that costs less."""

PATHS_LEAST = 20
"""However many machines each run loses; one is simulated up to `simulated_run.TURNS_MAX` of
them."""


@dataclass(frozen=True)
class Forecast:
    """Figures over many runs of one way to rent.

    A finish counts machines that start when they are asked for; chances keep the reserve for
    getting on-demand ones. They are None where there is no deadline or budget; kept_chance: of
    keeping all that was promised. `finish_p90_seconds` may be infinite.
    `simulated_finish_p90_seconds`: that of the runs as they were simulated, where the other one has
    the waits added that replays have shown.
    """

    market: str
    cost_p50_microusd: int
    cost_p90_microusd: int
    finish_p50_seconds: float
    finish_p90_seconds: float
    simulated_finish_p90_seconds: float
    interruptions_mean: float
    deadline_chance: float | None
    budget_chance: float | None
    kept_chance: float


@dataclass(frozen=True)
class CurvePoint:
    """What a deadline costs: `estimate` of the product's own way, for that deadline."""

    deadline_seconds: float
    estimate: Forecast


def estimates(
    question: EstimateInput, draw: Callable[[], float], paths: int = PATHS, *, compare: bool = True
) -> tuple[Forecast, ...]:
    """Auto (as the product does), spot alone, and on-demand alone, as far as each is possible.

    draw: uniform in [0, 1); a seeded one gives the same figures again. compare: else the first of
    these alone, which is the product's own way.
    """
    found = []
    if question.spot and question.on_demand is not None and question.deadline_seconds is not None:
        found.append(estimate("auto", question, draw, paths))
        if not compare:
            return tuple(found)
    if question.spot:
        found.append(estimate("spot", replace(question, on_demand=None), draw, paths))
        if not compare:
            return tuple(found)
    if question.on_demand is not None:
        found.append(estimate("on_demand", replace(question, spot=()), draw, 1))
    return tuple(found)


def deadline_curve(question: EstimateInput, draw: Callable[[], float]) -> tuple[CurvePoint, ...]:
    """The cost of deadlines from just possible to leisurely; empty where spot cannot be left."""
    if not question.spot or question.on_demand is None:
        return ()
    shortest = earliest_finish_seconds(question)
    replayed = _Tapes(draw)
    points: list[CurvePoint] = []
    for factor in CURVE_FACTORS:
        asked = replace(question, deadline_seconds=shortest * factor)
        found = _figures("auto", asked, _curve_runs(asked, replayed))
        if points:
            # Who has more time may go on as with less, so that it never has to cost more.
            before = points[-1].estimate
            found = replace(
                found,
                cost_p50_microusd=min(found.cost_p50_microusd, before.cost_p50_microusd),
                cost_p90_microusd=min(found.cost_p90_microusd, before.cost_p90_microusd),
            )
        points.append(CurvePoint(shortest * factor, found))
    return tuple(points)


def _curve_runs(question: EstimateInput, replayed: _Tapes) -> list[SimulatedRun]:
    draws = replayed.of_path
    return _simulated_runs(question, draws, CURVE_PATHS, CURVE_TURNS, CURVE_TURNS_MAX)


class _Tapes:
    """The same draws for the nth path of every point, so that points differ by deadline alone."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._tapes: list[list[float]] = []

    def of_path(self, path: int) -> Callable[[], float]:
        """The path's draws from their beginning; what nobody drew before is drawn and kept."""
        while len(self._tapes) <= path:
            self._tapes.append([])
        tape, place = self._tapes[path], 0

        def replay() -> float:
            nonlocal place
            if place == len(tape):
                tape.append(self._draw())
            place += 1
            return tape[place - 1]

        return replay


def earliest_finish_seconds(question: EstimateInput) -> float:
    """When the work is done at the latest, with on-demand machines from the first moment on.

    The reserve for getting them is part of it, as of the shortest deadline that they keep.

    ValueError where no on-demand pool is at hand: then nothing can be said.
    """
    if question.on_demand is None:
        raise ValueError("no on-demand machine fits, so there is no earliest finish")
    work = question.work_seconds / question.on_demand.speed
    return question.acquire_seconds + question.boot_seconds + work


def estimate(
    market: str, question: EstimateInput, draw: Callable[[], float], paths: int = PATHS
) -> Forecast:
    """Figures over at most `paths` simulated runs; P50 and P90 by nearest rank."""
    return _figures(
        market, question, _simulated_runs(question, lambda _path: draw, paths, TURNS_MOST)
    )


def _figures(market: str, question: EstimateInput, runs: Sequence[SimulatedRun]) -> Forecast:
    costs = sorted(run.microusd for run in runs)
    finishes = sorted(run.finish_seconds for run in runs)
    deadline, budget = question.deadline_seconds, question.budget_microusd
    in_time = [not deadline or run.meets(deadline) for run in runs]
    within = [not budget or run.microusd <= budget for run in runs]
    margin = 1.0
    if question.spot and question.on_demand is not None:
        margin = COST_MARGIN_ALONE if len(question.spot) == 1 else COST_MARGIN
    return Forecast(
        market=market,
        cost_p50_microusd=round(_rank(costs, 0.5)),
        cost_p90_microusd=round(_rank(costs, 0.9) * margin),
        finish_p50_seconds=_rank(finishes, 0.5),
        finish_p90_seconds=_with_waits(question, _rank(finishes, 0.9)),
        simulated_finish_p90_seconds=_rank(finishes, 0.9),
        interruptions_mean=sum(run.interruptions for run in runs) / len(runs),
        deadline_chance=_share(in_time) if deadline else None,
        budget_chance=_share(within) if budget else None,
        kept_chance=_share([all(both) for both in zip(in_time, within, strict=True)]),
    )


def _with_waits(question: EstimateInput, finish_seconds: float) -> float:
    """A P90 of the simulated rule, with what the product waits on purpose while there is slack."""
    deadline = question.deadline_seconds
    if deadline is None or question.on_demand is None or not question.spot:
        return finish_seconds
    share = WAITS_SHARE_ALONE if len(question.spot) == 1 else WAITS_SHARE
    return finish_seconds + share * max(0.0, deadline - finish_seconds)


def _simulated_runs(
    question: EstimateInput,
    draws: Callable[[int], Callable[[], float]],
    most: int,
    turns_most: int,
    turns_max: int = TURNS_MAX,
) -> list[SimulatedRun]:
    """At most so many runs, and fewer where each takes long to simulate; draws: of each path."""
    runs: list[SimulatedRun] = []
    turns = 0
    known = [posterior(pool.experience) for pool in question.spot]
    while len(runs) < most and (turns < turns_most or len(runs) < PATHS_LEAST):
        runs.append(simulated_run(question, known, draws(len(runs)), turns_max))
        turns += min(turns_max, math.ceil(runs[-1].interruptions) + 1)
    return runs


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _share(met: Sequence[bool]) -> float:
    return sum(met) / len(met)
