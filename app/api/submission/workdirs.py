"""Packed working folders of a project, by content: asked for with HEAD, sent once with PUT.

A digest is no key to another project's folder: neither here, nor at submission, nor on a machine.

Not here: packing (`app.cli`), what an archive may hold (`input_checks`), and how machines fetch
it (`agents`).
"""

from __future__ import annotations

import hashlib
import io
import re
import tempfile

from anyio import to_thread
from fastapi import APIRouter, HTTPException, Request
from starlette.responses import Response

from app.adapters.input_checks.archive_checker import CheckFailed
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import Submitter
from app.api.serving.json_answers import as_json
from app.api.serving.shapes import Shape
from app.api.submission.spec_body import workdir_exists
from app.domain.access.principal import Principal
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.units.errors import InvalidValue, NotFound
from app.orchestration.agents.read_workdir import workdir_key
from app.orchestration.audit.record_action import record_beginning
from app.ports.object_store import ObjectExists

router = APIRouter(prefix="/api/v1/workdirs", tags=["workdirs"])


class StoredWorkdir(Shape):
    """A packed folder that the project has; `created` is false where it was here already."""

    digest: str
    size_bytes: int
    created: bool


_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.ASCII)


@router.head("/{digest}", response_model=None, response_class=Response)
def exists(request: Request, caller: Submitter, digest: str) -> Response:
    """200 when the caller's project has the folder with this SHA-256, else 404."""
    if not workdir_exists(parts_of(request).runtime.object_store, caller.project_id, _hex(digest)):
        raise NotFound(f"There is no packed folder {digest[:80]}.")
    return Response(status_code=200)


@router.put(
    "/{digest}",
    status_code=201,
    response_model=None,
    responses={
        201: {"model": StoredWorkdir},
        200: {"model": StoredWorkdir, "description": "It was here already"},
    },
)
async def upload(request: Request, caller: Submitter, digest: str) -> Response:
    """Store a tar.gz of at most 100 MiB under its SHA-256: 201, or 200 when it was here already."""
    hex_digest = _hex(digest)
    parts = parts_of(request)
    async with parts.uploads.turn():
        with tempfile.TemporaryFile(prefix="lowtide-workdir-") as file:
            size = await _receive(request, file)
            # An archive is held whole while it is stored, so few are stored at a time.
            async with parts.archive_turns.turn():
                created = await to_thread.run_sync(_keep, parts, file, caller, hex_digest)
    document = {"digest": f"sha256:{hex_digest}", "size_bytes": size, "created": created}
    return as_json(document, 201 if created else 200)


async def _receive(request: Request, file: io.BufferedRandom) -> int:
    size = 0
    async for piece in request.stream():
        size += len(piece)
        file.write(piece)
    # The process that checks it reads the file, not this object's buffer.
    file.flush()
    return size


def _keep(parts: ApiParts, file: io.BufferedRandom, caller: Principal, hex_digest: str) -> bool:
    # In this thread, not while it came: hashing would take the event loop from everybody else.
    file.seek(0)
    found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != hex_digest:
        raise InvalidValue(
            f"The body's SHA-256 is {found}, not the one in the address; "
            "send the archive unchanged.",
            "digest",
        )
    store = parts.runtime.object_store
    try:
        parts.archives.check(file)
    except CheckFailed as error:
        raise HTTPException(
            503, f"The archive could not be checked: {error}; try again.", {"Retry-After": "5"}
        ) from error
    if workdir_exists(store, caller.project_id, hex_digest):
        return False
    subject = Subject(SubjectKind.WORKDIR, hex_digest, hex_digest[:12], caller.project_id)
    size = file.seek(0, io.SEEK_END)
    stored = {"sha256": hex_digest, "size_bytes": size}
    record_beginning(parts.runtime, caller, AuditAction.WORKDIR_UPLOAD, subject, stored)
    file.seek(0)
    try:
        store.put_new(workdir_key(caller.project_id, hex_digest), file.read())
    except ObjectExists:
        return False
    return True


def _hex(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise InvalidValue("digest: write sha256: and 64 lower-case hex digits", "digest")
    return match[1]
