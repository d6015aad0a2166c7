"""What routes answer when all is well, held against /openapi.json: status, content type, shape.

Not here: refusals, and what a route does not take (test_api_description).
"""

from __future__ import annotations

import gzip
import hashlib
from typing import Any

import httpx
import pytest

from tests.support.api.described_answers import breaches, described_page
from tests.support.api.described_shapes import problems
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    make_key,
)

PAGE = described_page()
SHAPES = PAGE["components"]["schemas"]
PACKED = gzip.compress(bytes(10_240), mtime=0)  # an archive without members
WORKDIR = f"/api/v1/workdirs/sha256:{hashlib.sha256(PACKED).hexdigest()}"
JOB = "/api/v1/jobs/{job}"
ASKED: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("get", "/api/v1/jobs", {}, 200),
    ("get", "/api/v1/jobs", {"params": {"limit": 1, "state": "queued"}}, 200),
    ("get", JOB, {}, 200),
    ("get", f"{JOB}/copy", {}, 200),
    ("get", f"{JOB}/explanation", {}, 200),
    *(("get", f"{JOB}/{what}", {}, 200)
      for what in ("attempts", "events", "checkpoints", "metrics", "logs", "cost")),
    ("get", "/api/v1/costs", {}, 200),
    ("get", "/api/v1/costs", {"params": {"format": "csv"}}, 200),
    ("get", "/api/v1/costs/verify", {}, 200),
    ("get", "/api/v1/estimates/calibration", {}, 200),
    *(("get", f"/api/v1/{what}", {}, 200)
      for what in ("instances", "offers", "offers/history", "sweep")),
    *(("get", f"/{what}", {}, 200) for what in ("healthz", "readyz", "metrics")),
    ("post", "/api/v1/jobs/check", {"json": {**SPEC, "name": "other"}}, 200),
    ("put", WORKDIR, {"content": PACKED}, 201),
    ("put", WORKDIR, {"content": PACKED}, 200),
    ("head", WORKDIR, {}, 200),
    ("post", f"{JOB}/pause", {"json": {}}, 200),
    ("post", f"{JOB}/resume", {"json": {}}, 200),
    ("post", "/api/v1/jobs/batch", {"json": {"action": "pause", "filter": {}}}, 200),
    ("post", f"{JOB}/cancel", {"json": {}}, 200),
    ("post", "/api/v1/sweep", {"json": {}}, 200),
)  # fmt: skip


def test_answers_are_as_described(api: PeopleApi):
    admin = make_key(api.engine, api.project_id, "root", is_admin=True)
    api.client.headers["Authorization"] = f"Bearer {admin}"
    key = {"Idempotency-Key": "once"}
    for status in (201, 200):
        answer = api.client.post("/api/v1/jobs", json=SPEC, headers=key)
        assert (answer.status_code, breaches(answer, "post", "/api/v1/jobs")) == (status, [])
    job_id = answer.json()["id"]
    for method, path, more, status in ASKED:
        answer = api.client.request(method, path.replace("{job}", job_id), **more)
        told = (method, path, answer.status_code, breaches(answer, method, answer.url.path))
        assert told == (method, path, status, []), answer.text[:300]
    whole = {"deployment_id": api.client.get("/api/v1/sweep").json()["deployment_id"]}
    answer = api.client.post("/api/v1/destroy", json=whole)
    assert (answer.status_code, breaches(answer, "post", "/api/v1/destroy")) == (202, [])


@pytest.mark.parametrize("lacks", ["title", "detail"])
def test_a_problem_without_a_sentence_is_found(lacks: str):
    problem = {"type": "about:blank", "title": "Not found", "status": 404, "detail": "No such job."}
    asked = ("get", "/api/v1/jobs/one")
    kind = {"content-type": "application/problem+json"}
    assert breaches(httpx.Response(404, json=problem, headers=kind), *asked) == []
    for broken in ({**problem, lacks: " "}, {k: v for k, v in problem.items() if k != lacks}):
        [found] = breaches(httpx.Response(404, json=broken, headers=kind), *asked)
        assert lacks in found


def test_every_route_that_answers_with_json_has_a_described_shape():
    found = {
        (method, path)
        for path, routes in PAGE["paths"].items()
        for method, route in routes.items()
        for status, answer in route["responses"].items()
        if status != "default"
        and not answer.get("content", {}).get("application/json", {"schema": 1}).get("schema")
    }
    assert found == set()


def test_a_name_that_is_not_described_is_found():
    shape = SHAPES["StatementShape"]["properties"]["by_component"]
    assert problems({"compute": 1}, shape, SHAPES) == []
    [found] = problems({"computing": 1}, shape, SHAPES)
    assert "'computing' is no described value" in found


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"name": 1, "copied_from": "a", "spec": {}}, "answer.name: 1 is no"),
        ({"copied_from": "a", "spec": {}}, "name is missing"),
        ({"name": None, "copied_from": "a", "spec": {}, "more": 1}, "more is not described"),
    ],
)
def test_what_is_not_as_described_is_found(value: dict[str, Any], why: str):
    [found] = problems(value, {"$ref": "#/components/schemas/JobCopy"}, SHAPES)
    assert why in found
