"""A query parameter that a route does not know is refused with the one that may be meant."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import pytest

from app.adapters.system_entropy import SystemEntropy
from app.api.main import create_app

Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def ask() -> Ask:
    """Sends a request, by default a GET, to an api that has no deployment."""
    app = create_app()
    # What the layers around the routes read.
    app.state.parts = SimpleNamespace(trusted_proxies=(), entropy=SystemEntropy())

    async def send(path: str, method: str) -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            return await client.request(method, path)

    return lambda path, method="GET": asyncio.run(send(path, method))


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
def test_the_near_one_is_named_or_all_there_are(ask: Ask, asked: str, detail: str):
    answer = ask(f"/api/v1{asked}")
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)


def test_the_field_is_named_for_programs(ask: Ask):
    [error] = ask("/api/v1/jobs?sate=running").json()["errors"]
    assert (error["field"], error["kind"]) == ("sate", "unknown_field")


def test_a_command_is_not_carried_out_without_what_was_meant(ask: Ask):
    answer = ask("/api/v1/jobs?accept_rsk=true", "POST")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "accept_rsk: unknown parameter; did you mean 'accept_risk'?"


@pytest.mark.parametrize("path", ["/healthz?now=1", "/openapi.json?now=1"])
def test_probes_may_send_what_they_like(ask: Ask, path: str):
    assert ask(path).status_code == 200


def test_every_described_parameter_is_known(ask: Ask):
    """Also those that a route reads by hand, and those with another name in the code."""
    page = ask("/openapi.json").json()
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
        answer = ask(f"{path}?{query}&unknown_one=1", method.upper())
        [error] = answer.json()["errors"]
        assert error["field"] == "unknown_one", f"{method} {path}"


def test_agents_of_other_releases_are_answered(ask: Ask):
    """Without a token; what matters is that the parameter is not what is refused."""
    answer = ask("/agent/v1/wheel?of_a_later_release=1")
    assert "unknown parameter" not in answer.text
