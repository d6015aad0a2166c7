"""Sessions of browsers, which their owner lists and ends; the key of a confirmed `lowtide login`.

Not here: how one signs in (`app.web`), or the rules (`app.orchestration.access.confirm_login`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access.key_documents import key_documents
from app.api.access.keys import NamesOfProjects
from app.api.access.member_shapes import LoginShape, SessionPage, SessionShape
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import Owner
from app.api.serving.json_answers import as_json, page
from app.api.serving.shapes import fields_of
from app.domain.access.principal import Origin
from app.domain.access.session_rules import AttemptKind
from app.domain.units.errors import CommandRefused, InvalidValue, NotFound
from app.orchestration.access.confirm_login import LoginProblem, redeem_login
from app.orchestration.access.manage_keys import IssuedKey
from app.storage.unit_of_work import UnitOfWork

router = APIRouter(prefix="/api/v1", tags=["sessions"], dependencies=[Depends(json_only)])

_SESSIONS_MAX: Final = 1_000
_NO_LOGIN: Final = "This login is not confirmed, was used, or is over: run `lowtide login` again."
_ENDED: Final = "Too many wrong codes: run `lowtide login` again for another one."


class LoginCode(BaseModel):
    """`verifier`: what the challenge of the confirmed page is the SHA-256 of. `code`: what the page
    showed. `projects`: the only ones that the key opens, of those that the person is a member of;
    null, or left out, is all that the session of the page opens.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    verifier: Annotated[str, Field(min_length=43, max_length=128)]
    code: Annotated[str, Field(min_length=1, max_length=40)]
    projects: NamesOfProjects | None = None


@router.get("/me/sessions", response_model=None, responses={200: {"model": SessionPage}})
def sessions(request: Request, caller: Owner) -> Response:
    """Your browsers that are signed in, the newest first; with a service key, the key's."""
    parts = parts_of(request)
    found = parts.web_sessions.of_owner(caller, parts.runtime.clock.now(), _SESSIONS_MAX)
    return page([fields_of(SessionShape, row) for row in found], None)


@router.post("/me/sessions/{session}/end", status_code=204, response_model=None)
def end(request: Request, caller: Owner, session: str) -> Response:
    """Sign one of your browsers out, at once."""
    parts = parts_of(request)
    now, audit_id = parts.runtime.clock.now(), parts.runtime.entropy.new_id()
    if not parts.web_sessions.end_of_owner(caller, session, now, audit_id):
        raise NotFound(f"{caller.name} has no session {session[:40]!r}.")
    return Response(status_code=204)


@router.post("/login", status_code=201, response_model=None, responses={201: {"model": LoginShape}})
def login(request: Request, body: Annotated[LoginCode, Body()]) -> Response:
    """The key of a login that a person has confirmed in the browser, for 30 days. Needs no key.

    404 for a login that is not confirmed, was used, or is over; 422 for a wrong code, and 409 after
    the fifth, or for projects that the key cannot name; 429 after too many failures from one
    address.
    """
    parts = parts_of(request)
    origin: Origin = request.state.origin
    runtime, attempt = parts.runtime, parts.guard.begin(AttemptKind.LOGIN, origin)
    with runtime.begin() as uow:
        answer = redeem_login(
            uow, runtime.entropy, body.verifier, body.code, origin, projects=body.projects
        )
        row = None if answer.key is None else _made(uow, answer.key)
    if row is None:
        request.state.refused = True
        raise _refusal(answer.problem)
    attempt.succeeded()
    return as_json(row, 201)


def _made(uow: UnitOfWork, issued: IssuedKey) -> dict[str, Any]:
    """The key with what it may do in its own project. Raises NotFound for one that opens none."""
    owner = uow.keys.owner(issued.row.id)
    if owner is None:
        # Removed everywhere since the login was confirmed.
        raise NotFound(_NO_LOGIN)
    [document] = key_documents(uow, owner, [issued.row])
    return {**document, "role": owner.role, "key": issued.secret, "person": owner.name}


def _refusal(problem: LoginProblem | None) -> Exception:
    if problem is LoginProblem.WRONG_CODE:
        return InvalidValue("code: this is not the code that the page shows", "code")
    return CommandRefused(_ENDED) if problem is LoginProblem.ENDED else NotFound(_NO_LOGIN)
