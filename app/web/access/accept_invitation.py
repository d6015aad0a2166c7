"""The page that accepts an invitation: it makes a member, a session and a key, once.

The token stands behind the # of the address, which browsers do not send; the page's script puts it
into the form. Not here: who may invite whom (`app.orchestration.access.manage_invitations`).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from app.domain.access.person_rules import NAME_MAX
from app.domain.access.principal import Origin
from app.domain.access.session_rules import AttemptKind
from app.domain.units.errors import CommandRefused, InvalidValue, NotFound
from app.orchestration.access.manage_invitations import Accepted, accept
from app.web.page_frame import PageRoute, check_form, parts_of, render
from app.web.session import Visitor
from app.web.sign_in_guard import browser_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)

PATH = "/invitation"


@router.get(PATH)
def show(request: Request) -> Response:
    """The form, with the name that the new person is to have."""
    return _form(request, parts_of(request).sessions.visitor(request))


@router.post(PATH)
def take(
    request: Request,
    token: Annotated[str, Form(max_length=200)] = "",
    name: Annotated[str, Form(max_length=4 * NAME_MAX)] = "",
    form_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Become a member. The key is shown here, once."""
    parts = parts_of(request)
    visitor = parts.sessions.visitor(request)
    check_form(request, visitor, form_token)
    origin: Origin = request.state.origin
    attempt = parts.guard.begin(AttemptKind.INVITATION, origin)
    owner = None if visitor is None else visitor.owner
    person, key_id = (None, None) if owner is None else (owner.person, owner.key_id)
    session, row = parts.sessions.new_session(origin, browser_of(request))
    entropy = parts.runtime.entropy
    try:
        with parts.runtime.begin() as uow:
            accepted = accept(uow, entropy, token.strip(), name, person, origin, key_id)
            if accepted.key is not None:
                uow.people.add_session(row, accepted.newcomer)
                uow.audit.add(row.entry(accepted.newcomer, entropy.new_id()))
    except NotFound as error:
        request.state.refused = True
        return _form(request, visitor, error.message, name, token, 404)
    except (InvalidValue, CommandRefused) as error:
        attempt.succeeded()
        return _form(request, visitor, error.message, name, token, 422)
    attempt.succeeded()
    if accepted.key is None:
        return _welcome(request, visitor, accepted)
    parts.sessions.end(visitor, origin)
    begun = parts.sessions.entered(session)
    response = _welcome(request, begun, accepted)
    parts.sessions.keep(request, response, begun)
    return response


def _welcome(request: Request, visitor: Visitor | None, accepted: Accepted) -> Response:
    key = None if accepted.key is None else accepted.key.secret
    return render(request, "welcome.html", visitor, person=accepted.person, key=key)


def _form(
    request: Request,
    visitor: Visitor | None,
    error: str = "",
    name: str = "",
    token: str = "",
    status: int = 200,
) -> Response:
    parts = parts_of(request)
    shown_to = visitor or Visitor(parts.runtime.entropy.new_token())
    response = render(
        request, "invitation.html", shown_to, status,
        error=error, name=name, token=token, name_max=NAME_MAX,
    )  # fmt: skip
    if visitor is None:
        parts.sessions.keep(request, response, shown_to)
    return response
