"""What happened to one job: attempts, events, checkpoints, metrics, logs.

Long lists come in parts: `next` is the `after` of the following part, null at the end. Not here:
the job as it stands (`jobs`) and what it cost (`costs`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.jobs.history_shapes import (
    AttemptPage,
    CheckpointPage,
    EventPage,
    LogStreamPage,
    PointPage,
)
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import Reader
from app.api.serving.json_answers import page
from app.domain.access.principal import Principal
from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import InvalidValue, NotFound
from app.domain.wording.attempt_words import stream_ordinal
from app.orchestration.agents.read_logs import gap_note, read_piece
from app.orchestration.checkpoints.read_checkpoints import best_standing
from app.storage.jobs.log_repository import LogChunk

router = APIRouter(prefix="/api/v1/jobs/{job}", tags=["job history"])

_INT_MAX: Final = 2**31 - 1
_BIGINT_MAX: Final = 2**63 - 1
_EVENTS_MAX: Final = 1_000
_CHECKPOINTS_MAX: Final = 1_000
_POINTS_MAX: Final = 5_000
_LOG_BYTES_MAX: Final = 1 << 20
# Logs arrive in pieces of any size; so many are joined in one answer.
_LOG_CHUNKS_MAX: Final = 64


def _job_id(parts: ApiParts, caller: Principal, job: str) -> UUID:
    return parts.reports.job_id(caller.project_id, job)


@router.get("/attempts", response_model=None, responses={200: {"model": AttemptPage}})
def attempts(request: Request, caller: Reader, job: str) -> Response:
    """Every attempt by its fence, with its machines by rank and why it ended.

    `ordinal` counts them from 1, as people read them. `fence` is the attempt's key: it grows, and
    leaves numbers out after the control plane was away.
    """
    parts = parts_of(request)
    return page(parts.reports.attempts(_job_id(parts, caller, job)), None)


@router.get("/events", response_model=None, responses={200: {"model": EventPage}})
def events(
    request: Request,
    caller: Reader,
    job: str,
    after: Annotated[int, Query(ge=0, le=_INT_MAX, description="Number of the last one seen")] = 0,
    limit: Annotated[int, Query(ge=1, le=_EVENTS_MAX)] = 200,
) -> Response:
    """The job's history: who did what, when, and what it changed."""
    parts = parts_of(request)
    found = parts.reports.events(_job_id(parts, caller, job), after, limit)
    return page(found, str(found[-1]["seq"]) if len(found) == limit else None)


@router.get("/checkpoints", response_model=None, responses={200: {"model": CheckpointPage}})
def checkpoints(request: Request, caller: Reader, job: str) -> Response:
    """Committed checkpoints, newest first, at most 1,000; `pruned_at` once removed.

    `fence` and `ordinal` are those of the attempt; `ordinal` is null where its row was lost.
    `best` marks the one with the best score, of those that stand.
    """
    parts = parts_of(request)
    job_id = _job_id(parts, caller, job)
    rows = parts.reports.checkpoints(job_id, _CHECKPOINTS_MAX)
    with parts.runtime.begin() as uow:
        found = uow.jobs.get(job_id)
    assert found is not None, "its id was just found"
    place = best_standing(rows, parse_spec(found.spec))
    return page([{**row, "best": (row["fence"], row["step"]) == place} for row in rows], None)


@router.get("/metrics", response_model=None, responses={200: {"model": PointPage}})
def metrics(
    request: Request,
    caller: Reader,
    job: str,
    after: Annotated[
        str, Query(max_length=40, description="`next` of the part before: fence.step")
    ] = "0.-1",
    limit: Annotated[int, Query(ge=1, le=_POINTS_MAX)] = 1_000,
) -> Response:
    """Points of every numeric key of the progress lines, by fence and step.

    `ordinal` is that of the attempt.
    """
    parts = parts_of(request)
    found = parts.reports.metrics(_job_id(parts, caller, job), _point(after), limit)
    full = len(found) == limit
    return page(found, f"{found[-1]['fence']}.{found[-1]['step']}" if full else None)


@router.get(
    "/logs",
    response_model=None,
    responses={
        200: {"model": LogStreamPage, "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
)
def logs(
    request: Request,
    caller: Reader,
    job: str,
    stream: Annotated[str | None, Query(max_length=200, description="Which one to read")] = None,
    offset: Annotated[
        int,
        Query(ge=-_BIGINT_MAX, le=_BIGINT_MAX, description="First byte; negative: from the end"),
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=_LOG_BYTES_MAX)] = 256 * 1024,
) -> Response:
    """Without `stream` the list of streams; with it, bytes from `offset` on.

    A stream is named by its attempt's fence; `ordinal` is that attempt's, null of other streams.

    The header `Lowtide-Next-Offset` says where to read on; an empty answer means: no more yet.
    """
    parts = parts_of(request)
    job_id = _job_id(parts, caller, job)
    streams = parts.reports.log_streams(job_id)
    if stream is None:
        return page(_with_ordinals(parts, job_id, streams), None)
    size = next((one["size_bytes"] for one in streams if one["stream"] == stream), None)
    if size is None:
        known = ", ".join(one["stream"] for one in streams[:20]) or "none yet"
        raise NotFound(f"This job has no log stream {stream[:80]!r}; its streams: {known}.")
    start = min(offset if offset >= 0 else max(0, size + offset), size)
    content, following = _read_log(parts, job_id, stream, start, min(size, start + limit))
    headers = {
        "Lowtide-Next-Offset": str(following),
        "Lowtide-Size": str(size),
        "X-Content-Type-Options": "nosniff",
    }
    return Response(content, 200, headers, "text/plain; charset=utf-8")


def _with_ordinals(
    parts: ApiParts, job_id: UUID, streams: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    with parts.runtime.begin() as uow:
        ordinals = uow.attempts.ordinals(job_id)
    return [{**one, "ordinal": stream_ordinal(one["stream"], ordinals)} for one in streams]


def _read_log(
    parts: ApiParts, job_id: UUID, stream: str, start: int, end: int
) -> tuple[bytes, int]:
    """Bytes of [start, end), fewer when they lie in very many pieces; and where to read on.

    That is behind a gap, once its note has been read: the rest of it is zeros.
    """
    pieces: list[bytes] = []
    at = start
    chunks = parts.reports.log_chunks(job_id, stream, start, end, _LOG_CHUNKS_MAX)
    for offset, size, key in chunks:
        chunk = LogChunk(offset, size, key)
        if not offset <= at < offset + size:
            continue
        length = min(offset + size, end) - at
        note = len(gap_note(chunk)) if chunk.is_gap else 0
        if at - offset < note:
            length = min(length, note - (at - offset))
        piece = read_piece(parts.runtime.object_store, chunk, at - offset, length)
        pieces.append(piece)
        at += len(piece)
        if chunk.is_gap and at - offset == note:
            return b"".join(pieces), offset + size
        if len(piece) < length:
            break
    return b"".join(pieces), at


def _point(written: str) -> tuple[int, int]:
    fence, _, step = written.partition(".")
    try:
        point = int(fence), int(step)
    except ValueError as error:
        raise InvalidValue("after: use the `next` of the part before", "after") from error
    if not (0 <= point[0] <= _INT_MAX and -1 <= point[1] <= _BIGINT_MAX):
        raise InvalidValue("after: use the `next` of the part before", "after")
    return point
