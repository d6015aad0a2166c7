"""Signing in with an API key, and out.

The key is sent once, by a form, and never appears in an address. Not here: the cookie (`session`),
or signing in elsewhere (`access.issuer_sign_in`).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from app.domain.access.key_rules import beginning_of
from app.domain.access.principal import Origin
from app.domain.access.session_rules import AttemptKind
from app.web.page_frame import PageRoute, check_form, parts_of, redirect, render
from app.web.session import Visitor, local_path
from app.web.sign_in_guard import browser_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_WRONG_KEY = (
    "This key is unknown, has expired or has been revoked. A key begins with lt_ and is 46 "
    "characters long."
)


@router.get("/sign-in")
def show(request: Request, next: str | None = None) -> Response:
    """The form; those who have signed in already go on at once."""
    parts = parts_of(request)
    visitor = parts.sessions.visitor(request)
    if visitor is not None and visitor.owner is not None:
        return redirect(local_path(next))
    return _form(request, visitor, local_path(next))


@router.post("/sign-in")
def sign_in(
    request: Request,
    key: Annotated[str, Form(max_length=200)],
    form_token: Annotated[str, Form(max_length=200)] = "",
    next: Annotated[str, Form(max_length=600)] = "",
) -> Response:
    """Check the key and begin a session under a new nonce."""
    parts = parts_of(request)
    visitor = parts.sessions.visitor(request)
    check_form(request, visitor, form_token)
    origin: Origin = request.state.origin
    # Named by a refusal, the one of too many attempts, too.
    request.state.key_prefix = beginning_of(key.strip())
    attempt = parts.guard.begin(AttemptKind.SIGN_IN, origin, beginning_of(key.strip()))
    begun = parts.sessions.begin(key, origin, browser_of(request))
    if begun is None:
        return _form(request, visitor, local_path(next), _WRONG_KEY, 401)
    attempt.succeeded()
    parts.sessions.end(visitor, origin)  # one that is left behind would only end by its time
    response = redirect(local_path(next))
    parts.sessions.keep(request, response, begun)
    return response


@router.post("/sign-out")
def sign_out(request: Request, form_token: Annotated[str, Form(max_length=200)] = "") -> Response:
    """End the session of this browser: a copy of its cookie is worth nothing any more."""
    parts = parts_of(request)
    visitor = parts.sessions.visitor(request)
    check_form(request, visitor, form_token)
    parts.sessions.end(visitor, request.state.origin)
    response = redirect("/sign-in")
    parts.sessions.forget(request, response)
    return response


def _form(
    request: Request, visitor: Visitor | None, next_path: str, error: str = "", status: int = 200
) -> Response:
    parts = parts_of(request)
    shown_to = visitor or Visitor(parts.runtime.entropy.new_token())
    issuers = [provider.rules for provider in parts.identity_providers.values()]
    response = render(
        request, "sign_in.html", shown_to, status, next_path=next_path, error=error,
        issuers=issuers,
    )  # fmt: skip
    if visitor is None:
        parts.sessions.keep(request, response, shown_to)
    return response
