"""Runs the production controllers in virtual time: one phase per event.

A controller starts when it is rung, or at the first beat of its period at or after its
`next_due`; an empty controller is never ticked. `select` is one event, each piece's effect and
apply two more, with time between them in which anything may happen, the death of the worker
included. Not here: the phases themselves, which are the production frame's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from app.orchestration.frame.controller_frame import (
    AnyController,
    apply_phase,
    effect_phase,
    select_phase,
)
from app.orchestration.frame.runtime import Runtime
from app.simulation.engine.event_log import EventLog
from app.simulation.engine.event_loop import EventLoop
from app.simulation.engine.lease_watch import LeaseWatch
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.engine.virtual_clock import VirtualClock, microseconds
from app.simulation.engine.watched_transactions import Interrupted, WatchedTransactions, Write

_EMPTY_RUNS_MAX = 300
_RING_SECONDS = 0.005


def _hears_all(_write: Write) -> bool:
    """It is deaf to no write."""
    return False


class ControllerSpins(AssertionError):
    """A controller says again and again that it has work, and finds none."""


@dataclass
class WakeupFaults:
    """What happens to the next rings: each number is used up one by one."""

    lose: int = 0
    double: int = 0


@dataclass
class LateFaults:
    """What happens to the next pieces of work: seconds that pass between two of their phases.

    effect_of, apply_of: the same for the pieces of one controller, by its name.
    """

    effect_of: dict[str, list[float]] = field(default_factory=dict)
    apply_of: dict[str, list[float]] = field(default_factory=dict)
    before_effect: list[float] = field(default_factory=list)
    before_apply: list[float] = field(default_factory=list)
    quick: list[float] = field(default_factory=list)


@dataclass(eq=False)
class _Station:
    """One controller with what the runner knows of it."""

    controller: AnyController
    offset_us: int
    words: set[str] = field(default_factory=set)
    due_us: int | None = None
    asked: bool = False
    tried: bool = False
    rung_us: int | None = None
    running: int = 0
    empty_runs: int = 0


@dataclass(eq=False)
class _Piece:
    """One piece of work on its way. life: of the worker that leased it.

    counted: while it is, its controller does not start again.
    """

    station: _Station
    work: Any
    life: int
    counted: bool = False

    @property
    def quick(self) -> bool:
        """It needs only the database."""
        return self.station.controller.queue == "quick"


class SimulatedWakeups:
    """Implements `app.ports.wakeups.Wakeups`: hands rings to the runner, unless they are lost."""

    def __init__(self) -> None:
        self.runner: ControllerRunner | None = None
        self.faults = WakeupFaults()

    def notify(self, controllers: Iterable[str]) -> None:
        """Ring soon."""
        for name in controllers:
            if self.faults.lose:
                self.faults.lose -= 1
            elif self.runner is not None:
                doubled = self.faults.double > 0
                self.faults.double -= int(doubled)
                self.runner.rung(name, doubled)


class ControllerRunner:
    """A worker process with its beat. Implements `Ticker`."""

    def __init__(
        self,
        runtime: Runtime,
        transactions: WatchedTransactions,
        controllers: Iterable[AnyController],
        loop: EventLoop,
        log: EventLog,
        dice: Dice,
        deaf: dict[str, Callable[[Write], bool]],
        leases: LeaseWatch,
    ) -> None:
        """deaf: which writes a controller does not notice, because they only make it due later; it
        is asked again when it is due.
        """
        self.late = LateFaults()
        self.runs: dict[str, int] = {}
        self._runtime = runtime
        self._transactions = transactions
        self._loop = loop
        self._clock: VirtualClock = loop.clock
        self._log = log
        self._dice = dice
        self._deaf = deaf
        self.leases = leases
        self._life = 0
        self.up_since_us = 0
        self._die_after: int | None = None
        self._next: int | None = None
        self._fresh = False
        self._affected: dict[Write, tuple[_Station, ...]] = {}
        self._stations = {
            controller.name: _Station(controller, dice.between(0, 999_999))
            for controller in controllers
        }
        transactions.on_write = self._written

    # --- faults ---

    def kill(self, away_seconds: float) -> None:
        """SIGKILL to the worker: every piece of work in flight is lost; it comes back later."""
        self._life += 1
        self.up_since_us = self._clock.true_us + microseconds(away_seconds)
        for station in self._stations.values():
            station.running, station.rung_us, station.asked = 0, None, False
        self._die_after = None
        self._fresh = False
        self._log.write("worker", f"dies, and comes back in {away_seconds:.1f} s")

    def die_after(self, phases: int) -> None:
        """Die once so many more phases have been done, between that one and the next."""
        self._die_after = phases

    def forget(self, *names: str) -> None:
        """Ask these controllers again when they are due, or all of them: the clock has jumped."""
        for station in self._stations.values():
            station.asked = station.asked and station.controller.name not in (
                names or self._stations
            )
        self._fresh = False

    # --- the ticker ---

    def next_us(self) -> int | None:
        """When the first controller is to start."""
        if not self._fresh:
            self._ask()
            starts = [self._start_us(station) for station in self._stations.values()]
            self._next = min((at for at in starts if at is not None), default=None)
            self._fresh = True
        return self._next

    def tick(self) -> None:
        """Start the first controller that is due."""
        now = self._clock.true_us
        self._fresh = False
        for station in self._stations.values():
            at = self._start_us(station)
            if at is not None and at <= now:
                self._start(station)
                return

    def rung(self, name: str, doubled: bool) -> None:
        """Somebody rang."""
        station = self._stations.get(name)
        if station is None:
            return
        station.rung_us = self._clock.true_us + microseconds(_RING_SECONDS)
        self._fresh = False
        if doubled:
            self._loop.after(2 * _RING_SECONDS, lambda: self._start(station))

    def _start_us(self, station: _Station) -> int | None:
        if station.running:
            return None
        starts = [] if station.rung_us is None else [station.rung_us]
        if station.due_us is not None:
            period = max(1, microseconds(station.controller.period_seconds))
            first = max(station.due_us, self._clock.true_us) - station.offset_us
            starts.append(-(-first // period) * period + station.offset_us)
        return max(min(starts), self.up_since_us) if starts else None

    def _ask(self) -> None:
        """Ask the controllers whose answer may have changed when they are due."""
        stale = [one for one in self._stations.values() if not one.asked and not one.running]
        if not stale:
            return
        with self._transactions.look() as uow:
            for station in stale:
                with self._transactions.reading() as words:
                    due = station.controller.next_due(uow)
                if not words <= station.words:
                    station.words |= words
                    self._affected.clear()
                station.asked = True
                station.due_us = None if due is None else self._clock.true_us_of(due)
                late = station.due_us is not None and station.due_us <= self._clock.true_us
                station.tried = station.tried and late

    def _written(self, write: Write) -> None:
        stations = self._affected.get(write)
        if stations is None:
            table, columns = write
            stations = self._affected[write] = tuple(
                one
                for one in self._stations.values()
                if table in one.words
                and not self._deaf.get(one.controller.name, _hears_all)(write)
                and (columns is None or not columns.isdisjoint(one.words))
            )
        for station in stations:
            station.asked = False
            self._fresh = False

    # --- the phases ---

    def _start(self, station: _Station) -> None:
        controller, life = station.controller, self._life
        rung = station.rung_us is not None
        station.rung_us, station.asked = None, rung is False
        self._fresh = False
        if controller.name in self._deaf and not rung and not station.tried:
            station.tried, station.asked = True, False
            return  # with what has been written since it may be due later
        station.asked = station.tried = False
        self.runs[controller.name] = self.runs.get(controller.name, 0) + 1
        try:
            work = select_phase(self._runtime, controller)
        except Interrupted as error:
            self._log.write(controller.name, f"select: {error}")
            return
        if not work:
            if not rung:  # who was rung had not said that it was due
                self._count_empty(station)
            return
        station.empty_runs = 0
        if len(work) >= controller.limit:
            station.rung_us = self._clock.true_us + microseconds(_RING_SECONDS)
        if self._phase_done(life):
            return
        for one in work:
            self.leases.leased(one)
        for one in work:
            self._plan_effect(_Piece(station, one, life))

    def _plan_effect(self, piece: _Piece) -> None:
        """The time until the effect; a late one does not keep its controller from going on."""
        late = self.late.quick if piece.quick else self.late.before_effect
        late = self.late.effect_of.get(piece.station.controller.name) or late
        wait = self._dice.uniform(0.0, 0.02) + self._begin_waiting(piece, late)
        self._loop.after(wait, lambda: self._effect(piece))

    def _effect(self, piece: _Piece) -> None:
        if piece.life != self._life:
            return
        try:
            with self.leases.effect(piece.work):
                result = effect_phase(piece.station.controller, piece.work)
        except Exception as error:
            self._failed(piece, error)
            return
        if self._phase_done(piece.life):
            return
        if piece.quick:
            # Nothing happened outside the database: the next event is the apply itself.
            self._apply(piece, result)
            return
        self._end_waiting(piece)
        late = self.late.apply_of.get(piece.station.controller.name) or self.late.before_apply
        wait = self._dice.uniform(0.05, 1.5) + self._begin_waiting(piece, late)
        self._loop.after(wait, lambda: self._apply(piece, result))

    def _apply(self, piece: _Piece, result: object) -> None:
        if piece.life != self._life:
            return
        controller = piece.station.controller
        try:
            with self.leases.apply(piece.work):
                apply_phase(self._runtime, controller, piece.work, result)
        except Interrupted as error:
            self._log.write(controller.name, f"apply: {error}")
        except Exception as error:
            self._failed(piece, error)
            return
        self._log.write(controller.name, "applied")
        self._end_waiting(piece)
        self._phase_done(piece.life)

    def _begin_waiting(self, piece: _Piece, late: list[float]) -> float:
        """Extra seconds before the next phase. The controller runs again meanwhile if they are
        many: a hanging call holds one thread, and the rows only as long as their lease.
        """
        extra = late.pop(0) if late else 0.0
        piece.counted = extra == 0.0
        piece.station.running += int(piece.counted)
        piece.station.asked = False
        self._fresh = False
        return extra

    def _end_waiting(self, piece: _Piece) -> None:
        piece.station.running -= int(piece.counted)
        piece.counted = False
        piece.station.asked = False
        self._fresh = False

    def _failed(self, piece: _Piece, error: Exception) -> None:
        """What a worker would log: in a simulation it is a bug, and ends it."""
        name = piece.station.controller.name
        self._log.write(name, f"FAILED: {type(error).__name__}: {error}")
        raise error

    def _phase_done(self, life: int) -> bool:
        """Whether the worker has died right after this phase."""
        if self._die_after is None or life != self._life:
            return life != self._life
        self._die_after -= 1
        if self._die_after > 0:
            return False
        self.kill(self._dice.uniform(1.0, 20.0))
        return True

    def _count_empty(self, station: _Station) -> None:
        station.empty_runs += 1
        if station.empty_runs > _EMPTY_RUNS_MAX:
            seconds = _EMPTY_RUNS_MAX * station.controller.period_seconds
            raise ControllerSpins(
                f"{station.controller.name} found nothing in {_EMPTY_RUNS_MAX} runs on end, "
                f"over at least {seconds:.0f} s, though it said that it was due"
            )
