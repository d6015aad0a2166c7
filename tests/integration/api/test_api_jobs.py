"""Jobs over REST: the list and its pages, one job in its documented shape, and commands to it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import select, text

from app.api.jobs.job_shapes import JobAccepted, JobDetail, JobPage
from app.domain.deployment.disk_full import DISK_FULL_SENTENCE
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.job import JobState
from app.orchestration.estimates.estimate_remaining import keep_progress
from app.orchestration.estimates.work_by_gpu import left_of
from app.orchestration.frame.aggregate import open_job
from app.storage.schema import tables
from tests.support.api.agent_api import POOL, Gang, SpeakingAgent
from tests.support.api.people_api import (
    PeopleApi,
    make_own_gang,
    price_pool,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import add_row, change_row


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    JobPage.model_validate(answer.json())
    return [item["name"] for item in answer.json()["items"]]


def show(api: PeopleApi, job: str) -> dict[str, Any]:
    document: dict[str, Any] = api.get(f"/jobs/{job}")
    JobDetail.model_validate(document)
    return document


def listed(api: PeopleApi, job: str) -> dict[str, Any]:
    [found] = api.items("/jobs", name=job)
    return found


def set_job(api: PeopleApi, job_id: object, **values: object) -> None:
    change_row(api.engine, tables.jobs, job_id, **values)


def set_attempt(api: PeopleApi, gang: Gang, **values: object) -> None:
    """The attempt runs, with these values."""
    change_row(api.engine, tables.attempts, gang.attempt_id, **{"state": "running", **values})


def hear(api: PeopleApi, instance_id: UUID, **values: object) -> None:
    add_row(
        api.engine, tables.contacts, instance_id=instance_id, session_id="s", seq=1, fact_no=0,
        answered_at=datetime.now(UTC), phase="train", **values,
    )  # fmt: skip


def measured(steps: int, seconds: float, last: int, start_up: float = 5.0) -> dict[str, object]:
    """What the machine's agent measured, for `hear`."""
    first = {"first_step": last - steps, "last_step": last}
    return {**first, "stepping_seconds": seconds, "start_up_seconds": start_up}


def look_at_deadline(api: PeopleApi, job_id: UUID) -> None:
    """As the watch of deadlines stores for the list what it works out."""
    runtime = api.parts.runtime
    actor = Actor(ActorKind.CONTROLLER, "test")
    with runtime.begin() as uow, open_job(uow, runtime.entropy, job_id, actor) as aggregate:
        assert aggregate is not None
        keep_progress(aggregate.job, left_of(aggregate), aggregate.now)


def test_the_list_comes_newest_first_in_pages(api: PeopleApi):
    label = {"suite": "pages"}
    made = [api.submitted(labels=label)["name"] for _ in range(5)]
    query: dict[str, Any] = {"label": "suite=pages", "limit": 2}
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(3):
        more = {"cursor": cursor} if cursor else {}
        answer = api.client.get("/api/v1/jobs", params={**query, **more})
        seen += names(answer)
        cursor = answer.json()["next"]
    assert seen == made[::-1]
    assert cursor is None
    full = api.client.get("/api/v1/jobs", params={**query, "limit": 5})
    assert full.json()["next"] is None


def test_jobs_submitted_in_one_instant_are_listed_once_each(api: PeopleApi):
    at = datetime.now(UTC)
    ids = [api.submitted(labels={"suite": "instant"})["id"] for _ in range(4)]
    for job_id in ids:
        set_job(api, job_id, submitted_at=at)
    seen: list[str] = []
    cursor: str | None = None
    while len(seen) < 10:
        more = {"cursor": cursor} if cursor else {}
        query: dict[str, Any] = {"label": "suite=instant", "limit": 1, **more}
        answer = api.client.get("/api/v1/jobs", params=query).json()
        seen += [item["id"] for item in answer["items"]]
        cursor = answer["next"]
        if cursor is None:
            break
    assert seen == sorted(ids, reverse=True)


