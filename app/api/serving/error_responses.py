"""Every error as problem+json (RFC 9457): what, where, what to do; never a traceback.

Lives here: the one place where errors of the layers below become HTTP statuses. Not here: the
sentences of the domain (`app.domain.units.errors`), which are passed on as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
import psycopg
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from psycopg_pool import PoolTimeout
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as ConnectionsInUse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Mount

from app.domain.units.errors import (
    Advice,
    CommandRefused,
    DomainError,
    Forbidden,
    Hidden,
    InvalidValue,
    NotFound,
    SpecError,
    SpecProblem,
    TooManyAttempts,
)
from app.domain.units.numbers import NUMBER_WORDS
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.ports.object_store import ObjectStoreError, ObjectStoreFull
from app.storage.session.storage_errors import DatabaseFull, RowsLocked

PROBLEM_JSON = "application/problem+json"
_ERRORS_MAX = 20
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_SOON = {"Retry-After": "1"}
_LATER = {"Retry-After": "30"}

log = logging.getLogger(__name__)

_TITLES = {
    SpecError: (422, "The job spec was refused"),
    InvalidValue: (422, "A value cannot be used"),
    CommandRefused: (409, "Not possible now"),
    Forbidden: (403, "Not allowed"),
    NotFound: (404, "Not found"),
    TooManyAttempts: (429, "Too many attempts"),
    DomainError: (422, "The request was refused"),
}

_SAID = {
    "missing": "is required",
    "bool_parsing": "must be true or false",
    **NUMBER_WORDS,
    "uuid_parsing": "must be an id, as in 01890000-0000-7000-8000-000093ec1b47",
    "extra_forbidden": "is unknown; remove it",
    "model_attributes_type": "must be a JSON object",
}
_KINDS = {
    "missing": "missing",
    "extra_forbidden": "unknown_field",
    "unknown_parameter": "unknown_field",
}
_TIMES = {
    "date_": "write a day, as in 2026-01-31",
    "datetime_": "write a time with its zone, as in 2026-01-31T12:00:00Z",
    "timezone_": "write a time with its zone, as in 2026-01-31T12:00:00Z",
}
_SHOULD = re.compile(r"^(?:Input|String|List) should ")

_TEXT = {"type": "string"}
_PROBLEM_SHAPE = {
    "type": "object",
    "description": "RFC 9457; `errors` names each field at fault.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        **dict.fromkeys(("type", "title", "detail", "instance"), _TEXT),
        "status": {"type": "integer"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": dict.fromkeys(("field", "message", "kind", "advice"), _TEXT),
            },
        },
    },
}

_ADVICE = {Advice.ACCEPT_RISK: "change it, or submit with accept_risk=true"}

Errors = Sequence[Mapping[str, str]]


def problem(
    status: int,
    detail: str,
    *,
    instance: str = "",
    title: str | None = None,
    errors: Errors = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem+json answer; `errors` are {field, message, kind}, with `advice` where there is one;
    `instance` is the path asked for.
    """
    title = title or HTTPStatus(status).phrase
    document: dict[str, Any] = {
        "type": f"urn:lowtide:problem:{title.lower().replace(' ', '-')}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": instance,
        "errors": list(errors),
    }
    # Sentences repeat what was sent, which may hold text that is no Unicode.
    try:
        body = orjson.dumps(document)
    except orjson.JSONEncodeError:
        document["detail"] = detail.encode("utf-8", "replace").decode()
        document["errors"] = []
        body = orjson.dumps(document)
    return Response(body, status, dict(headers or {}), PROBLEM_JSON)


def install_error_responses(app: FastAPI) -> None:
    """Answer every kind of error of this app with a problem."""
    for known in _TITLES:
        app.add_exception_handler(known, _domain_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(DBAPIError, _database_error)
    app.add_exception_handler(psycopg.Error, _database_error)
    app.add_exception_handler(DatabaseFull, _database_full)
    app.add_exception_handler(RowsLocked, _rows_locked)
    app.add_exception_handler(PoolTimeout, _busy)
    app.add_exception_handler(ConnectionsInUse, _busy)
    app.add_exception_handler(ObjectStoreError, _store_error)
    app.add_exception_handler(ProviderError, _provider_error)
    app.add_exception_handler(Exception, _unexpected)


async def explained(request: Request, error: Exception) -> Response | None:
    """The answer of this app to an error; None for one that nobody has foreseen."""
    handlers = request.app.exception_handlers
    for kind in type(error).__mro__:
        if kind is not Exception and kind in handlers:
            answer: Response = await handlers[kind](request, error)
            return answer
    return None


def describe_problems(page: dict[str, Any]) -> None:
    """Correct an OpenAPI page: every error of every route is a problem, not the framework's."""
    shapes = page["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        shapes.pop(name, None)
    shapes["Problem"] = _PROBLEM_SHAPE
    told = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for routes in page["paths"].values():
        for route in routes.values():
            route["responses"].pop("422", None)
            route["responses"]["default"] = {"description": "What went wrong", "content": told}


async def _domain_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DomainError)
    if isinstance(error, Hidden):
        request.state.refused = True
    status, title = next(_TITLES[kind] for kind in type(error).__mro__ if kind in _TITLES)
    errors: list[dict[str, str]] = []
    detail = error.message
    if isinstance(error, SpecError):
        errors = [one.to_json() for one in error.problems]
        detail = "; ".join(_with_advice(one) for one in error.problems)
    elif error.field is not None:
        errors = [{"field": error.field, "message": error.message, "kind": "invalid"}]
    headers = (
        {"Retry-After": str(error.wait_seconds)} if isinstance(error, TooManyAttempts) else None
    )
    path = request.url.path
    return problem(status, detail, instance=path, title=title, errors=errors, headers=headers)


def _with_advice(one: SpecProblem) -> str:
    return one.message if one.advice is None else f"{one.message}; {_ADVICE[one.advice]}"


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    detail = str(error.detail)
    if error.status_code == 404 and detail == HTTPStatus.NOT_FOUND.phrase:
        detail = f"There is nothing at {path[:200]}; /openapi.json lists every route."
    headers = error.headers
    if error.status_code == 405 and detail == HTTPStatus.METHOD_NOT_ALLOWED.phrase:
        allowed = _allowed(request)
        detail = f"{request.method} is not possible at {path[:200]}; use {allowed}."
        headers = {**(headers or {}), "Allow": allowed}
    return problem(error.status_code, detail, instance=path, headers=headers)


def _allowed(request: Request) -> str:
    """Every method of a path, whose routes may be several; the router names only one's."""
    routes = [route for route in request.app.routes if not isinstance(route, Mount)]
    return ", ".join(
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes
        )
    )


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [_parameter_problem(one) for one in error.errors()[:_ERRORS_MAX]]
    detail = "; ".join(one["message"] for one in errors)
    title = "The request cannot be read"
    return problem(422, detail, instance=request.url.path, title=title, errors=errors)


