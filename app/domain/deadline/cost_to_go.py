"""What a job costs from here on: value tables over time left, slack left, machine and capacity.

For each hazard model a finite-horizon Markov decision process is solved backwards: in each step
the job waits, runs on spot while capacity lasts, or on on-demand; restarts take time without
progress. Values are in units of the on-demand price, so that one table serves all jobs with the
same price ratio and restart, whatever their length. Here: the solution and its look-up. Not here:
beliefs (`pool_hazards`), or the choice (`placement_choice`).

Slack is time left minus work left: waiting uses it up, running keeps it, a restart takes as
much of it as it lasts. Below zero the deadline is lost, at MISS_PRICE per hour.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.availability.pool_hazards import MODELS, PHASES

Floats = NDArray[np.float32]

MISS_PRICE: Final = 5.0
"""Price of an hour of work that no longer fits, in on-demand hours."""

HORIZONS: Final = (138, 276, 552)
"""Steps that a table covers; the shortest with which a job's time fits is solved."""

SLACK_MAX: Final = 276
"""With more steps of slack than this, or than the horizon, a job waits as if it had just these."""

START_STEPS_MAX: Final = 3

_LAYER_STRIDE: Final = 3
_FINE_SLACK: Final = 30
_SLACK_STRIDE: Final = 6
_STEP_LADDER: Final = (60, 120, 300, 600, 1200, 2400, 4800, 9600, 19200)

IDLE: Final = slice(0, 2 * PHASES)
SPOT: Final = slice(2 * PHASES, 3 * PHASES)
ON_DEMAND: Final = slice(3 * PHASES, 5 * PHASES)


def plan_steps(time_left_seconds: float, restart_seconds: float) -> tuple[int, int]:
    """Seconds of a planning step, and how many the table needs.

    The step is the shortest of a ladder with which the time left and a restart fit.
    """
    seconds = next(
        (
            seconds
            for seconds in _STEP_LADDER
            if time_left_seconds <= seconds * (HORIZONS[-1] - 2)
            and restart_seconds <= seconds * START_STEPS_MAX
        ),
        _STEP_LADDER[-1],
    )
    needed = time_left_seconds / seconds
    return seconds, next((steps for steps in HORIZONS if needed <= steps - 2), HORIZONS[-1])


@dataclass(frozen=True)
class CostTable:
    """Expected cost in on-demand hours, [layers, slacks, models, states].

    States: idle by phase (up, then down), running on spot by up phase, on-demand by phase, then
    starting on spot, for each step of a start but its last, by up phase.
    """

    step_seconds: int
    restart_steps: float
    price_ratio: float
    values: Floats
    transitions: Floats  # [models, phases, phases]

    def expected(self, steps_left: float, slack: float, states: slice, chances: Floats) -> float:
        """On-demand hours from this point on; chances [models, states] of being in each.

        Between the stored points by interpolation.
        """
        layer = min(max(steps_left, 0.0) / _LAYER_STRIDE, len(self.values) - 1.0)
        row = min(_slack_row(max(slack, 0.0)), self.values.shape[1] - 1.0)
        upper, left = min(int(layer), len(self.values) - 2), min(int(row), self.values.shape[1] - 2)
        deep, far = layer - upper, row - left
        corner = self.values[upper : upper + 2, left : left + 2, :, states]
        near = np.array(
            [[(1 - deep) * (1 - far), (1 - deep) * far], [deep * (1 - far), deep * far]], np.float32
        )
        value = float(np.einsum("ab,abms,ms->", near, corner, chances))
        if slack < 0:
            value -= float(chances.sum()) * slack * MISS_PRICE * self.step_seconds / 3600
        return value

    def start_states(self, steps_to_go: float) -> slice:
        """The states of a machine on spot whose start still takes more than one step."""
        steps = _start_steps(self.restart_steps)
        done = min(max(steps - math.ceil(steps_to_go - 1e-9), 0), max(steps - 2, 0))
        first = 5 * PHASES + done * PHASES
        return slice(first, first + PHASES)


@functools.lru_cache(maxsize=8)
def prepare(
    price_ratio: float, restart_steps: float, moves_per_hour: float, step_seconds: int, steps: int
) -> CostTable:
    """The table for a spot price of `price_ratio` x on-demand and restarts of so many steps.

    moves_per_hour: how often the machine is lost while other pools still have capacity.
    """
    solver = _Solver(price_ratio, restart_steps, moves_per_hour, step_seconds)
    slack_max = min(SLACK_MAX, steps)
    kept = np.r_[0:_FINE_SLACK, _FINE_SLACK : slack_max + 1 : _SLACK_STRIDE]
    layers = []
    values = solver.end(slack_max)
    for step in range(steps + 1):
        if step:
            values = solver.before(values, step)
        if step % _LAYER_STRIDE == 0:
            layers.append(values[:, kept].transpose(1, 0, 2))
    return CostTable(
        step_seconds=step_seconds,
        restart_steps=restart_steps,
        price_ratio=price_ratio,
        values=np.ascontiguousarray(np.stack(layers), dtype=np.float32),
        transitions=MODELS.transitions(step_seconds).astype(np.float32),
    )