def test_filters_narrow_the_list(api: PeopleApi):
    api.submitted(name="filter-one", labels={"team": "nlp", "tier": "a"})
    second = api.submitted(name="filter-two", labels={"team": "nlp"})
    api.client.post("/api/v1/jobs/filter-two/cancel")

    def found(**query: Any) -> list[str]:
        answer = api.client.get("/api/v1/jobs", params={"name": "filter-", **query})
        return sorted(names(answer))

    assert found() == ["filter-one", "filter-two"]
    assert found(state="queued") == ["filter-one"]
    assert found(state="cancelled,running") == ["filter-two"]
    assert found(state="live") == ["filter-one"]
    assert found(state="ended") == ["filter-two"]
    assert found(label=["team=nlp", "tier=a"]) == ["filter-one"]
    assert found(label="team=vision") == []
    assert found(label=["tier=a", "tier=a"]) == ["filter-one"]
    assert found(since=second["submitted_at"]) == ["filter-two"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"state": "sleeping"}, "state"),
        ({"cursor": "x"}, "cursor"),
        ({"label": ["team=nlp", "team=vision"]}, "label"),
        ({"label": ["team=nlp", "team"]}, "label"),
        ({"cursor": "9" * 70 + "-" + str(uuid4())[:5]}, "cursor"),
        ({"limit": 201}, "limit"),
        ({"limit": 10**30}, "limit"),
        ({"label": "team"}, "label"),
        ({"since": "2026-01-01T00:00:00"}, "since"),
        ({"since": "yesterday"}, "since"),
    ],
)
def test_a_bad_filter_is_named(api: PeopleApi, query: dict[str, Any], field: str):
    assert_refused(api.client.get("/api/v1/jobs", params=query), 422, field=field)


def test_a_waiting_job_says_why(api: PeopleApi):
    made = api.submitted(budget_usd=5, deadline="2h")
    JobAccepted.model_validate(made)
    found = show(api, made["name"])
    assert (found["id"], found["state"]) == (made["id"], "queued")
    assert "queue" in found["why"]
    assert found["money"]["left_microusd"] == 5_000_000
    assert found["deadline"]["on_deadline"] == "finish"
    set_job(api, made["id"], wait_reason="No pool has 4 machines.", claimable_at=datetime.now(UTC))
    assert show(api, made["id"])["why"] == "No pool has 4 machines."


def test_a_running_job_shows_progress_machines_and_money(api: PeopleApi):
    gang = make_own_gang(api, 2, name="shown")
    price_pool(api, 918_000)
    began = datetime.now(UTC) - timedelta(seconds=100)
    set_job(
        api, gang.job_id, state="running", started_at=began, total_steps=1000, committed_step=300
    )
    set_attempt(api, gang, trained_at=began)
    noticed_at = datetime.now(UTC)
    notice = {"noticed_at": noticed_at, "notice_deadline_at": noticed_at + timedelta(seconds=60)}
    change_row(api.engine, tables.instances, gang.instance_ids[1], state="interrupting", **notice)
    at = began + timedelta(seconds=100)
    metrics = {"loss": 0.25, "samples_per_second": 1940.0}
    pace = measured(380, 95.0, last=400)
    hear(api, gang.instance_ids[0], fence=1, step=400, step_at=at, metrics=metrics, **pace)
    look_at_deadline(api, gang.job_id)
    found = show(api, "shown")
    progress = found["progress"]
    assert (progress["step"], progress["percent"], progress["loss"]) == (400, 40.0, 0.25)
    assert progress["samples_per_second"] == 1940.0
    assert progress["steps_per_second"] == pytest.approx(4.0)
    assert progress["remaining_seconds"] == 150
    assert progress["eta_from"] == "measured"
    assert found["money"]["microusd_per_hour"] == 2 * 918_000
    first, second = found["machines"]
    assert (first["zone"], first["market"], first["phase"]) == ("us-west-2a", "spot", "train")
    assert 0 < second["notice"]["seconds_left"] <= 60
    assert found["attempts"]["live"]["fence"] == 1
    row = listed(api, "shown")
    assert (row["step"], row["percent"], row["machines"]) == (400, 40.0, 2)
    assert row["pools"] == [POOL.key]
    assert row["microusd_per_hour"] == 2 * 918_000
    assert row["remaining_seconds"] == pytest.approx(150, abs=2)
    assert row["eta_from"] == "measured"
    assert (row["net_saved_microusd"], row["net_saved_ratio"]) == (None, None)


