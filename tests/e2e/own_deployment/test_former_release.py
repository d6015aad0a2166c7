"""An upgrade in the middle of work: the former release's programs run on the schema of this one.

A deployment of the former release is filled, and migrated while its api, worker, beat and an agent
run. They start anew on the new schema, run jobs on it beside an api of this release, and then make
room for this release. Not here: each migration by itself (tests/integration/postgres).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.storage.session.migrate import head
from tests.e2e.conftest import SETTINGS
from tests.support.deployment.control_plane import LOWTIDE, ControlPlane, running_control_plane
from tests.support.deployment.followed_job import (
    FollowedJob,
    assert_all_books_close,
    submit_endless,
    submit_small,
)
from tests.support.deployment.former_release import (
    REVISION,
    second_api,
    unpack_former_release,
)
from tests.support.servers.finished_commands import run_command
from tests.support.servers.postgres import fast_folder
from tests.support.sources.source_tree import ROOT

_NEW_PATH = "/keys"
"""Of this release alone: which of both answers is told by it."""


@pytest.fixture(scope="module")
def former_source() -> Iterator[Path]:
    """The source of the former release, where every account can read it."""
    with fast_folder() as folder:
        yield unpack_former_release(folder)


@pytest.fixture
def former_plane(former_source: Path) -> Iterator[ControlPlane]:
    """A deployment of the former release, which a test may bring to this one."""
    with running_control_plane({**SETTINGS, "PYTHONPATH": str(former_source)}) as found:
        yield found
        assert_all_books_close(found)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_former_release_works_on_with_this_schema_until_this_release_follows(
    former_plane: ControlPlane, former_source: Path
) -> None:
    plane = former_plane
    assert _revision(plane) == REVISION
    before = submit_small(plane, 20)
    before.finish()
    cookies = _signed_in(plane, plane.url)
    across = submit_endless(plane, name="across", STEP_SECONDS=0.1, SAVE_EVERY=20)
    across.until_committed(20)
    history = before.events()

    _migrate(plane)
    assert _revision(plane) == head()
    for program in ("worker", "beat"):
        plane.restart_by_kill(program)
    # That of the deployment went on; its supervisor would not start it on a schema unknown to it.
    with second_api(plane, former_source) as url, _client_of(plane, url) as former_api:
        for api in (plane.api, former_api):
            assert api.get(_NEW_PATH).status_code == 404, "this is not the former api"
        assert _opens_pages(url, cookies)
        assert _opens_pages(url, _signed_in(plane, url))
        assert _get(former_api, f"/jobs/{before.id}/events", limit=1000)["items"] == history
    across.until_step(across.show()["progress"]["step"] + 20)

    with second_api(plane, ROOT) as url, _client_of(plane, url) as new_api:
        assert new_api.get(_NEW_PATH).status_code == 200, "this is not the new api"
        _works_on_both(plane, new_api)
        assert _opens_pages(url, cookies), "the former api's session"
        assert _get(new_api, f"/jobs/{before.id}/events", limit=1000)["items"] == history
    assert len(across.attempts()) == 1, across.story()

    plane.kill_supervisor()
    plane.up_again(**SETTINGS)
    plane.await_ready()
    assert plane.api.get(_NEW_PATH).status_code == 200
    # The agent of the former release reports to this one, and its trainer goes on.
    across.until_step(across.show()["progress"]["step"] + 20)
    steps = across.end_here()
    across.assert_exact(steps)
    assert len(across.attempts()) == 1, across.story()
    submit_small(plane, 20).finish()
    assert _opens_pages(plane.url, cookies)
    verified = plane.get("/audit/verify")
    assert verified["agrees"], verified


def _works_on_both(plane: ControlPlane, new_api: httpx.Client) -> None:
    """What the former release does on the new schema, and how this release reads it."""
    cancelled = submit_endless(plane, name="cancelled", STEP_SECONDS=0.1)
    cancelled.until_step(2)
    plane.post(f"/jobs/{cancelled.id}/cancel")
    cancelled.until_state("cancelled")

    taken = submit_endless(plane, name="taken", STEP_SECONDS=0.05, SAVE_EVERY=20)
    taken.until_committed(20)
    [machine] = taken.machines()
    taken.interrupt(machine, 8.0)
    taken.go_on_in(2)
    taken.assert_exact(taken.end_here())

    # Submitted to the new api, run by the former worker and its agent.
    spec = _get(new_api, f"/jobs/{cancelled.id}")["spec"]
    theirs = new_api.post("/jobs", json={**spec, "name": "of-the-new-api", "env": {"STEPS": "20"}})
    assert theirs.is_success, theirs.text
    job = FollowedJob(plane, theirs.json()["id"])
    plane.job_ids.append(job.id)
    job.finish()

    for one in (cancelled, taken, job):
        told = _get(new_api, f"/jobs/{one.id}")
        assert told["state"] == one.show()["state"]
        assert _get(new_api, f"/jobs/{one.id}/events", limit=1000)["items"] == one.events()
    names = {one["name"] for one in _get(new_api, "/jobs")["items"]}
    assert names >= {"across", "cancelled", "taken", "of-the-new-api"}


def _signed_in(plane: ControlPlane, url: str) -> httpx.Cookies:
    """The cookies of a browser that signs in at an api with the deployment's key."""
    with httpx.Client(base_url=url, timeout=60.0) as browser:
        form = re.search(r'name="form_token" value="([^"]+)"', browser.get("/sign-in").text)
        assert form is not None
        key = (plane.state_dir / "admin.key").read_text("ascii").strip()
        sent = browser.post("/sign-in", data={"key": key, "form_token": form[1]})
        assert sent.status_code == 303, sent.text
        return browser.cookies


def _opens_pages(url: str, cookies: httpx.Cookies) -> bool:
    return httpx.get(f"{url}/jobs", cookies=cookies, timeout=60.0).status_code == 200


def _migrate(plane: ControlPlane) -> None:
    """As an operator does it: `lowtide migrate` of this release, while the former one runs."""
    done = run_command([LOWTIDE, "migrate", "--state-dir", str(plane.state_dir)], timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def _revision(plane: ControlPlane) -> str:
    [row] = plane.sql("SELECT version_num FROM alembic_version")
    return str(row["version_num"])


def _client_of(plane: ControlPlane, url: str) -> httpx.Client:
    """A client of an api, with the key that the former release has made."""
    headers = {"Authorization": plane.api.headers["Authorization"]}
    return httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60.0)


def _get(client: httpx.Client, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
    return answer.json()
