"""A query parameter that a route does not know is refused with the one that may be meant."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.adapters.system_entropy import SystemEntropy
from app.api.main import create_app

_APP = create_app()
# What the layers around the routes read; no route is reached.
_APP.state.parts = SimpleNamespace(trusted_proxies=(), entropy=SystemEntropy())


def _ask(path: str, method: str = "GET") -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(_APP, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            return await client.request(method, path)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("asked", "detail"),
    [
        ("/jobs?sate=running", "sate: unknown parameter; did you mean 'state'?"),
        ("/costs?group_by=label:team", "group_by: unknown parameter; did you mean 'by'?"),
        ("/costs?from_day=2026-01-01", "from_day: unknown parameter; did you mean 'from'?"),
        ("/costs?Format=csv", "Format: unknown parameter; did you mean 'format'?"),
        (
            "/instances?zzz=1",
            "zzz: unknown parameter; this route takes job, live, limit",
        ),
        ("/jobs/one?x=1", "x: unknown parameter; this route takes none"),
        (
            "/audit?whom=una&until=2026-01-01",
            "whom: unknown parameter; did you mean 'who'?; until: unknown parameter; this route "
            "takes who, action, project, day, cursor, limit, format",
        ),
    ],
)
def test_the_near_one_is_named_or_all_there_are(asked: str, detail: str):
    answer = _ask(f"/api/v1{asked}")
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)


def test_the_field_is_named_for_programs():
    [error] = _ask("/api/v1/jobs?sate=running").json()["errors"]
    assert (error["field"], error["kind"]) == ("sate", "unknown_field")


def test_a_command_is_not_carried_out_without_what_was_meant():
    answer = _ask("/api/v1/jobs?accept_rsk=true", "POST")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "accept_rsk: unknown parameter; did you mean 'accept_risk'?"


@pytest.mark.parametrize("path", ["/healthz?now=1", "/openapi.json?now=1"])
def test_probes_may_send_what_they_like(path: str):
    assert _ask(path).status_code == 200


def test_every_described_parameter_is_known():
    """Also those that a route reads by hand, and those with another name in the code."""
    page: dict[str, Any] = _APP.openapi()
    sent = {
        (path, method): [one["name"] for one in route.get("parameters", ()) if one["in"] == "query"]
        for path, routes in page["paths"].items()
        for method, route in routes.items()
    }
    assert ["accept_risk"] in sent.values()
    for (path, method), names in sent.items():
        if not (names and path.startswith("/api/")):
            continue
        query = "&".join(f"{name}=1" for name in names)
        answer = _ask(f"{path}?{query}&unknown_one=1", method.upper())
        [error] = answer.json()["errors"]
        assert error["field"] == "unknown_one", f"{method} {path}"


def test_agents_of_other_releases_are_answered():
    """Without a token; what matters is that the parameter is not what is refused."""
    answer = _ask("/agent/v1/wheel?of_a_later_release=1")
    assert "unknown parameter" not in answer.text
