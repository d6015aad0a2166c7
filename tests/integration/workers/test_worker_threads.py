"""A worker's threads and its due timer, with controllers that tell what became of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine

from app.adapters.system_clock import steady_seconds
from app.adapters.thread_effects import ThreadEffects
from app.bootstrap import NoWakeups
from app.orchestration.frame.controller_frame import RowController
from app.storage.schema import tables
from app.storage.unit_of_work import PostgresUnitOfWorkFactory, UnitOfWork
from tests.support.servers.embedded import wait_until
from tests.support.servers.table_rows import rows_of
from workers.controller_threads import RUNS_MAX, ControllerThreads
from workers.due_timer import IDLE_PAUSE_SECONDS, DueTimer


class Told(RowController[Any]):
    """A controller that is due when the test says so."""

    limit = 10
    period_seconds = 5.0

    def __init__(self, name: str, queue: str = "quick") -> None:
        self.name = name
        self.queue = queue
        self.due_in_seconds: float | None = None
        self.broken = False

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """As the test has set it, by the clock of the database."""
        if self.broken:
            raise RuntimeError("the rows cannot be read")
        seconds = self.due_in_seconds
        return None if seconds is None else uow.now + timedelta(seconds=seconds)

    def select(self, uow: UnitOfWork, limit: int) -> list[Any]:
        """None: `Runs` stands for its work."""
        return []

    def apply(self, uow: UnitOfWork, work: Any, result: Any) -> None:
        """There is no work."""


class Runs:
    """Counts runs, and can hold them."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.lock = threading.Lock()
        self.began: list[str] = []
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.ended: list[tuple[str, int | None]] = []
        self.worked = 0

    def run(self, controller: Any) -> int:
        """One run: waits for the gate."""
        with self.lock:
            self.began.append(controller.name)
            self.now[controller.name] = self.now.get(controller.name, 0) + 1
            self.most[controller.name] = max(
                self.most.get(controller.name, 0), self.now[controller.name]
            )
        assert self.gate.wait(60)
        with self.lock:
            self.now[controller.name] -= 1
        if controller.broken:
            raise RuntimeError("it failed")
        return self.worked

    def have_begun(self, count: int) -> bool:
        """Whether so many have begun by now."""
        return len(self.began) == count

    def after(self, name: str, worked: int | None) -> None:
        """Remember how it ended."""
        self.ended.append((name, worked))


@contextmanager
def open_threads(runs: Runs, *controllers: Told, quick: int = 4) -> Iterator[ControllerThreads]:
    threads = ControllerThreads(quick)
    threads.open({one.name: one for one in controllers}, runs.run, runs.after)
    try:
        yield threads
    finally:
        runs.gate.set()
        assert threads.close(60)


def test_many_rings_before_a_run_are_one_run():
    runs, blocker, waiting = Runs(), Told("blocker"), Told("waiting")
    runs.gate.clear()
    with open_threads(runs, blocker, waiting, quick=1) as threads:
        threads.notify(["blocker"])
        wait_until(lambda: runs.began == ["blocker"], "the only thread is taken")
        for _ in range(50):
            threads.notify(["waiting"])
        runs.gate.set()
        wait_until(lambda: len(runs.ended) == 2, "both have run")
    assert runs.began == ["blocker", "waiting"]


def test_a_ring_during_a_run_is_one_more_run_after_it():
    runs, one = Runs(), Told("one")
    runs.gate.clear()
    with open_threads(runs, one) as threads:
        threads.notify(["one"])
        wait_until(lambda: runs.began == ["one"], "the first run goes on")
        for _ in range(50):
            threads.notify(["one"])
        runs.gate.set()
        wait_until(lambda: len(runs.ended) == 2, "the second has run")
    assert (runs.began, runs.most["one"]) == (["one", "one"], 1)


def test_a_slow_cloud_call_holds_up_neither_the_next_one_nor_the_queue():
    runs, clouds = Runs(), [Told(f"cloud-{n}", "cloud") for n in range(3)]
    quick = Told("quick")
    runs.gate.clear()
    with open_threads(runs, quick, *clouds, quick=1) as threads:
        for each in range(1, RUNS_MAX["cloud"] + 1):
            # A ring for a controller that still waits for its thread is no second one.
            threads.notify([one.name for one in clouds])
            wait_until(partial(runs.have_begun, 3 * each), f"run {each} of each")
        threads.notify([one.name for one in clouds])
        threads.notify(["quick"])
        wait_until(lambda: "quick" in runs.began, "the queue has its own thread")
    assert all(runs.most[one.name] == RUNS_MAX["cloud"] for one in clouds)


