"""What a policy sees and answers in a replay: the border between the world and the decision.

Here: the view of one tick, the answers, and the protocol of a policy. Not here: how the world
moves (`replay`), or any policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

WHOLE_SECOND = 1e-9
"""Tolerance in ticks when seconds are counted in whole ticks."""


class RunningCapacity(IntEnum):
    """What the job runs on."""

    NONE = 0
    SPOT = 1
    ON_DEMAND = 2


class PoolState(IntEnum):
    """What is known of a pool in this tick."""

    UNKNOWN = -1
    DOWN = 0
    UP = 1


class PolicyAction(IntEnum):
    """What a policy asks for. SPOT keeps or launches; PROBE pays to see, and is asked again."""

    WAIT = 0
    SPOT = 1
    ON_DEMAND = 2
    PROBE = 3


class PolicyChoice(NamedTuple):
    """An answer; `pool` is an index, -1 where none is meant."""

    act: PolicyAction
    pool: int = -1


WAIT = PolicyChoice(PolicyAction.WAIT)
ON_DEMAND = PolicyChoice(PolicyAction.ON_DEMAND)


@dataclass(frozen=True, slots=True)
class Terms:
    """The job and what it costs beside machine time.

    overhead_seconds: of every launch, restart and move; start_up_seconds of them are the trainer's
    own, which differ from job to job and are known for good once a machine has got through them.
    transfer_seconds: added to the restart when the next pool is not where the last one was.
    egress_usd: paid for such a move. checkpoint_seconds: an interruption loses what was done
    since the last multiple of it; 0: nothing is lost.
    """

    job_seconds: float
    deadline_seconds: float
    overhead_seconds: float
    checkpoint_seconds: float = 0.0
    egress_usd: float = 0.0
    transfer_seconds: float = 0.0
    start_up_seconds: float = 0.0


@dataclass(slots=True)
class JobView:
    """The job at the start of a tick, after interruptions.

    was_on: what ran in the tick before; running_on: what still runs. pool: the last spot pool, -1
    before the first. progress_seconds of work are done; at_risk_seconds of them would be lost with
    the machine. overhead_left_seconds: of the present machine's start. seen, prices: one per
    pool; an unknown pool's price is known, as clouds publish it.
    """

    tick: int = 0
    was_on: RunningCapacity = RunningCapacity.NONE
    running_on: RunningCapacity = RunningCapacity.NONE
    pool: int = -1
    progress_seconds: float = 0.0
    at_risk_seconds: float = 0.0
    overhead_left_seconds: float = 0.0
    seen: list[int] = field(default_factory=list)
    prices: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Briefing:
    """What a policy is told before the first tick.

    past_up, past_prices [pools, n]: recorded before the start, n may be 0.
    """

    pools: tuple[str, ...]
    tick_seconds: int
    on_demand: float
    terms: Terms
    past_up: NDArray[np.bool_]
    past_prices: NDArray[np.float64]


class Policy(Protocol):
    """Decides each tick; a new object serves each job."""

    def decide(self, view: JobView) -> PolicyChoice:
        """What to do in this tick.

        A SPOT choice of a pool that turns out to be down costs nothing; the same view then shows
        the pool as DOWN and the policy is asked again, as after a PROBE.
        """
        ...


class PolicyMaker(Protocol):
    """Makes the policy of one job."""

    def __call__(self, briefing: Briefing) -> Policy:
        """The policy, ready for its first tick."""
        ...


def ticks_left(terms: Terms, tick: int, tick_seconds: float) -> int:
    """Whole ticks from the start of `tick` to the deadline."""
    return int((terms.deadline_seconds - tick * tick_seconds) / tick_seconds + WHOLE_SECOND)
