"""Replays policies over cells, one process or several, and gives one row per cell and policy.

Here: windows, optimum and rows. Not here: reading the plan (`cells`), or showing rows (`report`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.adapters.seeded_draws import seeded_draws
from app.backtest.baselines import (
    CheapestUniformProgress,
    Evolved,
    Greedy,
    OnDemandOnly,
    UniformProgress,
)
from app.backtest.cells import Cell, ComparisonPlan, PoolSetting, cells_of
from app.backtest.lowtide import Lowtide
from app.backtest.optimum import optimum_by_tick
from app.backtest.policy_view import Briefing, PolicyMaker, Terms, ticks_left
from app.backtest.replay import PoolVisibility, Replay
from app.backtest.skynomad import SkyNomad
from app.backtest.traces import TraceProblem, Window, cut_window, read_trace
from app.domain.availability.hazard_by_age import AGE_EDGES_SECONDS, NO_EXPERIENCE, Experience
from app.domain.billing.billing_rules import BillingRules
from app.domain.estimate.job_estimate import Forecast, estimate
from app.domain.estimate.simulated_run import EstimateInput, PoolQuote

OWN: Final = "lowtide"
POLICIES: Final[dict[str, PolicyMaker]] = {
    "on_demand": OnDemandOnly,
    "greedy": Greedy,
    "uniform_progress": UniformProgress,
    "evolved": Evolved,
    "skynomad": SkyNomad,
    "up_s": CheapestUniformProgress,
    OWN: Lowtide,
}

Row = dict[str, Any]
"""One line of the result; its keys are what `--json` writes."""

PATHS: Final = 200
_SEED: Final = 1
_MICRO: Final = 1_000_000


@dataclass(frozen=True)
class Conditions:
    """How cells are replayed. The extras cost nothing where they are 0 or None.

    history_hours: how much of the recording before the start a policy may see. calibration: rows of
    Lowtide's own policy also tell what the product would have foretold. learns_start_up: Lowtide's
    own policy is not told the job's start-up; the others are.
    """

    traces: Path
    policies: tuple[str, ...]
    information: PoolVisibility = PoolVisibility.VISIBLE
    history_hours: float = 0.0
    checkpoint_hours: float = 0.0
    egress_usd: float = 0.0
    transfer_hours: float = 0.0
    billing: BillingRules | None = None
    calibration: bool = False
    learns_start_up: bool = False


@dataclass
class CellResults:
    """Rows of the cells that could be replayed, and a sentence for each group that could not."""

    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run_plan(
    plan: ComparisonPlan,
    setting: PoolSetting,
    conditions: Conditions,
    processes: int,
    told: Callable[[int, int], None],
) -> CellResults:
    """Every cell of the plan; `told(done, of)` is called with jobs replayed so far."""
    findings = CellResults()
    batches: list[list[Cell]] = []
    for group in plan.groups:
        try:
            trace = read_trace(conditions.traces / group.file)
            batches.extend(_batches(list(cells_of(group, trace, plan, setting))))
        except TraceProblem as problem:
            findings.problems.append(str(problem))
    total = sum(map(len, batches)) * len(conditions.policies)
    told(0, total)
    parts: dict[int, list[Row]] = {}
    for number, rows in _finished(batches, conditions, processes):
        parts[number] = rows
        told(sum(map(len, parts.values())), total)
    findings.rows = [row for number in sorted(parts) for row in parts[number]]
    return findings


def _batches(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that share a window and an optimum, but for the slack."""
    by_window: dict[tuple[str, int, float], list[Cell]] = {}
    for cell in cells:
        by_window.setdefault((cell.zone, cell.start, cell.restart_seconds), []).append(cell)
    # One restart after the other: value tables are shared by jobs with equal ones.
    return sorted(by_window.values(), key=lambda batch: batch[0].restart_seconds)


def _finished(
    batches: list[list[Cell]], conditions: Conditions, processes: int
) -> Iterator[tuple[int, list[Row]]]:
    if processes == 1 or len(batches) < 2:
        yield from ((number, run_batch(batch, conditions)) for number, batch in enumerate(batches))
        return
    # Fresh processes: a fork would copy whatever threads the caller has.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        asked = {
            pool.submit(run_batch, batch, conditions): number
            for number, batch in enumerate(batches)
        }
        for done in as_completed(asked):
            yield asked[done], done.result()


def run_batch(batch: Sequence[Cell], conditions: Conditions) -> list[Row]:
    """Rows of cells that differ in their slack only."""
    first = batch[0]
    trace = read_trace(conditions.traces / first.group.file)
    past_ticks = math.ceil(conditions.history_hours * 3600 / trace.gap_seconds)
    window = cut_window(trace, first.pools, first.group.gang, first.start, first.ticks, past_ticks)
    optimum = _optimum(window, first)
    rows = []
    for cell in batch:
        terms = Terms(
            job_seconds=cell.job_hours * 3600,
            deadline_seconds=cell.slack * cell.job_hours * 3600,
            overhead_seconds=cell.restart_seconds,
            start_up_seconds=cell.start_up_seconds,
            checkpoint_seconds=conditions.checkpoint_hours * 3600,
            egress_usd=conditions.egress_usd,
            transfer_seconds=conditions.transfer_hours * 3600,
        )
        least = float(optimum[min(ticks_left(terms, 0, window.tick_seconds), len(optimum) - 1)])
        for name in conditions.policies:
            rows.append(_row(cell, window, terms, name, least, conditions))
    return rows


