"""What a browser fetches of a job: whole logs, and small files of a checkpoint.

Large files go through `lowtide download`, which verifies every byte and goes on after a cut. Not
here: the tables on the job's page (`saved_files`), or the end of a log as it grows (`log_tail`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Final
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from app.domain.units.errors import NotFound
from app.domain.wording.attempt_words import attempt_words
from app.orchestration.access.while_allowed import while_allowed
from app.orchestration.agents.read_logs import READ_BYTES_MAX, list_logs, read_log, stream_names
from app.orchestration.checkpoints.read_checkpoints import (
    PIECE_BYTES_MAX,
    read_manifest,
    read_piece,
)
from app.orchestration.frame.runtime import Runtime
from app.web.page_frame import (
    HEADERS,
    PageRoute,
    SignedIn,
    job_id_of,
    parts_of,
    render,
    signed_in,
)

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_LOG_BYTES_MAX: Final = 64 << 20
"""Of a longer log its end."""

Fence = Annotated[int, Path(ge=1, le=2**31 - 1)]
Step = Annotated[int, Path(ge=0, le=10**12 - 1)]


@router.get("/jobs/{job}/log")
def whole_log(
    request: Request,
    visitor: SignedIn,
    job: str,
    stream: Annotated[str, Query(max_length=200)],
) -> Response:
    """One stream of logs as plain text, as it is now; of more than 64 MiB the end."""
    parts = parts_of(request)
    job_id = job_id_of(request, visitor, job)
    sizes = {one.stream: one.size_bytes for one in list_logs(parts.runtime, job_id)}
    size = sizes.get(stream)
    if size is None:
        raise NotFound(f"This job has no log stream {stream[:80]!r}.", "stream")
    start = max(0, size - _LOG_BYTES_MAX)
    called = stream_names(parts.runtime, job_id, [stream])[stream]
    name = f"{job}-{called.replace('/', '-')}"
    headers = {**HEADERS, "Content-Disposition": _named("inline", name)}

    def ask() -> None:
        if job_id_of(request, signed_in(request), job) != job_id:
            raise NotFound("These pages show another project now.")

    whole = _pieces(parts.runtime, job_id, stream, start, size)
    pieces = while_allowed(whole, ask, parts.runtime.clock)
    return StreamingResponse(pieces, 200, headers, "text/plain; charset=utf-8")


def _pieces(runtime: Runtime, job_id: UUID, stream: str, start: int, end: int) -> Iterator[bytes]:
    """[start, end) of a stream, without the zeros that keep the place of a gap."""
    at = start
    while at < end:
        part = read_log(runtime, job_id, stream, at, min(READ_BYTES_MAX, end - at))
        if not part.content:
            return
        at = part.next_offset
        yield part.content.replace(b"\0", b"")


@router.get("/jobs/{job}/checkpoints/{fence}/{step}")
def checkpoint(request: Request, visitor: SignedIn, job: str, fence: Fence, step: Step) -> Response:
    """The files of one checkpoint; those of at most 8 MiB are fetched from here."""
    parts = parts_of(request)
    job_id = job_id_of(request, visitor, job)
    facts = parts.jobs.job(job_id)
    manifest = read_manifest(parts.runtime, job_id, fence, step)
    with parts.runtime.begin() as uow:
        ordinals = uow.attempts.ordinals(job_id)
    return render(
        request, "checkpoint.html", visitor, job=facts.job, manifest=manifest,
        attempt=attempt_words(ordinals, fence), small_bytes=PIECE_BYTES_MAX,
    )  # fmt: skip


@router.get("/jobs/{job}/checkpoints/{fence}/{step}/files/{name:path}")
def checkpoint_file(
    request: Request,
    visitor: SignedIn,
    job: str,
    fence: Fence,
    step: Step,
    name: Annotated[str, Path(max_length=1_000)],
) -> Response:
    """A file of at most 8 MiB, whole."""
    parts = parts_of(request)
    job_id = job_id_of(request, visitor, job)
    manifest = read_manifest(parts.runtime, job_id, fence, step)
    size = next((entry.size_bytes for entry in manifest.files if entry.name == name), None)
    if size is None or size > PIECE_BYTES_MAX:
        raise NotFound(
            f"Step {step:,} has no file {name[:200]!r} of at most 8 MiB; `lowtide download` "
            "fetches all of them.",
            "name",
        )
    content = read_piece(parts.runtime, job_id, fence, step, name, 0, PIECE_BYTES_MAX)
    headers = {**HEADERS, "Content-Disposition": _named("attachment", PurePosixPath(name).name)}
    return Response(content, 200, headers, "application/octet-stream")


def _named(disposition: str, name: str) -> str:
    """With the file's name in the form that carries any character (RFC 8187)."""
    return f"{disposition}; filename*=UTF-8''{quote(name, safe='')}"
