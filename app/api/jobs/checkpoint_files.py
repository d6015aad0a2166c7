"""The files of a committed checkpoint: their list with hashes, and their bytes in pieces.

Not here: the list of checkpoints (`job_history`), or reading the store (`read_checkpoints`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from app.api.serving.api_parts import parts_of
from app.api.serving.auth import Reader
from app.orchestration.checkpoints.read_checkpoints import (
    PIECE_BYTES_MAX,
    read_manifest,
    read_piece,
)

router = APIRouter(prefix="/api/v1/jobs/{job}/checkpoints", tags=["job history"])

_BIGINT_MAX: Final = 2**63 - 1
Fence = Annotated[int, Path(ge=1, le=2**31 - 1, description="The attempt's fence, not its ordinal")]
Step = Annotated[int, Path(ge=0, le=10**12 - 1)]


class FileAnswer(Response):
    """Bytes of a file."""

    media_type = "application/octet-stream"


@router.get("/{fence}/{step}")
def checkpoint(
    request: Request, caller: Reader, job: str, fence: Fence, step: Step
) -> dict[str, Any]:
    """One checkpoint with its files; `chunk_sha256` are of consecutive `chunk_bytes` each.

    `ordinal` is that of its attempt, null where its row was lost.
    """
    parts = parts_of(request)
    job_id = parts.reports.job_id(caller.project_id, job)
    manifest = read_manifest(parts.runtime, job_id, fence, step)
    with parts.runtime.begin() as uow:
        ordinals = uow.attempts.ordinals(job_id)
    return {
        "fence": manifest.fence,
        "ordinal": ordinals.get(manifest.fence),
        "step": manifest.step,
        "final": manifest.final,
        "digest": manifest.digest,
        "metrics": manifest.metrics,
        "size_bytes": manifest.size_bytes,
        "files": [
            {
                "name": entry.name,
                "size_bytes": entry.size_bytes,
                "chunk_bytes": entry.chunk_bytes,
                "chunk_sha256": list(entry.chunk_sha256),
            }
            for entry in manifest.files
        ],
    }


@router.get("/{fence}/{step}/files/{name:path}", response_class=FileAnswer)
def checkpoint_file(
    request: Request,
    caller: Reader,
    job: str,
    fence: Fence,
    step: Step,
    name: Annotated[str, Path(max_length=1_000)],
    offset: Annotated[int, Query(ge=0, le=_BIGINT_MAX, description="First byte")] = 0,
    limit: Annotated[int, Query(ge=1, le=PIECE_BYTES_MAX)] = PIECE_BYTES_MAX,
) -> Response:
    """Bytes of one file from `offset` on, at most 8 MiB; none at its end."""
    parts = parts_of(request)
    job_id = parts.reports.job_id(caller.project_id, job)
    content = read_piece(parts.runtime, job_id, fence, step, name, offset, limit)
    headers = {"X-Content-Type-Options": "nosniff"}
    return FileAnswer(content, 200, headers)