def on_demand_cost(window: Window, terms: Terms) -> float:
    """$ for the whole job on on-demand machines, in whole ticks."""
    seconds = terms.job_seconds + terms.overhead_seconds
    ticks = math.ceil(seconds / window.tick_seconds - 1e-9)
    return ticks * window.tick_seconds / 3600 * window.on_demand


def _optimum(window: Window, cell: Cell) -> NDArray[np.float64]:
    return optimum_by_tick(
        window.up,
        window.prices,
        window.on_demand,
        window.tick_seconds,
        cell.restart_seconds,
        cell.job_hours * 3600,
    )


def _row(
    cell: Cell, window: Window, terms: Terms, name: str, least: float, conditions: Conditions
) -> Row:
    briefing = Briefing(
        pools=window.pools,
        tick_seconds=window.tick_seconds,
        on_demand=window.on_demand,
        terms=terms,
        past_up=window.past_up,
        past_prices=window.past_prices,
    )
    replay = Replay(window, terms, conditions.information, conditions.billing)
    if name == OWN and conditions.learns_start_up:
        outcome = replay.run(Lowtide(briefing, told_start_up=False))
    else:
        outcome = replay.run(POLICIES[name](briefing))
    row = {
        "group": cell.group.name,
        "zone": cell.zone,
        "start": cell.start,
        "slack": cell.slack,
        "overhead_hours": cell.overhead_hours,
        "start_up_seconds": cell.start_up_seconds,
        "policy": name,
        "cost_usd": round(outcome.cost_usd, 6),
        "on_demand_usd": round(on_demand_cost(window, terms), 6),
        # A waiver pays for machines that the optimum was charged for: no bound any more.
        "optimum_usd": None if conditions.billing is not None else round(least, 6),
        "missed": outcome.missed,
        "launches": outcome.launches,
        "probes": outcome.probes,
        "finish_hours": None
        if outcome.finish_seconds is None
        else round(outcome.finish_seconds / 3600, 4),
        "spot_hours": round(outcome.spot_hours, 4),
        "on_demand_hours": round(outcome.on_demand_hours, 4),
        "lost_work_hours": round(outcome.lost_work_hours, 4),
    }
    return row | _foretold(window, terms) if conditions.calibration and name == OWN else row


def _foretold(window: Window, terms: Terms) -> Row:
    told = foretold(window, terms)
    return {
        "cost_p50_usd": round(told.cost_p50_microusd / 1e6, 6),
        "cost_p90_usd": round(told.cost_p90_microusd / 1e6, 6),
        "finish_p50_hours": round(told.finish_p50_seconds / 3600, 4),
        "finish_p90_hours": round(told.finish_p90_seconds / 3600, 4),
    }


def foretold(window: Window, terms: Terms) -> Forecast:
    """The product's estimate for a job that begins with the window, prices as in its first tick."""
    quotes = [
        PoolQuote(
            key=pool,
            microusd_per_hour=round(float(window.prices[row, 0]) * _MICRO),
            experience=experience(window.past_up[row], window.tick_seconds),
        )
        for row, pool in enumerate(window.pools)
    ]
    question = EstimateInput(
        work_seconds=terms.job_seconds,
        spot=tuple(sorted(quotes, key=lambda quote: quote.microusd_per_hour)),
        on_demand=PoolQuote("on-demand", round(window.on_demand * _MICRO)),
        boot_seconds=terms.overhead_seconds,
        acquire_seconds=0.0,
        rework_seconds=terms.checkpoint_seconds,
        deadline_seconds=terms.deadline_seconds,
    )
    return estimate("auto", question, seeded_draws(_SEED), PATHS)


def experience(past_up: NDArray[np.bool_], tick_seconds: int) -> Experience:
    """A pool's past as one machine after the other there would have known it.

    A launch for each time up and each outage, refused in proportion to the time without capacity.
    """
    if not len(past_up):
        return NO_EXPERIENCE
    lived, taken = [0.0] * (len(AGE_EDGES_SECONDS) + 1), [0] * (len(AGE_EDGES_SECONDS) + 1)
    changes = (np.flatnonzero(np.diff(past_up.astype(int))) + 1).tolist()
    ends = [*changes, len(past_up)]
    for begin, end in zip([0, *changes], ends, strict=True):
        if not past_up[begin]:
            continue
        seconds, younger = float(end - begin) * tick_seconds, 0.0
        for age, older in enumerate((*AGE_EDGES_SECONDS, math.inf)):
            lived[age] += max(0.0, min(seconds, older) - younger)
            taken[age] += younger < seconds <= older and end < len(past_up)
            younger = older
    launches = len(ends)
    refused = round(launches * (1 - float(past_up.mean())))
    return Experience(tuple(lived), tuple(taken), launches, refused)
