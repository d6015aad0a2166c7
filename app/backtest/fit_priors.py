"""Fits how common each hazard model is among recorded pools: the weights of `hazard_models`.

    python -m app.backtest.fit_priors --traces DIR [--without FILE]

Each recording is cut into pieces of PIECE_HOURS, in which evidence is forgotten as beliefs forget
it; the weights of a mixture of the models are then fitted to all pieces by expectation
maximisation. One block is for pools alone, one for sets of two and more pools of a recording, up
while any is. `--without` leaves a recording out, to see what hangs on it.
Here: that fit. Not here: the models (`availability.pool_hazards`), or the replay that judges it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.backtest.cells import PlanOverrides, PoolSetting, read_plan
from app.backtest.traces import TraceProblem, read_trace
from app.domain.availability.hazard_belief import HazardBelief
from app.domain.availability.pool_hazards import MODELS

Floats = NDArray[np.float64]
Recording = tuple[NDArray[np.bool_], int]
"""[pools, ticks] up or down, and the seconds of a tick."""

PIECE_HOURS: Final = 120.0
"""As much of a past as a replay with history shows."""

ROUNDS: Final = 20
FLOORS: Final = (0.002, 0.001)
"""The least weight of a model, for pools and for sets of them: none is ever ruled out."""

_SET_SIZE_MAX: Final = 3


def fit(pieces: Iterable[Recording], floor: float) -> Floats:
    """Weights of the models, summing to 1; each row of a piece is one pool."""
    likelihoods = [_log_likelihoods(up, tick) for up, tick in pieces]
    logs = np.concatenate(likelihoods)
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights = np.full(MODELS.count, 1 / MODELS.count)
    for _ in range(ROUNDS):
        shares = chances * weights
        shares /= shares.sum(axis=1, keepdims=True)
        weights = np.maximum(shares.mean(axis=0), floor)
        weights /= weights.sum()
    return weights


def pieces_of(recordings: Sequence[Recording]) -> Iterator[Recording]:
    """Each recording in pieces of PIECE_HOURS; what is left at the end is not used."""
    for up, tick in recordings:
        length = round(PIECE_HOURS * 3600 / tick)
        for begin in range(0, up.shape[1] - length + 1, length):
            yield up[:, begin : begin + length], tick


def together(recordings: Sequence[Recording]) -> list[Recording]:
    """All sets of two and three pools of each recording, and the set of all, as one row each."""
    found = []
    for up, tick in recordings:
        pools = range(len(up))
        sets = {tuple(pools)} - {(0,)}
        for size in range(2, min(_SET_SIZE_MAX, len(up)) + 1):
            sets |= set(combinations(pools, size))
        rows = [up[list(chosen)].any(axis=0) for chosen in sorted(sets)]
        if rows:
            found.append((np.array(rows), tick))
    return found


def recordings_of(traces: Path, without: str | None) -> list[Recording]:
    """What the one-zone groups of the folder's groups file name. Raises TraceProblem."""
    plan = read_plan(traces / "groups.json", PoolSetting.ONE_ZONE, PlanOverrides())
    found = []
    for group in plan.groups:
        if group.file != without:
            trace = read_trace(traces / group.file)
            found.append((trace.counts >= group.gang, trace.gap_seconds))
    if not found:
        raise TraceProblem(f"{traces}: no recording is left to fit to")
    return found


def _log_likelihoods(up: NDArray[np.bool_], tick_seconds: int) -> Floats:
    """[pools, models]."""
    belief = HazardBelief(len(up), np.zeros(MODELS.count))
    belief.learn(up, tick_seconds)
    return belief.evidence


def main() -> None:
    """Print both priors as rows of data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=Path, required=True, help="folder with groups.json")
    parser.add_argument("--without", help="leave this .npz file out")
    asked = parser.parse_args()
    try:
        alone = recordings_of(asked.traces, asked.without)
    except TraceProblem as problem:
        parser.exit(2, f"{problem}\n")
    for name, recordings, floor in zip(
        ("pools alone", "several pools"), (alone, together(alone)), FLOORS, strict=True
    ):
        print(f"{name}:")
        for row in fit(pieces_of(recordings), floor).reshape(5, 5).tolist():
            print("    (" + ", ".join(f"{weight:.3f}" for weight in row) + "),")


if __name__ == "__main__":
    main()
