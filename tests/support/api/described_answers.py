"""Holds answers of a served api against /openapi.json: status, content type, shape.

Clients of tests that are given `client_hooks` do so with every answer. Not here: the words of JSON
Schema (`described_shapes`), or which routes have no described shape (`test_described_answers`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import httpx

from app.api.main import create_app
from tests.support.api.described_shapes import problems

_PROBLEM = "application/problem+json"
_JSON_KINDS = frozenset({"application/json", _PROBLEM})


@cache
def described_page() -> dict[str, Any]:
    """The document as the api serves it."""
    return create_app().openapi()


def route_of(method: str, asked: str) -> dict[str, Any] | None:
    """The description of the route that answers there; None where none is described.

    A job may be called like another route: the path with the fewest parameters counts.
    """
    found = [
        (path.count("{"), path)
        for path, routes in described_page()["paths"].items()
        if method.lower() in routes and _pattern(path).fullmatch(asked)
    ]
    if not found:
        return None
    _, path = min(found)
    route: dict[str, Any] = described_page()["paths"][path][method.lower()]
    return route


def breaches(answer: httpx.Response, method: str, asked: str) -> list[str]:
    """How an answer is otherwise than its route's description: nothing where all is as described.

    Only refusals and failures may be described in common, as `default`.
    """
    route = route_of(method, asked)
    assert route is not None, f"{method} {asked} is not described"
    responses, status = route["responses"], answer.status_code
    found = responses.get(str(status)) or (responses.get("default") if status >= 400 else None)
    if found is None:
        return [f"{status} is not described"]
    kind = answer.headers.get("content-type", "").partition(";")[0]
    described = found.get("content", {})
    if kind not in described:
        # A HEAD, and a 204, have no content, whatever its type would be.
        return [f"{kind} is not described"] if _has_content(answer, method) else []
    if kind not in _JSON_KINDS or not _has_content(answer, method):
        return []
    shapes, document = described_page()["components"]["schemas"], answer.json()
    wrong = problems(document, described[kind].get("schema", {}), shapes)
    if kind == _PROBLEM and not wrong:
        empty = [name for name in ("title", "detail") if not document[name].strip()]
        wrong = [f"answer.{name} says nothing" for name in empty]
    return wrong


def client_hooks() -> dict[str, list[Callable[[httpx.Response], None]]]:
    """`event_hooks` of an httpx client: each answer of a described route is held against it."""
    return {"response": [_hold]}


def _hold(answer: httpx.Response) -> None:
    asked = answer.request
    if route_of(asked.method, asked.url.path) is None:
        return
    if answer.headers.get("content-type", "").partition(";")[0] in _JSON_KINDS:
        answer.read()
    found = breaches(answer, asked.method, asked.url.path)
    assert not found, f"{asked.method} {asked.url.path} {answer.status_code}: {found}"


def _has_content(answer: httpx.Response, method: str) -> bool:
    no_content = method.lower() == "head" or answer.status_code == 204
    return not no_content and answer.headers.get("content-length") != "0"


@cache
def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{\w+\}", "[^/]+", path.replace("{name}", ".+")))
