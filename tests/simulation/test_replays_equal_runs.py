"""A back-tested policy does what the real controllers do with it, over the same recorded market.

A replay goes on in ticks; controllers look now and then, machines boot for as long as they like,
and those of one market are had before those of the other are released. So instants agree within
a look and a tick, and the run pays for both markets while it goes back to spot. Alike by design of
the scenarios: no warnings, no reserve for on-demand, no paid looks; pools of nearly equal price, as
a launch names all that fit where a replay tries one after the other; and outages that end when a
refused pool has rested, as a replay tries anew in every tick.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from app.backtest.lowtide import Lowtide
from app.backtest.policy_view import Terms
from app.backtest.replay import JobOutcome, PoolVisibility, Replay
from app.backtest.traces import Window
from app.domain.billing.billing import bill
from app.domain.billing.billing_rules import EC2_RULES
from app.domain.deadline.live_choice import tick_seconds_of
from app.simulation.runs.run_world import WorldRun, run_world
from app.simulation.scenarios.scenario import EndState
from tests.support.servers.table_rows import fetch_value
from tests.support.simulation.recorded_market import (
    LOOK_SECONDS,
    Rented,
    begin,
    finish_seconds,
    rented,
    settings_for,
)
from tests.support.simulation.replayed_path import Machine, Recorded, facts_of, prices_of

ON_DEMAND, RESTART_SECONDS = 3.06, 120.0
Spans = tuple[tuple[float, float], ...]


class Story(NamedTuple):
    """A job, when which pool has machines, in hours, and where it is to run: -1 is on-demand."""

    job_hours: float
    deadline_hours: float
    has: tuple[Spans, ...]
    runs_in: tuple[int, ...]


SHORT = "another pool after the first is lost"
STORIES = {
    SHORT: Story(0.7, 1.2, (((0, 0.35),), ((0, 9),), ()), (0, 1)),
    "another pool, an outage that is waited out, and a third": Story(
        2.0, 3.0, (((0, 0.7),), ((0, 1.2),), ((1.85, 9),)), (0, 1, 2)
    ),
    "on-demand in an outage, and back": Story(
        3.0, 4.2, (((0, 1.2), (3, 9)), ((0, 1.7),), ((1.96, 2.2),)), (0, 1, 2, -1, 0)
    ),
}


def _window(story: Story) -> tuple[Window, Terms]:
    terms = Terms(story.job_hours * 3600, story.deadline_hours * 3600, RESTART_SECONDS)
    tick = round(tick_seconds_of(terms.deadline_seconds))
    ticks = int(terms.deadline_seconds / tick) + 10
    up = np.zeros((len(story.has), ticks), bool)
    for pool, spans in enumerate(story.has):
        for span in spans:
            first, last = (round(hour * 3600 / tick) for hour in span)
            up[pool, first:last] = True
    prices = np.tile(np.array([[0.90], [0.92], [0.94]]), (1, ticks))
    names = ("a", "b", "c")
    return Window(names, tick, up, prices, up[:, :0], prices[:, :0], ON_DEMAND), terms


def _billed(machines: list[Machine], window: Window) -> int:
    """Micro-dollars."""
    total = 0
    for number, machine in enumerate(machines):
        facts = facts_of(machine, number, window)
        assert facts.ended_at is not None
        total += sum(bill(facts, prices_of(machine, window), EC2_RULES, facts.ended_at).values())
    return total


def _compare(
    run: WorldRun, window: Window, outcome: JobOutcome, machines: list[Machine], story: Story
) -> None:
    seen, ran = EndState(run), rented(run, window)
    seen.succeeded()
    assert [one.pool for one in ran] == [one.pool for one in machines] == list(story.runs_in)
    near = LOOK_SECONDS + window.tick_seconds
    for real, replayed in zip(ran, machines, strict=True):
        begins = replayed.begin * window.tick_seconds
        assert real.begin_hours * 3600 == pytest.approx(begins, abs=near)
    assert outcome.finish_seconds is not None
    assert finish_seconds(run) == pytest.approx(outcome.finish_seconds, abs=near)
    assert _booked(run) == pytest.approx(
        _billed(machines, window), abs=_difference_microusd(ran, machines, window)
    )


def _booked(run: WorldRun) -> int:
    return int(
        fetch_value(
            run.world.engine, "SELECT COALESCE(sum(amount_microusd), 0) FROM ledger_entries"
        )
    )


def _difference_microusd(ran: list[Rented], machines: list[Machine], window: Window) -> float:
    """What the instants' differences cost, which are bounded above, and a tick begun at the end."""
    total = 0.0
    for real, replayed in zip(ran, machines, strict=True):
        price = window.on_demand if real.pool < 0 else float(window.prices[real.pool, 0])
        hours = real.end_hours - real.begin_hours
        ticks = (replayed.end - replayed.begin) * window.tick_seconds / 3600
        total += abs(hours - ticks) * price
        overlap = RESTART_SECONDS if real.pool < 0 else 0.0
        assert abs(hours - ticks) * 3600 <= 2 * (LOOK_SECONDS + window.tick_seconds) + overlap
    return total * 1e6 + window.tick_seconds / 3600 * ON_DEMAND * 1e6


@pytest.mark.parametrize(
    "name",
    [name if name == SHORT else pytest.param(name, marks=pytest.mark.full) for name in STORIES],
)
def test_a_replay_equals_the_controllers_run(name: str, database_url: str) -> None:
    story = STORIES[name]
    window, terms = _window(story)
    policy = Recorded(partial(Lowtide, probes=False), window, terms)
    outcome = Replay(window, terms, PoolVisibility.ATTEMPTS, EC2_RULES).run(policy)
    machines = policy.machines(window.up)
    assert not outcome.missed
    assert _billed(machines, window) == pytest.approx(outcome.cost_usd * 1e6, abs=len(machines))
    hours = story.deadline_hours + 0.5
    run_world(
        database_url,
        settings_for(terms, hours),
        lambda run: begin(run, window, terms),
        hours,
        f"tests/simulation/test_replays_equal_runs.py: {name}",
        finish=lambda run: _compare(run, window, outcome, machines, story),
    )
