"""Submitting over REST: one job per key, names, every bad input, and nothing half-written."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.placement.placement import capacity_key
from app.domain.spec.job_spec import parse_spec
from app.orchestration.queue import submit_job as verb
from app.orchestration.queue.submit_job import submit_job
from app.storage.schema import tables
from tests.support.api.people_api import SPEC, PeopleApi
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import row_of

JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}


def job_row(api: PeopleApi, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = row_of(api.engine, tables.jobs, id=job_id)._asdict()
    return found


def test_a_submission_stores_the_job_its_budget_and_its_first_event(api: PeopleApi):
    spec = {
        **SPEC, "name": "stored", "budget_usd": 25, "deadline": "36h", "max_wait": "2h",
        "priority": 70, "market": "on_demand", "max_duration": "4h",
    }  # fmt: skip
    answer = api.submit(spec)
    assert answer.status_code == 201
    job = job_row(api, answer.json()["id"])
    assert answer.headers["location"] == f"/api/v1/jobs/{job['id']}"
    submitted_at: datetime = job["submitted_at"]
    assert job["state"] == "queued"
    assert job["queue_rank_at"] == submitted_at - timedelta(minutes=700)
    assert job["deadline_at"] == submitted_at + timedelta(hours=36)
    assert job["max_wait_at"] == job["timer_at"] == submitted_at + timedelta(hours=2)
    assert job["max_duration_seconds"] == 4 * 3600
    assert (job["total_steps"], job["market_mode"], job["next_fence"]) == (100, "on_demand", 1)
    assert job["capacity_key"] == capacity_key(parse_spec(spec))
    assert parse_spec(job["spec"]) == parse_spec(spec)
    own = row_of(api.engine, tables.budgets, id=job["budget_id"])
    event = row_of(api.engine, tables.events, job_id=job["id"])
    assert (own.job_id, own.cap_microusd, own.spent_microusd) == (job["id"], 25_000_000, 0)
    assert (event.seq, event.actor, event.kind) == (1, "person:ada", "submitted")
    assert (job["event_seq"], event.to_state, event.at) == (1, "queued", submitted_at)


def test_yaml_and_json_say_the_same(api: PeopleApi):
    text = b"trainer: {model: mlp, data: digits, steps: 100}\nname: from-yaml\n"
    answer = api.client.post("/api/v1/jobs", content=text, headers=YAML)
    assert answer.status_code == 201
    twin = api.submit({**SPEC, "name": "from-json"}).json()["id"]
    first, second = job_row(api, answer.json()["id"])["spec"], job_row(api, twin)["spec"]
    assert {**first, "name": 0} == {**second, "name": 0}


def test_one_key_makes_one_job(api: PeopleApi):
    before = api.count(tables.budgets)
    first = api.submit({**SPEC, "deadline": "9h"}, Idempotency_Key="k-1")
    again = api.submit({**SPEC, "deadline": "9h"}, Idempotency_Key="k-1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert {**again.json(), "created": True} == first.json()
    assert api.count(tables.budgets) == before + 1
    other = api.submit({**SPEC, "deadline": "8h"}, Idempotency_Key="k-1")
    assert_refused(other, 409, first.json()["name"])
    assert api.count(tables.budgets) == before + 1


def test_one_key_makes_one_job_for_many_at_once(api: PeopleApi):
    def submit(_: int) -> httpx.Response:
        return api.submit(SPEC, Idempotency_Key="at-once")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(submit, range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] * 15 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


def test_a_repetition_is_fine_where_the_first_was(api: PeopleApi, tmp_path: Path):
    folder = tmp_path / "was-writable"
    spec = {**SPEC, "checkpoint": {"uri": folder.as_uri()}}
    first = api.submit(spec, Idempotency_Key="k-2")
    assert first.status_code == 201
    folder.rmdir()
    folder.write_text("a file now")
    assert api.submit(spec, Idempotency_Key="k-2").json()["id"] == first.json()["id"]
    assert api.submit(spec, Idempotency_Key="k-3").status_code == 422


@pytest.mark.parametrize("key", ["", "x" * 201, "caf\u00e9"])
def test_a_bad_key_is_refused(api: PeopleApi, key: str):
    headers = [(b"Idempotency-Key", key.encode("latin-1")), (b"Content-Type", b"application/json")]
    answer = api.client.post("/api/v1/jobs", content=json.dumps(SPEC), headers=headers)
    assert_refused(answer, 422, field="Idempotency-Key")


def test_a_taken_name_is_refused_with_the_next_free_one(api: PeopleApi):
    api.submitted(name="taken")
    api.submitted(name="taken-2")
    before = [api.count(table) for table in (tables.jobs, tables.budgets, tables.events)]
    assert_refused(api.submit({**SPEC, "name": "taken"}), 409, "'taken-3' is free", field="name")
    assert [api.count(t) for t in (tables.jobs, tables.budgets, tables.events)] == before


def test_a_made_name_that_is_taken_is_made_anew(api: PeopleApi, monkeypatch: pytest.MonkeyPatch):
    api.submitted(name="old-name-1")
    names = iter(["old-name-1", "old-name-1", "new-name-1"])
    monkeypatch.setattr(verb, "default_name", lambda seed: next(names))
    assert api.submitted()["name"] == "new-name-1"


def test_the_verb_for_simulations_stores_the_same(api: PeopleApi):
    spec, actor = parse_spec({**SPEC, "name": "by-verb"}), Actor(ActorKind.PERSON, "ada")
    runtime = api.parts.runtime
    with runtime.begin() as uow:
        done = submit_job(uow, runtime, api.project_id, spec, actor, "verb-key")
    with runtime.begin() as uow:
        again = submit_job(uow, runtime, api.project_id, spec, actor, "verb-key")
    assert (done.created, again.created, again.job_id) == (True, False, done.job_id)
    twin = job_row(api, api.submitted(name="by-route")["id"])
    stored = job_row(api, str(done.job_id))
    same = set(twin) - {
        "id", "name", "budget_id", "spec", "spec_digest", "submitted_at", "updated_at",
        "queue_rank_at", "idempotency_key", "idempotency_digest", "owner_key_id",
    }  # fmt: skip
    assert {name: stored[name] for name in same} == {name: twin[name] for name in same}


BOMB = "a: &a [x,x]\nb: &b [*a,*a]\ntrainer: *b\n"
BAD_BODIES = {
    "broken-json": (JSON, b'{"trainer": ', 422, "not valid JSON"),
    "broken-yaml": (YAML, b"trainer: [", 422, ""),
    "yaml-bomb": (YAML, BOMB.encode(), 422, ""),
    "deep-json": (JSON, b'{"a":' * 50_000, 422, "nested more"),
    "empty": (JSON, b"", 422, "empty"),
    "list": (JSON, b"[]", 422, "mapping"),
    "nul": (JSON, b'{"name": "a\\u0000b"}', 422, "U+0000"),
    "raw-nul": (YAML, b"name: a\0b", 422, "U+0000"),
    "nan": (JSON, b'{"budget_usd": NaN}', 422, "NaN"),
    "huge-number": (JSON, b'{"priority": ' + b"9" * 5000 + b"}", 422, "too large"),
    "not-utf-8": (JSON, b'{"name": "\xff\xfe"}', 422, "UTF-8"),
    "surrogate": (JSON, b'{"name": "\\ud800"}', 422, ""),
    "too-large-spec": (JSON, b'{"run": "' + b"x" * 300_000 + b'"}', 413, "256 KiB"),
    "large-json": (JSON, b'{"a": [' + b"[]," * 80_000 + b"[]]}", 422, "5,000 values"),
    "deep-yaml": (YAML, b"[" * (256 << 10), 422, "line 1, column 21: nested more"),
    "one-key-yaml": (YAML, b"k" * ((256 << 10) - 4) + b": 1", 422, "line 1, column 262141"),
    "form": ({"Content-Type": "multipart/form-data"}, b"x", 415, "application/yaml"),
    "no-type": ({}, b"{}", 415, "application/json"),
}


@pytest.mark.parametrize("case", BAD_BODIES)
def test_a_bad_body_gets_a_sentence_and_leaves_nothing(api: PeopleApi, case: str):
    headers, body, status, words = BAD_BODIES[case]
    before = api.count(tables.budgets)
    assert_refused(api.client.post("/api/v1/jobs", content=body, headers=headers), status, words)
    assert api.count(tables.budgets) == before


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"priority": -1}, "priority", "at least 0"),
        ({"nodes": 10**9}, "nodes", "between 1 and"),
        ({"budget_usd": -5}, "budget_usd", "negative"),
        ({"trainer": {**SPEC["trainer"], "model": "resnet19"}}, "trainer.model", "resnet18"),
        ({"trainr": {}}, "trainr", "trainer"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline", "has passed already"),
        ({"notify": "https://acme.example/x"}, "notify", "no name of a channel"),
        ({"inputs": {"/data": "s3://acme/x"}}, "inputs./data", "LOWTIDE_DATA_PLACES"),
        ({"trainer": {**SPEC["trainer"], "data": "./x"}}, "trainer.data", "working folder"),
        (
            {"trainer": {"model": "cnn", "data": "s3://acme/x", "epochs": 1}},
            "trainer.data",
            "LOWTIDE_DATA_PLACES",
        ),
        ({"instance_types": "p3.2xlarg"}, "instance_types", "did you mean 'p3.2xlarge'"),
        ({"workdir": "sha256:" + "0" * 64}, "workdir", "never uploaded"),
        ({"checkpoint": {"uri": "file:///proc/nowhere"}}, "checkpoint.uri", "cannot be written"),
        ({"checkpoint": {"uri": "file:///dev/null/x"}}, "checkpoint.uri", "cannot be written"),
        ({"checkpoint": {"uri": "s3://acme/x"}}, "checkpoint.uri", "LOWTIDE_CHECKPOINT_BUCKETS"),
    ],
)
def test_a_refused_field_is_named(api: PeopleApi, change: dict[str, Any], field: str, words: str):
    answer = api.submit({**SPEC, **change})
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == field
    assert words in error["message"]


def test_a_checkpoint_folder_is_made_and_left_empty(api: PeopleApi, tmp_path: Path):
    folder = tmp_path / "new" / "checkpoints"
    api.submitted(checkpoint={"uri": folder.as_uri()})
    assert folder.is_dir()
    assert list(folder.iterdir()) == []
