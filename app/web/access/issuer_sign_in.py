"""Signing in at an issuer of OpenID Connect: there, and back with its word.

It begins with a link and not with a form, as no form may lead to another site. Not here: what the
word is worth (`app.orchestration.access.sign_in_identity`), or what the browser keeps meanwhile
(`waiting_sign_in`).
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from app.domain.access.identity_rules import SIGN_IN_LIFE, VerifiedIdentity
from app.domain.access.principal import Origin
from app.domain.access.session_rules import ISSUER_SESSION_LIFE, AttemptKind
from app.domain.audit.audit_action import AuditAction
from app.domain.deployment.credentials import digest
from app.domain.units.errors import CommandRefused, NotFound
from app.orchestration.access.sign_in_identity import IdentitySignIn, sign_in_identity
from app.ports.people.identity_provider import (
    IdentityIncomplete,
    IdentityProvider,
    IdentityProviderAway,
    IdentityRefused,
)
from app.web.access import waiting_sign_in
from app.web.access.waiting_sign_in import PATH, WaitingSignIn, waiting_in
from app.web.page_frame import HEADERS, PageParts, PageRoute, parts_of, redirect, render
from app.web.session import local_path
from app.web.sign_in_guard import browser_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_NOT_BEGUN: Final = (
    "This browser has not begun this sign-in: it began in another browser or under another address "
    "of Lowtide, more than ten minutes ago, or again in another tab. Start again from the sign-in "
    "page."
)
_TWICE: Final = (
    "This sign-in was answered before, and an answer works only once. Start again from the sign-in "
    "page."
)
_ERROR_MAX: Final = 60
Answered = Annotated[str, Query(max_length=4_000)]


@router.get(f"{PATH}/{{issuer}}")
def begin(
    request: Request, issuer: str, next: Annotated[str, Query(max_length=600)] = ""
) -> Response:
    """To the issuer's page."""
    parts = parts_of(request)
    provider = _provider(parts, issuer)
    waiting = WaitingSignIn(issuer, parts.runtime.entropy.new_token(), local_path(next))
    try:
        address = provider.sign_in_address(waiting.secrets(parts.sessions))
    except IdentityProviderAway as error:
        return _away(request, provider, error)
    response = RedirectResponse(address, 303, HEADERS)
    waiting_sign_in.keep(request, response, parts.sessions, waiting)
    return response


@router.get(f"{PATH}/{{issuer}}/callback")
def finish(
    request: Request,
    issuer: str,
    state: Answered = "",
    code: Answered = "",
    error: Answered = "",
    iss: Answered = "",
) -> Response:
    """Back from there. It changes something though it is a GET, as issuers know nothing else."""
    parts = parts_of(request)
    provider = _provider(parts, issuer)
    attempt = parts.guard.begin(AttemptKind.ISSUER, request.state.origin)
    try:
        waiting = _answered(request, parts, issuer, state)
        identity = _identity(parts, provider, waiting, code, error, iss)
    except IdentityIncomplete as incomplete:
        attempt.succeeded()
        return _refused(request, str(incomplete))
    except IdentityRefused as refused:
        return _refused(request, str(refused))
    except IdentityProviderAway as away:
        attempt.succeeded()
        return _away(request, provider, away)
    attempt.succeeded()
    response = _enter(request, provider, identity, waiting)
    waiting_sign_in.forget(request, response)
    return response


def _answered(request: Request, parts: PageParts, issuer: str, state: str) -> WaitingSignIn:
    """The sign-in that is answered, once. Raises IdentityRefused."""
    waiting = waiting_in(request, parts.sessions)
    if waiting is None or not waiting.is_answered_by(issuer, state):
        raise IdentityRefused(_NOT_BEGUN)
    with parts.runtime.begin() as uow:
        # Kept as long as the cookie could be shown once more.
        if not uow.identities.answer_once(digest(state), uow.now, uow.now + SIGN_IN_LIFE):
            raise IdentityRefused(_TWICE)
    return waiting


def _identity(
    parts: PageParts,
    provider: IdentityProvider,
    waiting: WaitingSignIn,
    code: str,
    error: str,
    iss: str,
) -> VerifiedIdentity:
    """Who signed in there. Raises IdentityRefused and IdentityProviderAway."""
    if iss and iss != provider.rules.issuer:
        raise IdentityRefused(
            "The answer names another issuer than the one that was asked. Start again from the "
            "sign-in page; if that does not help, tell an admin of Lowtide."
        )
    if error or not code:
        told = "".join(one for one in error if one.isalnum() or one in "_-")[:_ERROR_MAX]
        raise IdentityRefused(
            f"{provider.rules.label} has not signed you in: {told or 'it gave no code'}. Start "
            "again from the sign-in page, or ask the admin of your account there."
        )
    return provider.identity(waiting.secrets(parts.sessions), code)


def _enter(
    request: Request,
    provider: IdentityProvider,
    identity: VerifiedIdentity,
    waiting: WaitingSignIn,
) -> Response:
    """Begin a session of the person, or say why nothing opens."""
    parts = parts_of(request)
    origin: Origin = request.state.origin
    visitor = parts.sessions.visitor(request)
    known = None if visitor is None or visitor.owner is None else visitor.owner.person
    session, row = parts.sessions.new_session(origin, browser_of(request), ISSUER_SESSION_LIFE)
    entropy = parts.runtime.entropy
    try:
        with parts.runtime.begin() as uow:
            entered = sign_in_identity(uow, entropy, provider.rules, identity, origin, known)
            if entered.principal is not None:
                uow.people.add_session(row, entered.principal)
                action = AuditAction.SESSION_ISSUER
                uow.audit.add(row.entry(entered.principal, entropy.new_id(), action))
    except CommandRefused as refused:
        return _refused(request, refused.message)
    parts.sessions.end(visitor, origin)
    if entered.principal is None:
        return _outside(request, provider, entered)
    begun = parts.sessions.entered(session)
    if entered.keys_ended:
        response: Response = render(
            request, "account_joined.html", begun, keys_ended=entered.keys_ended,
            label=provider.rules.label, next_path=waiting.next_path,
        )  # fmt: skip
    else:
        response = redirect(waiting.next_path)
    parts.sessions.keep(request, response, begun)
    return response


def _outside(request: Request, provider: IdentityProvider, entered: IdentitySignIn) -> Response:
    return render(
        request, "no_project.html", None, 403, name=entered.name, admins=entered.admins,
        label=provider.rules.label,
    )  # fmt: skip


def _provider(parts: PageParts, issuer: str) -> IdentityProvider:
    provider = parts.identity_providers.get(issuer)
    if provider is None:
        raise NotFound("Lowtide has no sign-in with an issuer of this name.")
    return provider


def _refused(request: Request, sentence: str) -> Response:
    return render(
        request, "not_signed_in.html", None, 403, title="Not signed in", sentence=sentence
    )


def _away(request: Request, provider: IdentityProvider, error: IdentityProviderAway) -> Response:
    sentence = (
        f"{provider.rules.label} cannot be used at the moment: {error}. Try again in a minute, or "
        "sign in with a key."
    )
    return render(request, "not_signed_in.html", None, 503, title="Try again", sentence=sentence)
