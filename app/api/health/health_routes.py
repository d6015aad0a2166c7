"""Whether this process lives and can serve, which anybody may ask, and figures for Prometheus.

Not here: the figures themselves (`monitoring`).
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import PlainTextResponse, Response

from app.adapters.disk_space import measure_folders
from app.adapters.redis_ping import redis_problem
from app.api.health.monitoring import RequestCounts, exposition
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import DeploymentReader
from app.api.serving.json_answers import as_json
from app.api.serving.shapes import Shape
from app.bootstrap import deployment_folders
from app.storage.session.revision import newest_revision, serves_this_release

router = APIRouter(tags=["health"])

_REDIS_SECONDS = 1.0


class Alive(Shape):
    """The process lives."""

    status: Literal["ok"]


class DiskRoom(Shape):
    """What is left on a disk; a full one takes nothing new."""

    free_bytes: int
    full: bool


class Readiness(Shape):
    """What was looked at: "ok", or what is wrong with it. `disks`: by the folder's name."""

    status: Literal["ready", "not ready"]
    database: str
    redis: str
    disks: dict[str, DiskRoom]


@router.get("/healthz", response_model=None, responses={200: {"model": Alive}})
async def healthz() -> Response:
    """200 while the process lives; nothing else is looked at."""
    return as_json({"status": "ok"})


@router.get(
    "/readyz",
    response_model=None,
    responses={200: {"model": Readiness}, 503: {"model": Readiness, "description": "Not ready"}},
)
def readyz(request: Request) -> Response:
    """200 when the database answers and has this release's schema or a newer one, else 503.

    Redis is reported, not required: without it controllers run at their periods. So is the room on
    the disks that this process sees: reads go on while one is full.
    """
    parts = parts_of(request)
    database = _database_problem(parts)
    redis = _redis_problem(parts)
    document: dict[str, Any] = {
        "status": "ready" if database is None else "not ready",
        "database": database or "ok",
        "redis": redis or "ok",
        "disks": {
            space.name: {"free_bytes": space.free_bytes, "full": space.is_full}
            for space in measure_folders(deployment_folders(parts.settings))
        },
    }
    return as_json(document, 200 if database is None else 503)


@router.get("/metrics", response_model=None, response_class=PlainTextResponse)
def metrics(request: Request, _caller: DeploymentReader) -> Response:
    """Figures of this process and of the deployment, in Prometheus' text format.

    They name projects, so that they need the key of an auditor or an admin.
    """
    parts = parts_of(request)
    counts: RequestCounts = request.app.state.request_counts
    facts = parts.reports.deployment(parts.runtime.clock.now())
    spaces = measure_folders(deployment_folders(parts.settings))
    free_bytes = {space.name: space.free_bytes for space in spaces}
    return Response(exposition(counts, facts, free_bytes), media_type=CONTENT_TYPE_LATEST)


def _database_problem(parts: ApiParts) -> str | None:
    try:
        revision = parts.reports.schema_revision()
    except SQLAlchemyError:
        return "does not answer"
    if revision is None or not serves_this_release(revision):
        return f"its schema is {revision or 'empty'}, this release needs {newest_revision()}"
    return None


def _redis_problem(parts: ApiParts) -> str | None:
    url = parts.settings.redis_url
    if url is None:
        return "not set"
    if redis_problem(url, _REDIS_SECONDS) is not None:
        return "does not answer; controllers run at their periods"
    return None