def test_a_full_disk_is_in_the_job_the_list_and_the_history_until_it_has_room(api: PeopleApi):
    gang = make_own_gang(api, name="brimming")
    agent = SpeakingAgent(api, gang)
    assert agent.register().status_code == 200
    set_job(api, gang.job_id, state="running")
    set_attempt(api, gang)
    progress = {"step": 5, "total_steps": None, "metrics": {"loss": 0.5}}
    told = {"folder": "/scratch/lowtide/attempts", "free_bytes": 4_096}

    def shown() -> tuple[bool, str | None, str | None, dict[str, Any]]:
        row, found = listed(api, "brimming"), show(api, "brimming")
        [machine] = found["machines"]
        assert row["disk_full"] is machine["disk_full"]
        return machine["disk_full"], found["why"], row["why"], found["progress"]["metrics"]

    assert agent.report(fence=1, progress=progress).status_code == 200
    assert shown() == (False, None, None, {"loss": 0.5})
    for _ in range(2):
        assert agent.report(fence=1, progress=progress, disk_full=told).status_code == 200
        assert shown() == (True, DISK_FULL_SENTENCE, DISK_FULL_SENTENCE, {"loss": 0.5})
    assert agent.report(fence=1, progress=progress).status_code == 200
    assert shown() == (False, None, None, {"loss": 0.5})
    disk = [one for one in api.items("/jobs/brimming/events") if one["kind"].startswith("disk_")]
    assert sorted(one["kind"] for one in disk) == ["disk_full", "disk_has_room"]
    said = next(one["message"] for one in disk if one["kind"] == "disk_full")
    assert "4,096 bytes are free in /scratch/lowtide/attempts" in said
    told["free_bytes"] = -1
    assert agent.report(fence=1, disk_full=told).status_code == 422


def assert_one_end_is_told(api: PeopleApi, job: str) -> None:
    """The list and the page of the job expect the same."""
    row, shown = listed(api, job), show(api, job)["progress"]
    for field in ("step", "eta_from"):
        assert row[field] == shown[field], field
    end = shown["remaining_seconds"]
    assert row["remaining_seconds"] == (None if end is None else pytest.approx(end, abs=2))


@pytest.mark.parametrize("total", [None, 401, 999, 10**11])
@pytest.mark.parametrize("step", [None, 300, 400])
@pytest.mark.parametrize("estimated", [True, False])
@pytest.mark.parametrize("trained", [(None, None), (4, 9.0), (440, 22.5)])
def test_the_list_and_the_page_of_a_job_expect_the_same_end(
    api: PeopleApi,
    total: int | None,
    step: int | None,
    estimated: bool,
    trained: tuple[int | None, float | None],
):
    name = f"end-{total}-{step}-{estimated}-{trained[0]}".lower()
    estimate = {"hours": 0.12345, "gpu": "V100"}
    spec: dict[str, Any] = {"estimate": estimate} if estimated else {}
    gang = make_own_gang(api, name=name, **spec)
    began = datetime.now(UTC) - timedelta(seconds=77)
    set_job(
        api, gang.job_id, state="running", started_at=began, total_steps=total, committed_step=350,
        trained_steps=trained[0], trained_seconds=trained[1],
    )  # fmt: skip
    set_attempt(api, gang, trained_at=began, parent_step=300)
    if step is not None:
        pace = {} if step == 300 else measured(99, 60.0, last=step)
        hear(api, gang.instance_ids[0], fence=1, step=step, metrics={}, **pace)
    look_at_deadline(api, gang.job_id)
    assert_one_end_is_told(api, name)


