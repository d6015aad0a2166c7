"""The described routes and what the served app does: content types, methods, times.

Every route of /openapi.json is asked once. Not here: keys (test_api_sign_in), bad bodies.
"""

from __future__ import annotations

import hashlib
import re

import httpx
import pytest

from tests.support.api.described_answers import breaches, described_page
from tests.support.api.people_api import PeopleApi
from tests.support.api.refusals import assert_refused

PAGE = described_page()["paths"]
CONTENT = b"not an archive"
PARAMETERS = {
    "{key}": "nothing",
    "{member}": "nothing",
    "{person}": "nothing",
    "{session}": "nothing",
    "{invitation}": "0" * 32,
    "{project}": "nothing",
    "{secret}": "NOTHING",
    "{channel}": "nothing",
    "{rule}": "0" * 32,
    "{delivery}": "0" * 32,
    "{instance_id}": "0" * 32,
    "{digest}": f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",
    "{fence}": "1",
    "{step}": "1",
    "{name}": "weights.pt",
}


def filled(path: str, job_id: str) -> str:
    for name, value in {**PARAMETERS, "{job}": job_id}.items():
        path = path.replace(name, value)
    assert "{" not in path, "a new parameter needs a value here"
    return path


@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for path, routes in PAGE.items() for method in routes]
)
def test_every_route_answers_as_it_is_described(api: PeopleApi, method: str, path: str):
    job_id = api.submitted()["id"]
    body = CONTENT if method == "put" else None
    answer = api.client.request(method, filled(path, job_id), content=body)
    assert breaches(answer, method, answer.url.path) == [], answer.text[:300]


def test_what_is_no_json_is_described_as_what_it_is():
    types = {
        ("/metrics", "get"): "text/plain",
        ("/agent/v1/wheel", "get"): "application/octet-stream",
        ("/agent/v1/workdirs/{digest}", "get"): "application/gzip",
        ("/api/v1/jobs/{job}/logs", "get"): "text/plain",
    }
    for (path, method), kind in types.items():
        assert kind in PAGE[path][method]["responses"]["200"]["content"]


def methods_of(asked: str) -> set[str]:
    """What the description has at an address: a job may be called like another route."""
    found: set[str] = set()
    for path, routes in PAGE.items():
        pattern = re.sub(r"\{\w+\}", "[^/]+", path.replace("{name}", ".+"))
        if re.fullmatch(pattern, asked):
            found |= set(routes)
    return found


@pytest.mark.parametrize("path", sorted(PAGE))
def test_the_methods_of_a_path_are_all_named(api: PeopleApi, path: str):
    answer = api.client.request("TRACE", filled(path, "x"))
    assert answer.status_code == 405
    told = {method.strip().lower() for method in answer.headers["allow"].split(",")}
    assert told == methods_of(filled(path, "x"))
    assert answer.headers["allow"] in answer.json()["detail"]


@pytest.mark.parametrize(
    "since", ["0.5", "0", "1700000000", "-1", "2026-01-01", "2026-01-01T00:00"]
)
def test_a_time_is_written_out_with_its_zone(api: PeopleApi, since: str):
    answer: httpx.Response = api.client.get("/api/v1/jobs", params={"since": since})
    assert_refused(answer, 422, field="since")


def test_a_time_that_is_written_out_is_taken(api: PeopleApi):
    for since in ("2026-01-01T00:00:00Z", "2026-01-01t00:00:00+02:00", "2026-01-01 00:00:00Z"):
        assert api.client.get("/api/v1/jobs", params={"since": since}).status_code == 200
    body = {"action": "cancel", "filter": {"since": 0.5}}
    assert api.client.post("/api/v1/jobs/batch", json=body).status_code == 422
