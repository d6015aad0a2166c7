"""`lowtide sweep` and `lowtide destroy` against the real api, with the worker's sweep beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine

from app.adapters.system_clock import SystemClock
from app.orchestration.deployment.sweep_deployment import SweepDeployment
from app.orchestration.frame.controller_frame import run_controller
from app.storage.instances.sweep_repository import SeenLeftover
from tests.support.api.people_api import PeopleApi, make_key, people_api, settings_for
from tests.support.cli.command_line import CommandLine
from tests.support.stories.orchestration_story import ZONE_A, Story


class Deployment:
    """A story whose worker sweeps all the time, an api over its rows, and two command lines."""

    def __init__(self, story: Story, api: PeopleApi, folder: Path) -> None:
        self.story, self.api = story, api
        admin = make_key(story.engine, api.project_id, "admin", is_admin=True)
        self.cli = self._line(folder / "admin", admin)
        self.guest = self._line(folder / "guest", api.key)
        self._stopping = threading.Event()

    def _line(self, folder: Path, key: str) -> CommandLine:
        folder.mkdir()
        variables = {"LOWTIDE_SERVER_URL": self.api.url, "LOWTIDE_API_KEY": key}
        return CommandLine(folder, variables)

    @contextmanager
    def worker(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join(timeout=60)
            assert not thread.is_alive()

    def _work(self) -> None:
        sweeping = SweepDeployment(self.story.runtime)
        while not self._stopping.is_set():
            self.story.time = SystemClock().now()
            run_controller(self.story.runtime, sweeping)
            self.story.run()
            time.sleep(0.05)


@pytest.fixture
def deployment(
    engine: Engine, database_url: str, valkey_url: str, tmp_path: Path
) -> Iterator[Deployment]:
    story = Story(engine, tmp_path / "store")
    limits = replace(story.runtime.limits, describe_soon_seconds=0.1, absence_gap_seconds=0.1)
    story.runtime = replace(story.runtime, limits=limits)
    story.time = story.start = SystemClock().now()
    story.quote()
    with people_api(settings_for(database_url, valkey_url, tmp_path / "state")) as api:
        yield Deployment(story, api, tmp_path)


def test_a_sweep_shows_what_was_found_and_confirm_gives_back_what_no_job_needs(
    deployment: Deployment,
) -> None:
    story, cli = deployment.story, deployment.cli
    job_id = story.submit(name="mine")
    story.run()
    story.time = SystemClock().now()
    old = story.cloud.start(ZONE_A, tags={"lowtide:launch": str(uuid4())})
    early = story.time - timedelta(days=1)
    story.cloud.machines[old.provider_instance_id] = replace(old, launched_at=early)
    with deployment.worker():
        shown = cli.ok("sweep")
        assert "Rows are missing: 1 machine was started by launches" in shown.out
        assert shown.row(old.provider_instance_id, "would be released")
        assert "1 machine known, 1 found" in shown.out
        assert cli.ok("sweep", "-q").out.split() == [old.provider_instance_id]
        confirmed = cli.ok("sweep", "--confirm").out
        assert "Confirmed: 1 machine released." in confirmed
        refused = cli.fails(2, "sweep", "--confirm").errors
        assert "Nothing waits for a confirmation" in refused
    assert old.provider_instance_id not in story.cloud.running()
    assert len(story.living(job_id)) == 1


def test_destroy_asks_ends_everything_and_says_what_is_left(deployment: Deployment) -> None:
    story, cli = deployment.story, deployment.cli
    job_id = story.submit()
    story.run()
    assert "--yes" in cli.fails(2, "destroy").errors
    assert story.cloud.running()
    # No worker runs yet: nothing can be ended, and that is said.
    left = cli.fails(1, "destroy", "--yes", "--wait", "0.2")
    assert "Left: 1 machine, 1 job" in left.errors
    with deployment.worker():
        assert "Everything is gone" in cli.ok("destroy", "--yes", "--wait", "120").out
        assert cli.ok("destroy", "--yes", "--json").json["machine_count"] == 0
    assert story.cloud.running() == []
    assert story.job(job_id).state == "cancelled"


def test_what_is_left_besides_machines_is_shown_and_counts(deployment: Deployment) -> None:
    story, cli = deployment.story, deployment.cli
    with deployment.worker():
        cli.ok("sweep")
        with story.runtime.begin() as uow:
            (region, *_) = uow.sweeps.regions()
            since = uow.now - timedelta(hours=2)
            left = SeenLeftover("volume", "vol-1", "the role may not delete it", since, 526_027)
            uow.sweeps.record_leftovers(region.provider, region.region, uow.now, [left])
        assert cli.ok("sweep").row("volume", "vol-1", region.region, "2h", "may not delete it")
        shown = cli.fails(1, "destroy", "--yes", "--wait", "3")
        assert shown.row("volume", "vol-1", "may not delete it")
        assert "1 other thing" in shown.errors


def test_only_an_admin_may(deployment: Deployment) -> None:
    for arguments in (["sweep"], ["sweep", "--confirm"], ["destroy", "--yes"]):
        assert (
            "has the role maintainer, which may not" in deployment.guest.fails(2, *arguments).errors
        )


def test_another_deployments_id_destroys_nothing(deployment: Deployment) -> None:
    client, url = deployment.api.client, "/api/v1/destroy"
    key = deployment.cli.variables["LOWTIDE_API_KEY"]
    signed_in = {"Authorization": f"Bearer {key}"}
    wrong = client.post(url, json={"deployment_id": str(UUID(int=9))}, headers=signed_in)
    assert wrong.status_code == 422
    assert client.post(url, json={}, headers=signed_in).status_code == 422
    assert client.get("/api/v1/sweep", headers=signed_in).json()["mode"] == "reap"
    assert client.get("/api/v1/sweep").status_code == 403
