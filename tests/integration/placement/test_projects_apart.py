"""Two projects with the same names and the same work: no figure tells one of the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.job import JobState
from app.domain.spec.job_spec import parse_spec
from app.domain.throughput.measured_run import MeasuredRun
from app.domain.throughput.same_work import work_digest
from app.orchestration.estimates.evaluate_promise import promise_key
from app.storage.jobs.kept_estimate_rows import KeptEstimate
from tests.support.api.people_api import bearer, make_key, settings_for
from tests.support.cli.cli_world import World, small_world
from tests.support.stories.money_story import POOL, START

SPEC = {
    "name": "twin",
    "run": "python twin.py",
    "resources": {"gpu": "V100"},
    "estimate": {"hours": 10, "gpu": "V100"},
    "deadline": "20h",
}
HOURS = 5


@pytest.fixture
def world(engine: Engine, database_url: str, valkey_url: str, tmp_path: Path) -> Iterator[World]:
    with small_world(
        settings_for(database_url, valkey_url, tmp_path / "s"), engine, tmp_path
    ) as it:
        yield it


def past_run(world: World, project_id: UUID) -> None:
    """A job of the project that did the same work lately, and was estimated before."""
    story, now = world.story, datetime.now(UTC)
    began_at = now - timedelta(hours=HOURS)
    job = story.job(project_id, "earlier")
    attempt = story.attempt(
        job, state=AttemptState.STOPPED, trained_at=began_at, ended_at=now, first_step=1,
        last_step=1_001, stepping_seconds=17_000.0, start_up_seconds=40.0,
        work_digest=work_digest(project_id, parse_spec(SPEC).to_json()),
    )  # fmt: skip
    story.machine(job, (began_at - START).total_seconds(), attempt=attempt, ended_at=now)
    story.set_job(job, state=JobState.SUCCEEDED, ended_at=now, cost_final_at=now)
    with story.begin() as uow:
        uow.kept_estimates.keep(KeptEstimate(job.id, began_at, 10, 20, 3_600.0, 7_200.0))


def asked(world: World, headers: dict[str, str]) -> dict[str, Any]:
    answer = world.api.client.post("/api/v1/estimates", json=SPEC, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def runs(world: World, project_id: UUID) -> Sequence[MeasuredRun]:
    """What speeds and scaling would be learned from."""
    with world.story.begin() as uow:
        since = datetime.now(UTC) - timedelta(days=1)
        return uow.pool_experience.measured_runs(project_id, parse_spec(SPEC).to_json(), since)


def calibrated(world: World, headers: dict[str, str]) -> list[str]:
    answer = world.api.client.get("/api/v1/estimates/calibration", headers=headers)
    return [one["job_name"] for one in answer.json()["items"]]


def test_what_one_project_has_learned_is_told_to_it_alone(world: World, engine: Engine):
    other_id = world.story.project("beta")
    own: dict[str, str] = {}
    other = bearer(make_key(engine, other_id))
    before = asked(world, own)
    past_run(world, other_id)
    mine, theirs = asked(world, own), asked(world, other)
    [my_pool], [their_pool] = mine["pools"], theirs["pools"]
    assert my_pool["pool"] == their_pool["pool"] == POOL.key
    assert my_pool["lived_hours"] == 0
    assert their_pool["lived_hours"] == pytest.approx(HOURS, rel=0.01)
    assert (len(runs(world, world.job.project_id)), len(runs(world, other_id))) == (0, 1)
    # A restart takes them their trainer's start-up, too.
    assert mine["earliest_seconds"] == before["earliest_seconds"]
    assert mine["earliest_seconds"] < theirs["earliest_seconds"]
    assert (calibrated(world, own), calibrated(world, other)) == ([], ["earlier"])


def test_names_keys_and_promises_are_each_projects_own(world: World, engine: Engine):
    other_id = world.story.project("beta")
    other = bearer(make_key(engine, other_id))

    def submit(headers: dict[str, str]) -> httpx.Response:
        return world.api.client.post(
            "/api/v1/jobs", json=SPEC, headers={**headers, "Idempotency-Key": "the-same"}
        )

    mine, theirs = submit({}), submit(other)
    assert (mine.status_code, theirs.status_code) == (201, 201)
    assert mine.json()["id"] != theirs.json()["id"]
    assert submit(other).json()["id"] == theirs.json()["id"]
    spec = parse_spec(SPEC)
    ids = {promise_key(one, spec, accept_risk=False) for one in (world.job.project_id, other_id)}
    assert len(ids) == 2