def test_the_time_of_a_command_that_tells_no_steps_counts_in_the_list_too(api: PeopleApi):
    estimate = {"hours": 1.0, "gpu": "V100"}
    gang = make_own_gang(api, name="no-steps", estimate=estimate)
    began = datetime.now(UTC) - timedelta(seconds=600)
    set_job(api, gang.job_id, state="running", started_at=began, committed_step=9)
    saved = {"committed_step": 9, "committed_at": began + timedelta(seconds=400)}
    set_attempt(api, gang, trained_at=began, **saved)
    hear(api, gang.instance_ids[0], fence=1, step=None, step_at=None, metrics={})
    look_at_deadline(api, gang.job_id)
    assert show(api, "no-steps")["progress"]["remaining_seconds"] == 3_200
    assert_one_end_is_told(api, "no-steps")


@pytest.mark.parametrize("step", [None, 400])
@pytest.mark.parametrize("trained", [(None, None), (440, 22.5)])
@pytest.mark.parametrize("share", [None, 0.4])
def test_the_end_of_an_elastic_job_is_that_of_the_gang_it_has(
    api: PeopleApi,
    step: int | None,
    trained: tuple[int | None, float | None],
    share: float | None,
):
    name = f"elastic-{step}-{trained[0]}-{share}".lower().replace(".", "")
    gang = make_own_gang(api, name=name)
    began = datetime.now(UTC) - timedelta(seconds=77)
    spec = {"run": "x", "nodes": "1..4", "estimate": {"hours": 0.5, "nodes": 3}}
    set_job(
        api, gang.job_id, state="running", started_at=began, total_steps=999, committed_step=350,
        spec=spec, trained_steps=trained[0], trained_seconds=trained[1], serial_share=share,
    )  # fmt: skip
    set_attempt(api, gang, trained_at=began, parent_step=300)
    if step is not None:
        pace = measured(99, 60.0, last=step)
        hear(api, gang.instance_ids[0], fence=1, step=step, metrics={}, **pace)
    look_at_deadline(api, gang.job_id)
    assert show(api, name)["nodes"] == listed(api, name)["nodes"] == "1..4"
    assert show(api, name)["progress"]["remaining_seconds"] is not None
    assert_one_end_is_told(api, name)


def test_steps_of_an_earlier_attempt_do_not_count(api: PeopleApi):
    gang = make_own_gang(api, name="redone")
    set_job(api, gang.job_id, total_steps=100, committed_step=10, next_fence=3)
    change_row(api.engine, tables.attempts, gang.attempt_id, fence=2)
    hear(api, gang.instance_ids[0], fence=1, step=90, metrics={})
    assert show(api, "redone")["progress"]["step"] == 10
    assert listed(api, "redone")["step"] == 10


def test_a_job_is_cancelled_once(api: PeopleApi):
    api.submitted(name="to-cancel")
    answer = api.client.post("/api/v1/jobs/to-cancel/cancel", json={"now": True})
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    JobDetail.model_validate(answer.json())
    assert answer.json()["why"] == "Cancelled by ada, at once."
    assert_refused(api.client.post("/api/v1/jobs/to-cancel/cancel"), 409, "cancelled")


def test_cancelling_drains_what_runs_and_is_in_the_history(api: PeopleApi):
    gang: Gang = make_own_gang(api, name="draining")
    set_job(api, gang.job_id, state="running")
    set_attempt(api, gang)
    found = api.client.post("/api/v1/jobs/draining/cancel").json()
    assert (found["state"], found["stop_cause"]) == ("stopping", "user")
    assert found["attempts"]["live"]["state"] == "draining"
    events = api.items("/jobs/draining/events")
    assert {"stop_ordered", "drain_ordered_stop"} <= {event["kind"] for event in events}
    assert {event["actor"] for event in events} == {"person:ada"}


