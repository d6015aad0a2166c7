"""Select, effect, apply: the only code that opens the phases of a controller.

A controller is a bounded function that moves rows along. Its select phase picks work in one
transaction; its effect phase talks to the world with no transaction open; its apply phase writes
what was learnt in another. Any two phases may be separated by the death of the process: leases
end, and the work is picked again. Not here: which controllers there are (`controllers`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.units.durations import measured_duration
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.frame.failing_work import (
    PASSING_WAIT_SECONDS_MAX,
    WAIT_SECONDS_MAX,
    work_key,
)
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.schedule import turn_of
from app.ports.object_store import ObjectStoreFull
from app.storage.session.storage_errors import DatabaseFull, RowsLocked
from app.storage.unit_of_work import UnitOfWork

log = logging.getLogger(__name__)

W = TypeVar("W")
R = TypeVar("R")


class Controller(Protocol[W, R]):
    """What the frame, beat and the simulator need of a controller.

    queue: `quick` (only the database) or `cloud` (calls a provider or a store).
    period_seconds: beat rings at least this often, so that a lost ring costs latency, not work.
    limit: the most rows one run takes.
    """

    name: str
    queue: str
    period_seconds: float
    limit: int

    def select(self, uow: UnitOfWork, limit: int) -> list[W]:
        """Pick due work, at most `limit`."""
        ...

    def effect(self, work: W) -> R:
        """Act on the world; no transaction is open."""
        ...

    def apply(self, uow: UnitOfWork, work: W, result: R) -> None:
        """Write what was learnt, having read the present state under its lock."""
        ...

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When there will be work, as far as rows tell; None when nothing waits."""
        ...


class RuntimeController:
    """Part of a controller: what it acts through, and its turn in the schedule.

    actor_kind: who changes jobs, as their history tells: the controller, or a cloud through it.
    """

    name: str
    actor_kind = ActorKind.CONTROLLER

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.queue, self.period_seconds = turn_of(self.name, runtime.limits)

    def locked(
        self, uow: UnitOfWork, job_id: UUID, *, skip_locked: bool = True, looking: bool = False
    ) -> AbstractContextManager[JobAggregate | None]:
        """The job under its lock, changed in the name of this controller; as of `open_job`."""
        actor, entropy = Actor(self.actor_kind, self.name), self._runtime.entropy
        return open_job(uow, entropy, job_id, actor, skip_locked=skip_locked, looking=looking)


class RowController(RuntimeController, Generic[W]):
    """Part of a controller whose whole effect is its transaction."""

    def effect(self, work: W) -> None:
        """Nothing happens outside the database."""


AnyController = Controller[Any, Any]


@runtime_checkable
class InParts(Protocol[W]):
    """A controller whose pieces hold several jobs: each part can be done and written alone.

    Failures are remembered of parts, so that one that fails keeps no other from being done.
    """

    def parts(self, work: W) -> Sequence[W]:
        """The piece, cut as far as possible; a result of the whole is one of each part."""
        ...

    def joined(self, parts: Sequence[W]) -> W:
        """One piece again of some parts of a piece, at least one."""
        ...


def select_phase(runtime: Runtime, controller: AnyController) -> list[Any]:
    """Pick work, unless another run of this controller is picking just now.

    Pieces and parts that failed lately are left out, and keep nothing else from being picked.
    """
    now, failing = runtime.clock.now(), runtime.failing
    with runtime.begin() as uow:
        if not uow.operations.try_single_flight(controller.name):
            return []
        room = controller.limit + failing.waiting(controller.name, now)
        picked = controller.select(uow, room)
    ready = []
    for piece in picked:
        parts = _parts(controller, piece)
        left = [part for part in parts if not failing.waits(controller.name, part, now)]
        if left:
            ready.append(piece if len(left) == len(parts) else _joined(controller, left))
    return ready


def effect_phase(controller: AnyController, work: object) -> object:
    """Act on the world for one piece of work."""
    return controller.effect(work)


def apply_phase(runtime: Runtime, controller: AnyController, work: object, result: object) -> None:
    """Write what one piece of work taught us."""
    with runtime.begin() as uow:
        controller.apply(uow, work, result)


def run_controller(runtime: Runtime, controller: AnyController) -> int:
    """One bounded run; returns how many pieces of work it took.

    One piece's failure is logged and leaves the others alone: it is tried again with growing
    waits, up to five minutes.
    """
    work = select_phase(runtime, controller)
    runtime.effects.run_all(lambda piece: _run_piece(runtime, controller, piece), work)
    if len(work) >= controller.limit:
        runtime.wakeups.notify([controller.name])
    return len(work)


def _parts(controller: AnyController, piece: object) -> Sequence[Any]:
    """The parts of a piece; itself where it has none."""
    return controller.parts(piece) if isinstance(controller, InParts) else (piece,)


def _joined(controller: AnyController, parts: Sequence[Any]) -> object:
    return controller.joined(parts) if isinstance(controller, InParts) else parts[0]


def _run_piece(runtime: Runtime, controller: AnyController, piece: object) -> None:
    """A piece whose effect raises is halved, until the parts that make it raise are alone."""
    parts = _parts(controller, piece)
    try:
        result = effect_phase(controller, piece)
    except Exception as error:
        if len(parts) == 1:
            _record_failure(runtime, controller, parts[0], error)
            return
        half = len(parts) // 2
        for some in (parts[:half], parts[half:]):
            _run_piece(runtime, controller, _joined(controller, some))
        return
    try:
        apply_phase(runtime, controller, piece, result)
    except Exception as error:
        if len(parts) == 1:
            _record_failure(runtime, controller, parts[0], error)
            return
        for part in parts:
            _apply_part(runtime, controller, part, result)
    else:
        for part in parts:
            runtime.failing.succeeded(controller.name, part)


def _apply_part(runtime: Runtime, controller: AnyController, part: object, result: object) -> None:
    """One part of a piece whose whole could not be written."""
    try:
        apply_phase(runtime, controller, part, result)
    except Exception as error:
        _record_failure(runtime, controller, part, error)
    else:
        runtime.failing.succeeded(controller.name, part)


def _record_failure(
    runtime: Runtime, controller: AnyController, piece: object, error: Exception
) -> None:
    """One line with the count; the first in a row brings its traceback.

    A wait for a lock is to be expected: a warning, of which a terminal shows the one line.
    """
    now = runtime.clock.now()
    disk_full = isinstance(error, DatabaseFull | ObjectStoreFull)
    locked = isinstance(error, RowsLocked)
    longest = PASSING_WAIT_SECONDS_MAX if disk_full or locked else WAIT_SECONDS_MAX
    failure = runtime.failing.failed(controller.name, piece, now, longest)
    log.log(
        logging.WARNING if locked else logging.ERROR,
        "controller %s failed on %r (%d in a row, next try in %s): %s%s",
        controller.name,
        work_key(piece),
        failure.times,
        measured_duration((failure.again_at - now).total_seconds()),
        "" if locked else f"{type(error).__name__}: ",
        str(error).partition("\n")[0],
        exc_info=error if failure.times == 1 and not disk_full else None,
    )
