"""Two launches want the last GPU that a limit leaves: one gets it, whatever each is for.

Every pair of claim, open place, replacement, growth, move and departure from spot, at the same
time, each in a transaction of its own on a database of its own. Not here: what a job that finds no
room says (`test_launch_limits`).
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.instances.launch_instances import LaunchInstances
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.orchestration.transitions.evaluate_moves import EvaluateMoves
from app.orchestration.transitions.resize_gangs import ResizeGangs
from app.orchestration.transitions.watch_deadlines import WatchDeadlines
from app.storage.schema import tables
from app.storage.session.engine import make_engine
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from tests.support.servers.postgres import PostgresForTests
from tests.support.stories.launch_limits_story import limit
from tests.support.stories.money_story import RecordedWakeups
from tests.support.stories.orchestration_story import PRICES, ZONE_A, ZONE_B, Story
from trainer.protocol.agent_report import FactKind

ROUNDS: Final = 10
"""Of each of the 21 pairs, in the long tests: more than 200 in all."""
Trigger = Callable[[Story], None]


def _claim(story: Story) -> Trigger:
    story.submit()
    return lambda now: _run(now, ClaimJobs)


def _open_place(story: Story) -> Trigger:
    """Its launch was refused, and the next offer is tried in the same transaction."""
    story.submit()
    _run(story, ClaimJobs)
    story.cloud.room = {ZONE_A: 0, ZONE_B: 0}
    return lambda now: _run(now, LaunchInstances)


def _replacement(story: Story) -> Trigger:
    _, (_, lost) = story.training(2)

    def notice(now: Story) -> None:
        now.tell(lost, FactKind.NOTICE, seconds_left=120.0, action="terminate", source="t")

    return notice


def _growth(story: Story) -> Trigger:
    story.cloud.room = {ZONE_A: 2, ZONE_B: 0}
    job_id = story.submit(nodes="2..3", estimate={"hours": 40, "nodes": 2})
    story.train(job_id)
    story.checkpoint(story.members(job_id)[0], 1, 10)
    story.cloud.room = {}
    return lambda now: _run(now, ResizeGangs)


def _move(story: Story) -> Trigger:
    job_id = story.submit(estimate={"hours": 26, "gpu": "V100:1"})
    story.train(job_id)
    [only] = story.members(job_id)
    story.tell(only, at_step=1)
    story.sleep(60)
    story.checkpoint(only, 1, 2)
    story.tell(only, at_step=20)
    return lambda now: _run(now, EvaluateMoves)


def _departure(story: Story) -> Trigger:
    """Its last safe moment has come: on-demand machines before spot is left."""
    deadline = story.time + timedelta(hours=3)
    job_id = story.submit(
        deadline=deadline.isoformat(), market="auto", estimate={"hours": 2.5, "gpu": "V100:1"}
    )
    story.train(job_id)
    return lambda now: _run(now, WatchDeadlines)


PATHS: Final = {
    "growth": _growth,
    "move": _move,
    "replacement": _replacement,
    "departure": _departure,
    "open_place": _open_place,
    "claim": _claim,
}
"""In the order in which jobs are made, so that no controller of a later one runs for an earlier."""
PAIRS: Final = list(itertools.combinations_with_replacement(PATHS, 2))
SHORT: Final = [("replacement", "claim"), ("growth", "move"), ("departure", "open_place")]


def _run(story: Story, controller: type) -> None:
    run_controller(story.runtime, controller(story.runtime))


@dataclass
class LastPlace:
    """A database in which two launches are due and a limit has room for one."""

    story: Story
    triggers: list[Trigger]
    url: str


def _set_up(engine: Engine, url: str, folder: Path, paths: tuple[str, str]) -> LastPlace:
    story = Story(engine, folder / "store")
    triggers = [PATHS[path](story) for path in paths]
    story.sleep(story.runtime.limits.migration_rest_seconds + 1)
    story.quote({**PRICES, ZONE_B: 200_000} if "move" in paths else PRICES)
    held = len(_living(story))
    # Who asks for another machine in the transaction that ends one needs no more than it had.
    limit(story, gpus={"V100": held + 1 - paths.count("open_place")})
    engine.dispose()
    return LastPlace(story, triggers, url)


def _living(story: Story) -> list[object]:
    instances = tables.instances
    return list(story.rows(instances, instances.c.state.in_(LIVE_INSTANCE_STATES)))


def _round(postgres: PostgresForTests, place: LastPlace) -> tuple[int, int]:
    """Both at the same time, in a copy: launches that were written, and machines beyond before."""
    url = postgres.clone(place.url)
    engine = make_engine(url)
    try:
        now = copy.copy(place.story)
        cloud = place.story.cloud
        now.engine, now.cloud = (
            engine,
            replace(cloud, story=now, room=dict(cloud.room), machines=dict(cloud.machines)),
        )
        begin = PostgresUnitOfWorkFactory(engine, RecordedWakeups(), lambda: now.time)
        now.runtime = replace(now.runtime, begin=begin, providers={"local": now.cloud})
        before, machines = len(now.rows(tables.launches)), len(_living(now))
        together, failures = threading.Barrier(2), list[BaseException]()

        def pull(trigger: Trigger) -> None:
            together.wait(10)
            try:
                trigger(now)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=pull, args=(one,)) for one in place.triggers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        return len(now.rows(tables.launches)) - before, len(_living(now)) - machines
    finally:
        engine.dispose()
        postgres.drop(url)


@pytest.mark.parametrize(
    ("paths", "rounds"),
    [
        *((pair, 2) for pair in SHORT),
        *(pytest.param(pair, ROUNDS, marks=pytest.mark.full) for pair in PAIRS),
    ],
)
def test_one_of_two_launches_gets_the_last_gpu(
    postgres: PostgresForTests, tmp_path: Path, paths: tuple[str, str], rounds: int
) -> None:
    url = postgres.clone()
    place = _set_up(make_engine(url), url, tmp_path, paths)
    try:
        found = {_round(postgres, place) for _ in range(rounds)}
    finally:
        postgres.drop(url)
    assert found == {(1, 1 - paths.count("open_place"))}
