"""What a machine needs before it has an agent: the agent's wheel, and a place to say what failed.

Here: HTTP in and out. Not here: the wheel (`app.adapters.agent_package`), the script that asks for
it (`app.adapters.providers.boot`), or what agents call once they run (`agents`).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from app.adapters.agent_package import agent_package
from app.api.agents.report_cache_driver import ReportCacheDriver
from app.orchestration.agents.record_boot_failure import (
    TooManyReports,
    record_boot_failure,
    record_boot_warning,
)
from app.orchestration.agents.register_agent import TokenRefused
from app.orchestration.instances.publish_agent import find_agent

BODY_BYTES_MAX = 16_384

router = APIRouter(prefix="/agent/v1", tags=["agents"])


class PackageAnswer(Response):
    """How the wheel is described."""

    media_type = "application/octet-stream"


class BootFailure(BaseModel):
    """Why a machine could not start its agent. machine: what it calls itself.

    warning: it starts all the same, but not as it should.
    """

    model_config = ConfigDict(extra="forbid")

    launch_token: Annotated[str, Field(min_length=1, max_length=200)]
    message: Annotated[str, Field(min_length=1, max_length=4_000)]
    machine: Annotated[str, Field(max_length=256)] = "machine"
    warning: bool = False


async def _body(request: Request) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise HTTPException(413, "A boot failure has at most 16 KiB.")
        pieces.append(piece)
    return b"".join(pieces)


@router.get("/wheel", response_model=None, response_class=PackageAnswer)
def wheel(request: Request, sha256: Annotated[str, Query(max_length=64)] = "") -> Response:
    """The agent of a digest as a wheel, else that of this very release. Its code is no secret: no
    sign-in.

    While a deployment is upgraded, the worker that rented the machine may be of another release.
    """
    made, board = agent_package(), request.app.state.report_cache
    filename, content, found = made.filename, made.content, made.sha256
    if sha256 not in ("", found):
        stored = find_agent(board.runtime.object_store, sha256)
        if stored is not None:
            (filename, content), found = stored, sha256
    headers = {
        "Lowtide-Sha256": found,
        "Lowtide-Filename": filename,
        "ETag": f'"{found}"',
        "Content-Disposition": f'attachment; filename="{filename}"',
    }
    return PackageAnswer(content, 200, headers)


@router.post("/boot-failures", response_model=None, status_code=204)
def boot_failure(request: Request, body: Annotated[bytes, Depends(_body)]) -> Response:
    """Tell a job's people why a machine could not start, or what it lacks; the launch token says
    which job.
    """
    board: ReportCacheDriver = request.app.state.report_cache
    try:
        told = BootFailure.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "body"
        raise HTTPException(422, f"{where}: {problem['msg']}.") from None
    try:
        with board.runtime.begin() as uow:
            record = record_boot_warning if told.warning else record_boot_failure
            record(uow, board.runtime, told.launch_token, told.machine, told.message)
    except TokenRefused as error:
        raise HTTPException(401, error.message) from None
    except TooManyReports as error:
        raise HTTPException(429, str(error)) from None
    return Response(status_code=204)
