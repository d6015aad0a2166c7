"""What is said later of a decision about machines: once it is over, and while its job runs.

A decision is stored as it was made: "Requesting spot machines in us-west-2a." Not here: making
that sentence (`decision_log`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from app.domain.lifecycle.entities import Instance, Job
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Pool
from app.domain.placement.placement_decision import (
    DecisionVerdict,
    PlacementDecision,
    PoolVerdict,
)
from app.domain.units.durations import format_duration
from app.domain.units.instants import clock_time
from app.domain.units.money import short_usd

LEFT_NOTE: Final = (
    "That cost is for the time from now on, at the prices of now and without further interruptions;"
    " what is already spent is not part of it."
)
"""What the cost is of a job that goes on as it runs now."""

WAYS_EXPECTED: Final = "the rest of the job was expected to cost: beginning"
"""Stands after "At the decision" with its time, and before each way with its cost."""

WAYS_NOTE: Final = (
    "Each is an average for all machines together, from then on: what was spent before is not part "
    "of it. Start-up and the interruptions to expect are counted, the minimum charge of a machine "
    "is not. The job may change its way later, when another costs less. `lowtide estimate` "
    "simulates whole runs and bills them with the minimum charge, and a run of its on-demand row "
    "stays on on-demand machines, so its figures differ."
)
"""What the costs of the ways are that a decision weighed, for readers who compare them."""

ORDER_BY_SPEED: Final = (
    "Best first by what an hour of the same work costs there: GPUs are compared by their speed."
)
ORDER_BY_PRICE: Final = (
    "Best first by what an hour of a machine costs there, with the interruptions to expect: "
    "accepted machines count as equally fast."
)
"""How the pools of a decision are ordered, by `placement.work_alike` of the job's spec."""

_PLACES_MAX: Final = 3
_DONE: Final = {
    DecisionVerdict.SPOT: "Spot machines were requested",
    DecisionVerdict.ON_DEMAND: "On-demand machines were requested",
    DecisionVerdict.WAIT: "No machines were requested",
    DecisionVerdict.STAY: "The machines were kept",
    DecisionVerdict.MOVE: "A move to other machines was begun",
    DecisionVerdict.RESIZE: "The number of machines was changed",
}
_ALL_SAID: Final = frozenset({"machines_at_hand", "on_demand", "cheapest_progress"})
"""Reasons whose sentence says no more than what was done, unless waiting was weighed with it."""
_ON_THE_WAY: Final = (InstanceState.REQUESTED, InstanceState.LAUNCHING, InstanceState.LAUNCHED)


def verdict_word(verdict: str) -> str:
    """What was decided, in a word of a table or a badge: "spot", "on-demand", "wait"."""
    return verdict.replace("_", "-")


def sentence_now(
    decision: PlacementDecision, job: Job, machines: Iterable[Instance], *, newest: bool
) -> str:
    """Its sentence while it holds; else what was done then, with that sentence quoted.

    One that requests machines is done with once none is on the way. machines: those of the job.
    """
    requests = decision.verdict not in (DecisionVerdict.STAY, DecisionVerdict.WAIT)
    settled = requests and job.state is JobState.RUNNING
    if newest and not (settled and not any(one.state in _ON_THE_WAY for one in machines)):
        return decision.sentence
    places = _places(decision.chosen)
    done = f"{_DONE[decision.verdict]}{f' in {places}' if places else ''}."
    spot, wait = decision.spot_microusd, decision.wait_microusd
    weighed = spot is not None and wait is not None and wait < spot
    if decision.reason in _ALL_SAID and not weighed:
        return done
    return f'{done} Said then: "{decision.sentence}"'


def reason_now(row: PoolVerdict, decided_at: datetime, *, trains_there: bool) -> str:
    """Why a pool was chosen or not; of the one that the job trains in, after what was expected.

    There, readers show what is left now instead of what the decision expected, which is history.
    decided_at: the instant of the decision's figures.
    """
    if not trains_there or row.expected_microusd is None:
        return row.why
    seconds = row.expected_finish_seconds
    took = "/h" if seconds is None else f", {format_duration(seconds)}"
    at = clock_time(decided_at)
    return f"at the decision {at}: {short_usd(row.expected_microusd)}{took}; {row.why}"


def _places(pools: Sequence[str]) -> str:
    """ "us-west-2a, us-west-2b and 1 more"."""
    zones = list(dict.fromkeys(map(_zone, pools)))
    more = len(zones) - _PLACES_MAX
    return ", ".join(zones[:_PLACES_MAX]) + (f" and {more} more" if more > 0 else "")


def _zone(key: str) -> str:
    try:
        return Pool.parse(key).zone
    except ValueError:
        return key
