"""Watches every leased piece of work: one holder at a time, and nothing of one that lost its lease.

Lives here: the rules that a worker can break between two phases. Not here: the phases
(`controller_runner`), or rows as they stand (`invariants`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from app.orchestration.instances.launch_instances import LaunchWork
from app.orchestration.instances.release_instances import TerminationBatch
from app.simulation.engine.invariant_error import InvariantError
from app.simulation.engine.virtual_clock import VirtualClock
from app.simulation.engine.watched_transactions import Interrupted

_LAUNCH = text("SELECT * FROM launches WHERE id = :id AND lease_token IS DISTINCT FROM :token")
_MACHINES_OF = text(
    "SELECT id, state, provider_instance_id, pool FROM instances WHERE launch_id = :id ORDER BY id"
)
_TERMINATIONS = text(
    "SELECT id, lease_token, lease_until_at, terminate_at, terminate_calls FROM instances "
    "WHERE id = ANY(:ids) AND lease_token IS DISTINCT FROM :token ORDER BY id"
)


class LeaseWatch:
    """The rules of leases in one world. calls: how many changing calls clouds have answered."""

    def __init__(self, engine: Engine, clock: VirtualClock, calls: Callable[[], int]) -> None:
        self._engine = engine
        self._clock = clock
        self._calls = calls
        self._held: dict[UUID, tuple[str, datetime]] = {}

    def forget(self) -> None:
        """The rows have gone back to a backup: nobody holds what is in them."""
        self._held.clear()

    def leased(self, work: Any) -> None:
        """A worker has taken this piece; raises InvariantError when another one still holds it, or
        the lease is over.
        """
        rows = list(_rows_of(work))
        if rows and work.lease_until <= self._clock.now():
            raise InvariantError("a lease has time for its call", f"{work}")
        for row_id in rows:
            token, until = self._held.get(row_id, (work.lease_token, work.lease_until))
            if token != work.lease_token and until > self._clock.now():
                raise InvariantError("a lease has one holder", f"{row_id} is held until {until}")
            self._held[row_id] = (work.lease_token, work.lease_until)

    @contextmanager
    def effect(self, work: Any) -> Iterator[None]:
        """Around an effect; raises InvariantError when it calls a cloud after its lease."""
        before, until = self._calls(), getattr(work, "lease_until", None)
        yield
        if until is not None and self._calls() > before and self._clock.now() > until:
            raise InvariantError("no call is made after its lease", f"{work}")

    @contextmanager
    def apply(self, work: Any) -> Iterator[None]:
        """Around an apply; raises InvariantError when one that lost its lease changes the row."""
        before = self._of_others(work)
        try:
            yield
        except Interrupted:
            # Its commit may have held: then nobody has these rows any more.
            freed = {row.id for row in self._of_others(work)}
            self._let_go(work, [row_id for row_id in _rows_of(work) if row_id in freed])
            raise
        # Machines of one batch are leased one by one: some of them may still be ours.
        others = {row.id for row in before}
        after = [row for row in self._of_others(work) if row.id in others] if others else []
        if after != list(before):
            rule = "what a lost lease brings changes nothing"
            raise InvariantError(rule, f"{before} became {after}")
        self._let_go(work, _rows_of(work))

    def _let_go(self, work: Any, row_ids: Sequence[UUID]) -> None:
        for row_id in row_ids:
            if self._held.get(row_id, ("",))[0] == work.lease_token:
                del self._held[row_id]

    def _of_others(self, work: Any) -> Sequence[Any]:
        """The piece's rows as far as another lease, or none, is on them."""
        if not isinstance(work, LaunchWork | TerminationBatch):
            return ()
        with self._engine.connect() as connection:
            if isinstance(work, TerminationBatch):
                ids = [one.instance_id for one in work.machines]
                ended = {"ids": ids, "token": work.lease_token}
                return list(connection.execute(_TERMINATIONS, ended))
            given = {"id": work.launch_id, "token": work.lease_token}
            found = list(connection.execute(_LAUNCH, given))
            machines = connection.execute(_MACHINES_OF, {"id": work.launch_id})
            return [*found, *machines] if found else ()


def _rows_of(work: Any) -> list[UUID]:
    if isinstance(work, LaunchWork):
        return [work.launch_id]
    if isinstance(work, TerminationBatch):
        return [one.instance_id for one in work.machines]
    return []