def test_a_failed_run_is_told_and_the_thread_goes_on():
    runs, one = Runs(), Told("one")
    one.broken = True
    with open_threads(runs, one, quick=1) as threads:
        threads.notify(["one"])
        wait_until(lambda: runs.ended == [("one", None)], "the failure is told")
        one.broken = False
        threads.notify(["one"])
        wait_until(lambda: runs.ended[1:] == [("one", 0)], "it runs again")


def test_rings_outside_opening_hours_are_lost():
    runs, one = Runs(), Told("one")
    threads = ControllerThreads(1)
    threads.notify(["one"])
    threads.open({"one": one}, runs.run, runs.after)
    threads.notify(["another"])
    assert threads.close(60)
    threads.notify(["one"])
    assert runs.began == []


@contextmanager
def open_clock(engine: Engine, runs: Runs, *controllers: Told) -> Iterator[DueTimer]:
    """Threads and clock put together as in a worker."""
    by_name = {one.name: one for one in controllers}
    threads = ControllerThreads(4)
    begin = PostgresUnitOfWorkFactory(engine, NoWakeups())
    clock = DueTimer(begin, by_name, threads.notify, steady_seconds)
    threads.open(by_name, runs.run, clock.after_run)
    clock.start()
    try:
        yield clock
    finally:
        clock.close(60)
        assert threads.close(60)


def test_what_is_due_at_the_start_runs_and_what_waits_for_nothing_does_not(engine: Engine):
    runs, due, idle = Runs(), Told("due"), Told("idle")
    due.due_in_seconds = 0.0
    with open_clock(engine, runs, due, idle):
        wait_until(lambda: "due" in runs.began, "what is due runs")
    assert "idle" not in runs.began
    # Monitoring sees that both were looked at, as an idle controller has no run.
    looks = rows_of(engine, tables.controller_runs)
    assert {row.controller for row in looks} == {"due", "idle"}


def test_a_short_wait_ends_on_time_without_a_ring(engine: Engine):
    runs, one = Runs(), Told("one")
    with open_clock(engine, runs, one) as clock:
        one.due_in_seconds = 0.6
        began = steady_seconds()
        clock.look_at(["one"])
        wait_until(lambda: runs.began == ["one"], "the alarm rings")
        assert steady_seconds() - began >= 0.6


def test_a_later_look_may_move_an_alarm_away(engine: Engine):
    runs, one, other = Runs(), Told("one"), Told("other")
    one.due_in_seconds = 1.0
    with open_clock(engine, runs, one, other) as clock:
        one.due_in_seconds = None
        clock.look_at(["one", "no_such_controller"])
        other.due_in_seconds = 1.5
        clock.look_at(["other"])
        wait_until(lambda: "other" in runs.began, "a second and a half have passed")
    assert "one" not in runs.began


def test_work_anywhere_makes_the_clock_look_at_all(engine: Engine):
    runs, first, other = Runs(), Told("first"), Told("other")
    first.due_in_seconds = 0.0
    with open_clock(engine, runs, first, other) as clock:
        wait_until(lambda: "first" in runs.began, "the look at the start is over")
        first.due_in_seconds, other.due_in_seconds = None, 0.0
        clock.after_run("first", 3)
        wait_until(lambda: "other" in runs.began, "the other is found due")


def test_a_controller_that_finds_nothing_though_due_is_not_asked_in_a_loop(engine: Engine):
    runs, stuck = Runs(), Told("stuck")
    stuck.due_in_seconds = 0.0
    began = steady_seconds()
    with open_clock(engine, runs, stuck):
        wait_until(lambda: len(runs.began) >= 3, "it is asked again, and again")
        assert steady_seconds() - began >= 2 * IDLE_PAUSE_SECONDS


def test_rows_that_cannot_be_read_do_not_silence_the_clock(engine: Engine):
    runs, broken, well = Runs(), Told("broken"), Told("well")
    broken.broken = True
    with open_clock(engine, runs, broken, well):
        wait_until(lambda: {"broken", "well"} <= set(runs.began), "both run all the same")


def test_effects_run_side_by_side_up_to_the_bound():
    effects = ThreadEffects(3)
    lock, now, most = threading.Lock(), [0], [0]
    meet = threading.Barrier(3)

    def task(number: int) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        if number < 3:
            meet.wait(60)
        with lock:
            now[0] -= 1

    effects.run_all(task, range(12))
    effects.close()
    assert (now[0], most[0]) == (0, 3)


def test_one_effect_thread_is_the_callers_own_and_keeps_the_order():
    done: list[tuple[int, int]] = []
    ThreadEffects(1).run_all(lambda n: done.append((n, threading.get_ident())), [3, 1, 2])
    assert done == [(n, threading.get_ident()) for n in (3, 1, 2)]
    with pytest.raises(ValueError, match="at least one thread"):
        ThreadEffects(0)
