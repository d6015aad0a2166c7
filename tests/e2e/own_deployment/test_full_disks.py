"""Each disk of a deployment is filled in turn while a job trains: it costs time, nothing else."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres
from tests.e2e.conftest import SETTINGS
from tests.support.deployment.control_plane import ControlPlane, running_control_plane
from tests.support.deployment.followed_job import (
    FollowedJob,
    assert_all_books_close,
    submit_endless,
    submit_small,
)

DISKS = {".": 200, "logs": 6, "store": 48, "cloud": 48}
FULL_SECONDS = 25.0
"""Longer than two looks of the supervisor at its disks."""

SMALL = {"run": "true", "infra": ["local"], "resources": {"gpu": "V100"}}

# Each part by itself: tests/integration/embedded/test_control_plane_full_disks.py.
pytestmark = pytest.mark.full


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A deployment on disks of a few megabytes."""
    with running_control_plane(SETTINGS, disks=DISKS) as found:
        yield found
        assert_all_books_close(found)


@pytest.fixture
def job(plane: ControlPlane) -> FollowedJob:
    """One that trains until it is told to end."""
    made = submit_endless(plane, STEP_SECONDS=0.1, SAVE_EVERY=20)
    made.until_step(5)
    return made


def said(plane: ControlPlane) -> str:
    return plane.output.read_text("utf-8", "replace")


def go_on(job: FollowedJob, steps: int = 25) -> None:
    job.until_step(job.show()["progress"]["step"] + steps)


@contextmanager
def connection(plane: ControlPlane) -> Iterator[Connection]:
    """A connection to the database of a deployment; on a full disk there may be no new one."""
    port = int((plane.state_dir / "postgres_port").read_text("ascii"))
    engine = create_engine(EmbeddedPostgres(plane.state_dir).url_at(port))
    try:
        with engine.connect() as opened:
            yield opened
    finally:
        engine.dispose()


def stop_by_writing_its_log(database: Connection) -> None:
    """Write to PostgreSQL's log until it cannot make another file of it, and stops."""
    for _ in range(200):
        try:
            database.execute(
                text(
                    "SELECT length(pg_logical_emit_message(false, '', repeat('x', 1000000))::text)"
                )
            )
            database.commit()
        except DBAPIError as error:
            if error.connection_invalidated:
                return
            database.rollback()
    raise AssertionError("its log has found room")


def tries_to_submit(plane: ControlPlane) -> tuple[int, Any]:
    answer = plane.api.post("/jobs", json=SMALL)
    return answer.status_code, answer.json()


def assert_one_attempt_did_it(job: FollowedJob, before: dict[str, int], *replaced: str) -> None:
    """The programs that were not meant to end are the same, and so is the machine."""
    after = job.plane.pids()
    assert job.plane.process.poll() is None
    for name in before.keys() - set(replaced):
        assert after[name] == before[name], f"{name} was started again\n{job.plane.tails()}"
    job.assert_exact(job.end_here())
    [attempt] = job.attempts()
    assert attempt["state"] == "succeeded", job.story()


def test_a_full_disk_of_logs_and_then_of_the_store(plane: ControlPlane, job: FollowedJob):
    before = plane.pids()
    logs, store = plane.disks["logs"], plane.disks["store"]
    logs.fill()
    plane.wait(lambda: "disk full: logs (" in said(plane), "it is told")
    go_on(job)
    logs.empty()
    plane.wait(lambda: "the disk has space again" in said(plane), "it is told, too")
    store.fill()
    content = b"no archive, but the disk is looked at first" * 1000
    name = f"sha256:{hashlib.sha256(content).hexdigest()}"
    plane.wait(lambda: "disk full: object store (" in said(plane), "it is told")
    assert plane.api.put(f"/workdirs/{name}", content=content).status_code in (422, 507)
    go_on(job)
    committed = job.show()["progress"]["committed_step"]
    store.empty()
    job.until_committed(committed + 1)
    assert_one_attempt_did_it(job, before)


def test_a_full_disk_of_the_database(plane: ControlPlane, job: FollowedJob):
    """Nothing is written before it is quite full; a PostgreSQL that stops comes back."""
    before, disk = plane.pids(), plane.disks["."]
    with connection(plane) as database:
        disk.fill()
        plane.wait(lambda: tries_to_submit(plane)[0] == 507, "nothing is written any more")
        assert job.show()["state"] == "running", "reads go on"
        assert plane.pids() == before
        stop_by_writing_its_log(database)
    ends = time.monotonic() + FULL_SECONDS
    while time.monotonic() < ends or "postgres exited with 1; disk full: " not in said(plane):
        disk.fill()
        status, answer = tries_to_submit(plane)
        assert status in (503, 507), answer
        assert time.monotonic() < ends + 60, said(plane)
        time.sleep(1)
    assert (status, answer["title"]) == (507, "Disk full")
    disk.empty()
    plane.wait(lambda: tries_to_submit(plane)[0] == 201, "jobs are taken again")
    go_on(job)
    assert_one_attempt_did_it(job, before, "postgres")


def test_a_full_disk_of_the_local_cloud(plane: ControlPlane):
    """No machine is launched on it; jobs wait, say why, and go on."""
    first = submit_small(plane, 5)
    first.finish()
    disk = plane.disks["cloud"]
    disk.fill()
    waiting = submit_small(plane, 5)
    plane.wait(lambda: "disk full" in str(waiting.events()), "the history says why")
    assert waiting.show()["state"] in ("queued", "starting")
    disk.empty()
    waiting.finish()
    [attempt] = [one for one in waiting.attempts() if one["state"] == "succeeded"]
    assert attempt["members"]


def test_up_on_a_full_disk_says_so_and_waits(plane: ControlPlane, job: FollowedJob):
    """Its supervisor was killed, too, as a service manager may find both at once."""
    disk, url = plane.disks["."], plane.url
    disk.fill()
    plane.kill_supervisor()
    plane.up_again()
    ends = time.monotonic() + FULL_SECONDS
    while time.monotonic() < ends:
        disk.fill()
        assert plane.process.poll() is None, said(plane)
        time.sleep(1)
    assert "disk full: state folder (" in said(plane)
    assert "postgres exited with 1; disk full: " in said(plane)
    disk.empty()
    plane.await_ready()
    assert plane.url == url
    go_on(job)
    job.assert_exact(job.end_here())
    assert len(job.attempts()) == 1