def test_a_paused_job_resumes_with_more_budget(api: PeopleApi):
    api.submitted(name="to-pause", budget_usd=5)
    refused = api.client.post("/api/v1/jobs/to-pause/resume")
    assert refused.status_code == 409
    told = "This job is already waiting for machines: there is nothing to resume."
    assert refused.json()["detail"] == told
    assert api.client.post("/api/v1/jobs/to-pause/pause").json()["state"] == "paused"
    assert api.client.post("/api/v1/jobs/to-pause/pause").status_code == 409
    for bad in ("abc", "-5", 0, {"x": 1}, True):
        answer = api.client.post("/api/v1/jobs/to-pause/resume", json={"add_budget_usd": bad})
        assert_refused(answer, 422, "add_budget_usd")
    assert show(api, "to-pause")["state"] == "paused"
    done = api.client.post("/api/v1/jobs/to-pause/resume", json={"add_budget_usd": "+50"}).json()
    assert (done["state"], done["money"]["budget_microusd"]) == ("queued", 55_000_000)


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b'{"now": "yes"}', "application/json", 422),
        (b'{"nwo": true}', "application/json", 422),
        (b'{"now":', "application/json", 422),
        (b"[" * 100_000, "application/json", 400),
        (b"now: true", "application/yaml", 415),
        (b'{"now": NaN}', "application/json", 422),
    ],
)
def test_a_bad_command_changes_nothing(api: PeopleApi, body: bytes, content_type: str, status: int):
    name = api.submitted()["name"]
    headers = {"Content-Type": content_type}
    answer = api.client.post(f"/api/v1/jobs/{name}/cancel", content=body, headers=headers)
    assert answer.status_code in (status, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert show(api, name)["state"] == "queued"


def test_a_command_does_not_wait_long_for_a_locked_job(api: PeopleApi):
    made = api.submitted(name="locked")
    with api.engine.begin() as connection:
        statement = select(tables.jobs.c.id).where(tables.jobs.c.id == made["id"])
        connection.execute(statement.with_for_update())
        answer = api.client.post("/api/v1/jobs/locked/cancel")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "try again" in answer.json()["detail"]
    assert show(api, "locked")["state"] == "queued"


def test_other_projects_jobs_are_out_of_sight(api: PeopleApi):
    api.submitted(name="mine")
    as_other = api.as_stranger("other")
    assert api.client.get("/api/v1/jobs", headers=as_other).json()["items"] == []
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("GET", "/cost")):
        answer = api.client.request(method, f"/api/v1/jobs/mine{path}", headers=as_other)
        assert answer.status_code == 404
    assert show(api, "mine")["state"] == JobState.QUEUED


def test_a_name_that_looks_like_an_id_finds_its_job(api: PeopleApi):
    name = str(uuid4())
    made = api.submitted(name=name)
    assert show(api, name)["id"] == made["id"]
    shadow = api.submitted(name=made["id"])
    assert show(api, made["id"])["name"] == name
    assert shadow["id"] != made["id"]


def test_the_list_uses_its_index(api: PeopleApi):
    from app.storage.reports.job_facts import JobFilter
    from app.storage.reports.job_list_statement import list_statement

    statement, parameters = list_statement(JobFilter(api.project_id, 50), datetime.now(UTC))
    with api.engine.connect() as connection:
        # With so few rows anything is cheap: only whether the index can serve the order is asked.
        for way in ("seqscan", "bitmapscan", "sort"):
            connection.execute(text(f"SET enable_{way} = off"))
        plan = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars().all()
    assert any("ix_jobs_listing" in line and "Backward" in line for line in plan), plan


def test_an_interval_that_a_command_will_not_keep_is_warned_of(api: PeopleApi):
    """Only the bundled trainer reads it: a command decides itself when it saves."""
    work: dict[str, Any] = {"trainer": None, "run": "python train.py"}
    [warning] = api.submitted(name="own-1", **work, checkpoint={"interval": "5m"})["warnings"]
    assert "checkpoint.interval does nothing for a `run`" in warning
    assert api.submitted(name="own-2", **work, checkpoint={"interval": "auto"})["warnings"] == []
    assert api.submitted(name="own-3", checkpoint={"interval": "5m"})["warnings"] == []
