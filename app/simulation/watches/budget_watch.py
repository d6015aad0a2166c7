"""Holds every claim against the caps, by sums of its own: prices of machines times seconds.

Not here: the product's own test before a claim (`gang.reserve_budget`), whose figures
are not used, or what a world has spent in the end (`invariants`).
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sqlalchemy import text

from app.domain.lifecycle.attempt import DRAIN_GRACE_SECONDS
from app.orchestration.frame.limits import Limits
from app.simulation.engine.invariant_error import InvariantError
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession

ASKING = frozenset({"claimed", "replacement_requested"})
"""Lines of history in whose transaction machines may have been asked for."""
_FIRST_SECONDS = 900

# The launch of an adopted machine has no bid: nobody asked for that machine.
_NEWEST = Ready(
    text(
        "SELECT id, count, (SELECT max(CAST(bid ->> 'price_microusd_per_hour' AS bigint)) "
        " FROM jsonb_array_elements(bids) AS bid) AS dearest FROM launches "
        "WHERE job_id = :job_id AND called_at IS NULL AND bids <> '[]' "
        "ORDER BY created_at DESC, id DESC LIMIT 1"
    )
)
_CAPS = Ready(
    text(
        "SELECT budgets.job_id IS NOT NULL AS own, cap_microusd, spent_microusd, "
        "reserved_microusd FROM budgets JOIN jobs ON jobs.id = :job_id "
        "WHERE cap_microusd IS NOT NULL AND (budgets.id = jobs.budget_id "
        " OR (budgets.project_id = jobs.project_id AND budgets.job_id IS NULL)) "
        "ORDER BY budgets.id"
    )
)
_LIVING = Ready(
    text(
        "SELECT instances.job_id = :job_id AS mine, pools.price_microusd_per_hour AS price, "
        "(SELECT max(CAST(bid ->> 'price_microusd_per_hour' AS bigint)) "
        " FROM launches, jsonb_array_elements(bids) AS bid WHERE launches.id = launch_id) AS bid "
        "FROM instances JOIN jobs ON jobs.id = instances.job_id "
        "LEFT JOIN pools ON pools.pool = instances.pool "
        "WHERE jobs.project_id = (SELECT project_id FROM jobs WHERE id = :job_id) "
        "AND instances.state NOT IN ('terminated', 'launch_failed') "
        "AND instances.launch_id IS DISTINCT FROM :launch_id ORDER BY instances.id"
    )
)


class _Cap(NamedTuple):
    """A budget with a cap, in micro-dollars. own: the job's, not its project's."""

    own: bool
    cap: int
    spent: int
    reserved: int


class BudgetWatch:
    """The rule of claims in one world."""

    def __init__(self, limits: Limits) -> None:
        # What a machine that is to go may still cost: unbooked, draining, and not yet seen gone.
        self._window_seconds = int(
            limits.accrual_seconds
            + limits.drain_seconds
            + DRAIN_GRACE_SECONDS
            + limits.describe_seconds
        )
        self._seen: set[UUID] = set()

    def check(self, reader: RecordSession, job_id: UUID) -> None:
        """The job has just asked for machines; raises InvariantError when no cap bears them."""
        found = reader.row(_NEWEST, {"job_id": job_id})
        if found is None or found[0] in self._seen:
            return
        launch_id, count, dearest = found
        self._seen.add(launch_id)
        first = count * (dearest * _FIRST_SECONDS // 3600)
        living = reader.rows(_LIVING, {"job_id": job_id, "launch_id": launch_id})
        for row in reader.rows(_CAPS, {"job_id": job_id}):
            budget = _Cap(*row)
            held = sum(
                self._held(mine, price, bid)
                for mine, price, bid in living
                if mine or not budget.own
            )
            if budget.spent + held + first > budget.cap:
                seen = f"{held} for living machines, {first} for new ones: {budget}"
                raise InvariantError("a claim takes no budget above its cap", seen)
            if budget.reserved < first:
                raise InvariantError("what a claim rents is held for it", f"{first}: {budget}")

    def _held(self, mine: bool, price: int | None, bid: int | None) -> int:
        """What a living machine may still cost. What another job has was held when it asked."""
        known = [one for one in (price, bid) if one is not None]
        if mine:
            return (known[0] if known else 0) * self._window_seconds // 3600
        return min(known, default=0) * _FIRST_SECONDS // 3600