class _Solver:
    """One backward step; arrays are [models, slacks, states]."""

    def __init__(
        self, price_ratio: float, restart_steps: float, moves_per_hour: float, step_seconds: int
    ) -> None:
        self.hours = step_seconds / 3600
        self.spot_cost = np.float32(price_ratio * self.hours)
        self.on_demand_cost = np.float32(self.hours)
        self.miss_cost = np.float32(MISS_PRICE * self.hours)
        self.restart = restart_steps
        self.start_steps = _start_steps(restart_steps)
        self.last_progress = self.start_steps - restart_steps
        self.states = 5 * PHASES + PHASES * (self.start_steps - 1)
        self.expect = self._expectations(1 - math.exp(-moves_per_hour * self.hours), step_seconds)

    def end(self, slack_max: int) -> Floats:
        """At the deadline: with slack left the work is done, and without it is charged below."""
        return np.zeros((MODELS.count, slack_max + 1, self.states), np.float32)

    def before(self, values: Floats, steps_left: int) -> Floats:
        """Values one step earlier."""
        coming = np.matmul(values, self.expect)
        result = np.empty_like(values)
        idle, spot, on_demand = coming[..., IDLE], coming[..., SPOT], coming[..., ON_DEMAND]
        wait = self._less(idle, 1)
        best = np.minimum(wait, self.on_demand_cost + self._less(on_demand, self.restart))
        starting = [coming[..., self._start(j)] for j in range(self.start_steps - 1)]
        begins = self._less(spot, 1 - self.last_progress)  # the last step of a start
        first = self._less(starting[0], 1) if starting else begins
        up = slice(0, PHASES)
        best[..., up] = np.minimum(best[..., up], self.spot_cost + first)
        result[..., IDLE] = best
        result[..., SPOT] = np.minimum(best[..., up], self.spot_cost + spot)
        result[..., ON_DEMAND] = np.minimum(best, self.on_demand_cost + on_demand)
        for j in range(self.start_steps - 1):
            is_last = j == self.start_steps - 2
            next_ = begins if is_last else self._less(starting[j + 1], 1)
            result[..., self._start(j)] = np.minimum(best[..., up], self.spot_cost + next_)
        result[:, steps_left:] = 0.0  # slack as long as the time: the work is done
        return result

    def _less(self, values: Floats, steps: float) -> Floats:
        """`values` as they are with `steps` less slack."""
        whole = math.floor(steps)
        part = steps - whole
        shifted = self._whole_less(values, whole)
        if part < 1e-9:
            return shifted
        mixed: Floats = shifted * np.float32(1 - part)
        mixed += self._whole_less(values, whole + 1) * np.float32(part)
        return mixed

    def _whole_less(self, values: Floats, steps: int) -> Floats:
        steps = min(steps, values.shape[1] - 1)
        if steps == 0:
            return values
        short = np.arange(steps, 0, -1, dtype=np.float32)[:, None] * self.miss_cost
        return np.concatenate([values[:, :1] + short, values[:, :-steps]], axis=1)

    def _start(self, step: int) -> slice:
        return slice(5 * PHASES + step * PHASES, 5 * PHASES + (step + 1) * PHASES)

    def _expectations(self, moves: float, step_seconds: int) -> Floats:
        """[models, states, states]: values times this is the expected value by present state."""
        between = MODELS.transitions(step_seconds)
        matrix = np.zeros((MODELS.count, self.states, self.states))
        matrix[:, IDLE, IDLE] = between.transpose(0, 2, 1)
        matrix[:, ON_DEMAND, ON_DEMAND] = between.transpose(0, 2, 1)
        stays = between[:, :PHASES, :PHASES].transpose(0, 2, 1)
        lost = between[:, :PHASES, PHASES:].transpose(0, 2, 1)
        for here in (SPOT, *(self._start(j) for j in range(self.start_steps - 1))):
            matrix[:, here, here] = (1 - moves) * stays
            matrix[:, :PHASES, here] = moves * stays
            matrix[:, PHASES : 2 * PHASES, here] = lost
        return matrix.astype(np.float32)


def _start_steps(restart_steps: float) -> int:
    return max(1, math.ceil(restart_steps - 1e-9))


def _slack_row(slack: float) -> float:
    """Where a slack lies among the stored rows."""
    if slack <= _FINE_SLACK:
        return slack
    return _FINE_SLACK + (slack - _FINE_SLACK) / _SLACK_STRIDE
