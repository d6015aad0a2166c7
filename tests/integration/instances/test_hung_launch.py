"""Calls that start machines and never answer: the launches behind them are made all the same."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.adapters.thread_effects import ThreadEffects
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.instances.launch_instances import LaunchInstances
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.ports.cloud_provider import LaunchOrder, LaunchResult, ProviderError, RefusalKind
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from tests.support.servers.embedded import wait_until
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.orchestration_story import PaperCloud, Story
from workers.controller_threads import RUNS_MAX, ControllerThreads

BATCHES = 6
JOBS = BATCHES * LaunchInstances.limit


class HangingCloud(PaperCloud):
    """One launch of each of the first batches hangs until `let_go`; the others only count."""

    def __init__(self, story: Story, hung: int) -> None:
        super().__init__(story)
        self.hung = hung
        self.let_go = threading.Event()
        self.lock = threading.Lock()
        self.called: list[str] = []

    def launch(self, order: LaunchOrder) -> LaunchResult:
        with self.lock:
            self.called.append(order.client_token)
            batch, place = divmod(len(self.called) - 1, LaunchInstances.limit)
        if place == 0 and batch < self.hung:
            self.let_go.wait(120)
        raise ProviderError(RefusalKind.UNAVAILABLE, "nothing was started")


@pytest.mark.parametrize("hung", range(1, RUNS_MAX["cloud"]))
def test_hung_calls_hold_up_no_other(engine: Engine, tmp_path: Path, hung: int) -> None:
    story = Story(engine, tmp_path / "store")
    cloud = HangingCloud(story, hung)
    for _ in range(JOBS):
        story.submit()
    run_until_idle(story.runtime, [ClaimJobs(story.runtime)])
    threads, effects = ControllerThreads(1), ThreadEffects(4)
    begin = PostgresUnitOfWorkFactory(engine, threads, lambda: story.time)
    runtime = replace(
        story.runtime, providers={"local": cloud}, wakeups=threads, effects=effects, begin=begin
    )
    controllers = {"launch_instances": LaunchInstances(runtime)}
    threads.open(controllers, lambda one: run_controller(runtime, one), lambda name, worked: None)
    try:
        # One ring alone: whoever selects a full batch must see to the rest.
        threads.notify(["launch_instances"])
        wait_until(lambda: len(set(cloud.called)) == JOBS, "every other launch")
        assert not cloud.let_go.is_set()
    finally:
        cloud.let_go.set()
        assert threads.close(60)
        effects.close()
