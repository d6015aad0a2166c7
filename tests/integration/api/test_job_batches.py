"""One command for many jobs over REST: in few transactions, and past those that cannot be had."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text

from app.api.jobs import job_batches
from app.api.jobs.job_batches import BatchAnswer
from app.orchestration.gang.stop_many import JOBS_MAX
from app.storage.schema import tables
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    make_own_gang,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import change_rows, fetch

PART = 60
_numbers = itertools.count()


def names_of(api: PeopleApi, count: int, **spec: Any) -> list[str]:
    names = [f"many-{next(_numbers)}" for _ in range(count)]
    for name in names:
        api.submitted(name=name, **spec)
    return names


def batch(api: PeopleApi, **body: Any) -> dict[str, Any]:
    answer = api.client.post("/api/v1/jobs/batch", json={"action": "cancel", **body})
    assert answer.status_code == 200, answer.text
    BatchAnswer.model_validate_json(answer.content)
    found: dict[str, Any] = answer.json()
    return found


def rows(api: PeopleApi, names: list[str]) -> list[Any]:
    jobs = tables.jobs.c
    wanted = select(jobs.name, jobs.state, jobs.version, jobs.event_seq, text("xmin"))
    return fetch(api.engine, wanted.where(jobs.name.in_(names)).order_by(jobs.name))


def test_each_job_of_a_list_is_told_of(api: PeopleApi):
    first, second, third = names_of(api, 3)
    api.client.post(f"/api/v1/jobs/{third}/cancel", json={})
    by_id = api.get(f"/jobs/{second}")["id"]
    found = batch(api, ids=[first, by_id, third, "nobody", first])
    assert [
        (one["named"], one["name"], one["outcome"], one["state"]) for one in found["items"]
    ] == [
        (first, first, "done", "cancelled"),
        (by_id, second, "done", "cancelled"),
        (third, third, "unchanged", "cancelled"),
        ("nobody", None, "not_found", None),
    ]
    assert found["counts"] == {"done": 2, "unchanged": 1, "not_found": 1}
    assert found["next"] is None
    [*_, last] = api.items(f"/jobs/{first}/events")
    assert (last["kind"], last["actor"]) == ("stopped_for_user", "person:ada")
    assert last["message"] == "Cancelled by ada."


def test_three_hundred_jobs_are_cancelled_in_one_request(api: PeopleApi):
    names = names_of(api, 300, labels={"sweep": "many"})
    found = batch(api, filter={"labels": {"sweep": "many"}})
    assert (found["counts"], found["next"]) == ({"done": 300}, None)
    assert {row.state for row in rows(api, names)} == {"cancelled"}


def test_jobs_are_paused_and_resumed_together(api: PeopleApi):
    first, second = names_of(api, 2, labels={"sweep": "rest"})
    wanted = {"labels": {"sweep": "rest"}}
    assert batch(api, action="pause", ids=[first])["counts"] == {"done": 1}
    # Without a state, those that the command is meant for.
    assert [one["name"] for one in batch(api, action="pause", filter=wanted)["items"]] == [second]
    assert batch(api, action="pause", ids=[first, second])["counts"] == {"unchanged": 2}
    resumed = batch(api, action="resume", filter=wanted)
    assert (resumed["action"], resumed["counts"]) == ("resume", {"done": 2})
    assert {row.state for row in rows(api, [first, second])} == {"queued"}
    assert batch(api, action="resume", ids=[first])["counts"] == {"unchanged": 1}
    batch(api, ids=[first])
    [item] = batch(api, action="resume", ids=[first])["items"]
    assert item["outcome"] == "refused"
    assert "To run it again, submit it under another name" in item["detail"]


def test_again_changes_nothing(api: PeopleApi):
    names = names_of(api, 3)
    batch(api, ids=names)
    before = rows(api, names)
    assert batch(api, ids=names)["counts"] == {"unchanged": 3}
    assert rows(api, names) == before


def test_fifty_jobs_are_one_transaction(api: PeopleApi):
    names = names_of(api, 50)
    assert batch(api, ids=names)["counts"] == {"done": 50}
    assert {row.state for row in rows(api, names)} == {"cancelled"}
    assert len({row.xmin for row in rows(api, names)}) == 1


def test_a_job_that_something_else_holds_is_told_as_busy(api: PeopleApi):
    """Nobody waits for its lock: not for two seconds, and not for ever."""
    names = names_of(api, 4)
    held = names[1]
    with api.engine.begin() as connection:
        jobs = tables.jobs
        connection.execute(select(jobs.c.id).where(jobs.c.name == held).with_for_update())
        found = batch(api, ids=names)
    outcomes = {one["name"]: (one["outcome"], one["state"]) for one in found["items"]}
    assert outcomes.pop(held) == ("busy", None)
    assert set(outcomes.values()) == {("done", "cancelled")}
    assert batch(api, ids=names)["counts"] == {"unchanged": 3, "done": 1}


def test_a_job_that_is_held_for_a_moment_is_tried_again(api: PeopleApi):
    [name] = names_of(api, 1)
    with ThreadPoolExecutor(1) as people, api.engine.connect() as connection:
        jobs = tables.jobs
        connection.execute(select(jobs.c.id).where(jobs.c.name == name).with_for_update())
        answer = people.submit(batch, api, ids=[name])
        time.sleep(0.4)
        connection.rollback()
        assert answer.result(30)["counts"] == {"done": 1}


def test_batches_that_meet_on_the_same_jobs_cancel_each_once(api: PeopleApi):
    """They lock in one order whatever order was asked for, so none waits for another in a ring."""
    names = names_of(api, 60)
    orders = [names, names[::-1], names[30:] + names[:30], names[::2] + names[1::2]]
    with ThreadPoolExecutor(len(orders)) as people:
        answers = list(people.map(lambda ids: batch(api, ids=ids), orders))
    items = [item for answer in answers for item in answer["items"]]
    assert {item["outcome"] for item in items} <= {"done", "unchanged", "busy"}
    done = [item["name"] for item in items if item["outcome"] == "done"]
    assert sorted(done) == sorted(names)
    stops = {row.event_seq for row in rows(api, names)}
    assert len(stops) == 1, "each history has one line about it"


def test_what_runs_saves_first_unless_now(api: PeopleApi):
    name = f"runs-{next(_numbers)}"
    make_own_gang(api, name=name)
    [item] = batch(api, ids=[name])["items"]
    assert item["outcome"] == "done"
    first = item["state"]
    assert first in ("stopping", "cancelled")
    assert batch(api, ids=[name])["counts"] == {"unchanged": 1}
    now = batch(api, ids=[name], now=True)["items"][0]
    assert now["outcome"] in ("done", "unchanged")
    assert batch(api, ids=[name], now=True)["counts"] == {"unchanged": 1}


def test_an_ended_job_is_refused_by_its_state(api: PeopleApi):
    [name] = names_of(api, 1)
    ended = {"state": "succeeded", "ended_at": datetime.now(UTC)}
    change_rows(api.engine, tables.jobs, tables.jobs.c.name == name, **ended)
    [item] = batch(api, ids=[name])["items"]
    assert (item["outcome"], item["state"]) == ("refused", "succeeded")
    assert item["detail"] == "This job has already succeeded: there is nothing to cancel."


def test_a_filter_finds_part_after_part_and_only_ones_own(
    api: PeopleApi, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(job_batches, "JOBS_MAX", PART)
    count = PART + 3
    mine = names_of(api, count, labels={"sweep": "a"})
    other = names_of(api, 1, labels={"sweep": "b"})
    headers, spec = api.as_stranger("strangers"), {**SPEC, "labels": {"sweep": "a"}}
    theirs = httpx.post(f"{api.url}/api/v1/jobs", json=spec, headers=headers)
    assert theirs.status_code == 201
    wanted = {"state": "queued", "labels": {"sweep": "a"}}
    first = batch(api, filter=wanted)
    assert (len(first["items"]), first["counts"]) == (PART, {"done": PART})
    second = batch(api, filter=wanted, cursor=first["next"])
    assert (second["counts"], second["next"]) == ({"done": 3}, None)
    assert sorted(one["name"] for one in first["items"] + second["items"]) == sorted(mine)
    assert [row.state for row in rows(api, other)] == ["queued"]
    assert rows(api, [theirs.json()["name"]])[0].state == "queued"
    assert batch(api, filter=wanted)["items"] == []
    # Those that stay as they are do not come again with the next part.
    ended = {"state": "cancelled", "labels": {"sweep": "a"}}
    first = batch(api, filter=ended)
    second = batch(api, filter=ended, cursor=first["next"])
    told = first["items"] + second["items"]
    assert (sorted(one["name"] for one in told), second["next"]) == (sorted(mine), None)
    assert {one["outcome"] for one in told} == {"unchanged"}
    later = {"name": other[0], "since": "2999-01-01T00:00:00Z"}
    assert batch(api, filter=later)["items"] == []
    assert batch(api, filter={"name": other[0]})["counts"] == {"done": 1}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "either `ids` or `filter`"),
        ({"ids": ["a"], "filter": {}}, "either `ids` or `filter`"),
        ({"ids": ["a"], "cursor": "1-2"}, "cursor: goes with a `filter`"),
        ({"filter": {}, "cursor": "x"}, "use the `next`"),
        ({"ids": []}, "ids: "),
        ({"ids": ["a"] * (JOBS_MAX + 1)}, "ids: "),
        ({"ids": ["\x00"]}, "stored"),
        ({"filter": {"state": "asleep"}}, "is not a state of a job"),
        ({"filter": {"status": "live"}}, "is unknown; remove it"),
        ({"action": "explode", "ids": ["a"]}, "action: "),
        ({"ids": ["a"], "now": "yes"}, "now: "),
        ({"action": "pause", "ids": ["a"], "now": True}, "now: goes with the action `cancel`"),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused(api: PeopleApi, body: dict[str, Any], words: str):
    answer = api.client.post("/api/v1/jobs/batch", json={"action": "cancel", **body})
    assert_refused(answer, 422, words)


def test_it_is_described(api: PeopleApi):
    page = httpx.get(f"{api.url}/openapi.json").json()
    route = page["paths"]["/api/v1/jobs/batch"]["post"]
    shape = route["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert shape.endswith("/BatchAnswer")
    assert "filter" in page["components"]["schemas"]["BatchBody"]["properties"]
