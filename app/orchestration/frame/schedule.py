"""When each controller has its turn, and on which queue: all that beat must know of controllers.

Lives here: names, queues and periods, and nothing that loads more than that. Not here: the
controllers (`controllers`), which take theirs from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from app.orchestration.frame.limits import Limits

SENDING_THREADS: Final = 8
"""Notifications that a worker sends at a time. Whoever gets one may let us wait."""
_SOON_SECONDS: Final = 5.0
_SWEEP_LOOK_SECONDS_MAX: Final = 15.0


@dataclass(frozen=True)
class ControllerSchedule:
    """queue: `quick` (only the database) or `cloud` (calls a provider or a store). period_seconds:
    beat rings at least this often, so that a lost ring costs latency, not work.
    """

    queue: str
    period_seconds: Callable[[Limits], float]


def _every(seconds: float) -> Callable[[Limits], float]:
    return lambda _limits: seconds


TURNS: Final[Mapping[str, ControllerSchedule]] = {
    "refresh_prices": ControllerSchedule(
        "cloud", lambda own: min(_SOON_SECONDS, own.price_refresh_seconds)
    ),
    "claim_jobs": ControllerSchedule(
        "quick", lambda own: min(_SOON_SECONDS, own.next_look_seconds)
    ),
    "launch_instances": ControllerSchedule("cloud", _every(_SOON_SECONDS)),
    "reconcile_instances": ControllerSchedule("cloud", _every(_SOON_SECONDS)),
    "release_instances": ControllerSchedule("cloud", _every(_SOON_SECONDS)),
    "expire_deadlines": ControllerSchedule("quick", _every(_SOON_SECONDS)),
    "watch_contacts": ControllerSchedule("quick", _every(2.0)),
    "watch_deadlines": ControllerSchedule(
        "quick", lambda own: min(_SOON_SECONDS, own.report_interval_seconds)
    ),
    # A machine's end does not wait for the next full period.
    "accrue_costs": ControllerSchedule(
        "quick", lambda own: min(_SOON_SECONDS, own.accrual_seconds)
    ),
    "enforce_budgets": ControllerSchedule("quick", lambda own: own.accrual_seconds),
    "close_job_costs": ControllerSchedule("quick", lambda own: own.accrual_seconds),
    # Rung more often than it lists: a list is recorded a moment after its ring, and the ring one
    # period later would find it not yet due. A list that failed is tried again soon.
    "sweep_deployment": ControllerSchedule(
        "cloud", lambda own: min(_SWEEP_LOOK_SECONDS_MAX, own.sweep_seconds / 4)
    ),
    "prune_checkpoints": ControllerSchedule("cloud", _every(30.0)),
    "check_books": ControllerSchedule("quick", _every(30.0)),
    "read_interruptions": ControllerSchedule("cloud", _every(3.0)),
    "clear_remains": ControllerSchedule("cloud", _every(30.0)),
    "locate_buckets": ControllerSchedule("cloud", _every(60.0)),
    "read_pool_pasts": ControllerSchedule("cloud", _every(20.0)),
    "keep_estimates": ControllerSchedule("quick", _every(_SOON_SECONDS)),
    "foresee_losses": ControllerSchedule("quick", _every(_SOON_SECONDS)),
    "resize_gangs": ControllerSchedule("quick", _every(_SOON_SECONDS)),
    "weigh_moves": ControllerSchedule("quick", _every(_SOON_SECONDS)),
    "seal_audit": ControllerSchedule("cloud", _every(_SOON_SECONDS)),
    "send_notifications": ControllerSchedule("cloud", _every(_SOON_SECONDS)),
    "watch_waits": ControllerSchedule("quick", _every(30.0)),
    "watch_budget_months": ControllerSchedule("quick", lambda own: own.accrual_seconds),
    "resume_for_budgets": ControllerSchedule("quick", lambda own: own.accrual_seconds),
}
"""By name, in the order of the registry."""


def turn_of(controller: str, limits: Limits) -> tuple[str, float]:
    """A controller's queue and its period in seconds. Raises KeyError for an unknown name."""
    turn = TURNS[controller]
    return turn.queue, turn.period_seconds(limits)
