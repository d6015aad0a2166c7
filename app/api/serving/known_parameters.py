"""Which query parameters a route takes: one that it does not know is refused, not ignored.

An ignored one answers another question than was asked: with `sate=running`, about every job. Not
here: the parameters themselves (each route declares its own).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from app.domain.spec.spec_value import nearest


async def require_known_parameters(request: Request) -> None:
    """A dependency of routes for people. Raises RequestValidationError with each unknown name."""
    if not request.scope["query_string"]:
        return
    route: APIRoute = request.scope["route"]
    known = list(_parameters_of(route))
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError([_problem(name, known) for name in unknown])


def _parameters_of(route: APIRoute) -> Iterator[str]:
    """By the names that are sent, in the order of the route's description."""
    yield from _declared(route.dependant)
    for described in (route.openapi_extra or {}).get("parameters", ()):
        if described["in"] == "query":
            yield described["name"]


def _declared(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for below in dependant.dependencies:
        yield from _declared(below)


def _problem(name: str, known: Collection[str]) -> dict[str, Any]:
    # What is sent as `group_by` or `from_day` is nearer to one of its words than to the others.
    meant = next((word for word in reversed(name.lower().split("_")) if word in known), name)
    listed = f"; this route takes {', '.join(known)}" if known else "; this route takes none"
    said = f"unknown parameter{nearest(meant, known) or listed}"
    return {"type": "unknown_parameter", "loc": ("query", name), "msg": said}
