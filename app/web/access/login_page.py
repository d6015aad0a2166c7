"""The page on which a person confirms a `lowtide login` that waits on a machine.

It shows the machine and letters that the command shows, too. The code goes to the command's own
address on the person's machine by a page that leads there, as no form may send to another site.
Not here: what the code is worth (`app.orchestration.access.confirm_login`).
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from app.domain.access.login_challenge import check_letters, machine_name, require_challenge
from app.domain.deployment.credentials import digest
from app.orchestration.access.confirm_login import confirm_login
from app.web.page_frame import PageRoute, SignedIn, check_form, parts_of, render

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_PORT_LEAST: Final = 1024
_PORT_MAX: Final = 65_535
Challenge = Annotated[str, Query(max_length=100)]
Machine = Annotated[str, Query(max_length=200)]


@router.get("/login")
def show(
    request: Request,
    visitor: SignedIn,
    challenge: Challenge = "",
    machine: Machine = "",
    port: Annotated[int | None, Query(ge=_PORT_LEAST, le=_PORT_MAX)] = None,
) -> Response:
    """The question; who has not signed in does so first."""
    require_challenge(challenge)
    return render(
        request, "login.html", visitor, challenge=challenge, machine=machine_name(machine),
        letters=check_letters(challenge), port=port,
    )  # fmt: skip


@router.post("/login")
def confirm(
    request: Request,
    visitor: SignedIn,
    challenge: Annotated[str, Form(max_length=100)] = "",
    machine: Annotated[str, Form(max_length=200)] = "",
    port: Annotated[int | None, Form(ge=_PORT_LEAST, le=_PORT_MAX)] = None,
    form_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Let the command have a key, and show the code that gives it to it."""
    check_form(request, visitor, form_token)
    assert visitor.owner is not None
    assert visitor.session is not None
    runtime, session = parts_of(request).runtime, digest(visitor.session)
    with runtime.begin() as uow:
        code = confirm_login(uow, runtime.entropy, visitor.owner, session, challenge, machine)
    return render(
        request, "login_code.html", visitor, code=f"{code[:4]}-{code[4:]}", sent=code, port=port,
        machine=machine_name(machine),
    )  # fmt: skip