def _parameter_problem(error: Mapping[str, Any]) -> dict[str, str]:
    """One sentence; the value itself is not repeated, for it may be huge or secret."""
    where, *path = error["loc"]
    if error["type"] == "json_invalid":
        reason = error.get("ctx", {}).get("error", "it cannot be parsed")
        return {"field": "", "message": f"the body is not valid JSON: {reason}", "kind": "invalid"}
    field = ".".join(str(part)[:80] for part in path)
    kind = _KINDS.get(error["type"], "invalid")
    said = _SAID.get(error["type"]) or _SHOULD.sub("must ", str(error["msg"]))
    for kind_of_type, how in _TIMES.items():
        if error["type"].startswith(kind_of_type):
            said = how
    said = said.removeprefix("Value error, ")
    message = f"{field or where}: {said[:1].lower()}{said[1:]}"
    return {"field": field, "message": message[:500], "kind": kind}


async def _database_error(request: Request, error: Exception) -> Response:
    cause = error.orig if isinstance(error, DBAPIError) else error
    path = request.url.path
    if isinstance(cause, psycopg.errors.LockNotAvailable):
        return await _rows_locked(request, error)
    if isinstance(cause, psycopg.errors.QueryCanceled):
        detail = "The database took too long to answer; ask for less, or try again."
        return problem(503, detail, instance=path, headers=_SOON)
    if isinstance(cause, psycopg.DataError):
        detail = "A value is too large or too small to be stored; correct it."
        return problem(422, detail, instance=path)
    if isinstance(cause, psycopg.errors.DiskFull | psycopg.errors.ReadOnlySqlTransaction):
        log.warning("disk full on %s %s: %s", request.method, path, cause)
        return disk_full("of the database", path)
    if isinstance(cause, psycopg.OperationalError):
        if _database_disk_is_full(request):
            return disk_full("of the database", path)
        log.warning("the database failed on %s %s: %s", request.method, path, cause)
        detail = "The database does not answer at the moment; try again."
        return problem(503, detail, instance=path, headers=_SOON)
    return await _unexpected(request, error)


async def _rows_locked(request: Request, _error: Exception) -> Response:
    detail = "This is being changed at this moment; try again."
    return problem(503, detail, instance=request.url.path, headers=_SOON)


async def _client_gone(request: Request, _error: Exception) -> Response:
    """Nobody reads this; what matters is that a client's end is no failure of ours."""
    return problem(400, "The connection ended before the body did.", instance=request.url.path)


async def _busy(request: Request, _error: Exception) -> Response:
    if _database_disk_is_full(request):
        return disk_full("of the database", request.url.path)
    detail = "All connections to the database are in use; try again."
    return problem(503, detail, instance=request.url.path, headers=_SOON)


def _database_disk_is_full(request: Request) -> bool:
    """Whether that is why the database is away: PostgreSQL stops when it cannot write its log."""
    is_full: Callable[[], bool] = getattr(request.app.state, "database_disk_is_full", bool)
    return is_full()


def disk_full(whose: str, instance: str) -> Response:
    """Nothing was changed, and nothing can be until there is room; reads go on."""
    detail = (
        f"The disk {whose} is full, and nothing was changed. It works again once there is space; "
        "`lowtide doctor` on the server shows how much is left."
    )
    return problem(507, detail, instance=instance, title="Disk full", headers=_LATER)


async def _database_full(request: Request, error: Exception) -> Response:
    log.warning("disk full on %s %s: %s", request.method, request.url.path, error)
    return disk_full("of the database", request.url.path)


async def _store_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ObjectStoreFull):
        log.warning("disk full on %s %s: %s", request.method, request.url.path, error)
        return disk_full("of the object store", request.url.path)
    log.warning("the object store failed on %s: %s", request.url.path, error)
    detail = "The object store failed; try again."
    return problem(503, detail, instance=request.url.path, headers=_SOON)


async def _provider_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProviderError)
    status = 409 if error.kind is RefusalKind.REJECTED else 503
    said = str(error)
    return problem(status, f"{said[:1].upper()}{said[1:]}", instance=request.url.path)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = "This is a fault of the server, not of your request; the api's log has the details."
    return problem(500, detail, instance=request.url.path)
